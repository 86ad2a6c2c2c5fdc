"""Who may see the reports of a folder, and what do they get? A server on the loopback, for one person.

An address begins with a random token that only this person knows; without it nothing is there, not even an error that
says more. Names in addresses are keys of a list of files, and no paths. Nothing is written, run or forwarded.

Reports are pages with a script. Whoever can write into the folder can write such a page as well, so each is shown in an
origin of its own (`sandbox`): its script reads neither the list nor other reports.
"""

from __future__ import annotations

import secrets
import shutil
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.report import folder_page
from perfdoctor.report.html import Page
from perfdoctor.viewer.contents import MOST_FILES, File, Folder, FolderContents, Kind, ListedReport
from perfdoctor.viewer.root import ViewedFolder

LOOPBACK = "127.0.0.1"
FIRST_PORT = 8642
#: How many ports are tried from the first one on.
TRIED_PORTS = 20
_TOKEN_BYTES = 32
#: A request that is not complete after so many seconds is dropped.
_PATIENCE_S = 30
#: Connections at once: a browser has six.
_AT_ONCE = 64
#: What a browser calls this machine. A page of another name that resolves to it (DNS rebinding) is refused.
_HOST = regex(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
_KEY = regex(r"[0-9a-f]{16}")
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
#: Its own Content-Security-Policy admits its script by its hash; both hold.
_OF_REPORT = (
    f"{_NOTHING}; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "sandbox allow-scripts allow-downloads allow-popups allow-popups-to-escape-sandbox"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_TYPES: dict[Kind, str] = {
    "report": "text/html; charset=utf-8",
    "json": "application/json; charset=utf-8",
    "trace": "application/octet-stream",
    "watch": "text/html; charset=utf-8",
}


class Server(ThreadingHTTPServer):
    """Shows one folder. `address`: where, with the token."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int, most: int = MOST_FILES) -> None:
        self.folder = Folder(ViewedFolder(folder), most)
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        #: Two requests at once would read the same files twice.
        self.looking = threading.Lock()
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__((LOOPBACK, port), _Request)

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def contents(self) -> FolderContents:
        with self.looking:
            return self.folder.contents()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Refuse connections beyond `_AT_ONCE`: other users of this machine can connect as well."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report all but a browser that closes its tab: that is no error, all else is a defect of ours."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def serving(folder: Path, port: int | None) -> Server:
    """A server at this port, or at the first free one from `FIRST_PORT` on. Raises PerfdoctorError if there is none."""
    ports = [port] if port is not None else range(FIRST_PORT, FIRST_PORT + TRIED_PORTS)
    for each in ports:
        try:
            return Server(folder, each)
        except OSError as error:  # noqa: PERF203 the next one may be free
            refused = error
    asked = f"port {port}" if port is not None else f"none of the ports {ports[0]} to {ports[-1]}"
    raise PerfdoctorError(f"{asked} can be used: {refused.strerror or refused}", do="Give a free one: --port N.")


class _Request(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "perfdoctor"
    sys_version = ""
    timeout = _PATIENCE_S
    _MEANING: ClassVar[dict[int, str]] = {403: "refused", 404: "not found", 501: "only GET and HEAD"}

    def do_GET(self) -> None:
        if not self._is_ours():
            self._end(403)
            return
        parts = self._asked()
        if parts == [""]:
            self._index()
        elif len(parts) == 2 and _KEY.fullmatch(parts[1]):
            self._of_file(*parts)
        else:
            self._end(404)

    do_HEAD = do_GET  # noqa: N815

    def _is_ours(self) -> bool:
        """Was this machine asked by its own name, and not by a page of another site?"""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
            return False
        is_foreign = self.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
        return not is_foreign or self.headers.get("Sec-Fetch-Mode") == "navigate"

    def _asked(self) -> list[str]:
        """The parts of the address behind the token; empty without the token."""
        try:
            path = urlsplit(self.path).path
        except ValueError:
            return []
        _, _, rest = path.partition("/")
        token, slash, behind = rest.partition("/")
        given = token.encode("utf-8", "surrogateescape")
        is_known = secrets.compare_digest(given, self.server.token.encode())
        return behind.split("/") if is_known and slash else []

    def _index(self) -> None:
        contents, folder = self.server.contents(), self.server.folder
        self._page(folder_page.index(
            folder.root.given.resolve().name or str(folder.root.given),
            [_row(report) for report in contents.reports],
            [(trace.key, str(trace.path), trace.changed_ns) for trace in contents.traces],
            [(str(each.path), each.command, each.changed_ns) for each in contents.unread],
            folder.most if contents.is_cut else None,
            [(watch.key, str(watch.path.parent), watch.changed_ns) for watch in contents.watches],
        ))  # fmt: skip

    def _page(self, page: Page) -> None:
        script = f"; script-src '{page.script_hash}'; connect-src 'self'" if page.script_hash else ""
        policy = f"{_NOTHING}; style-src '{page.style_hash}'; img-src data:{script}"
        self._answer(200, _TYPES["report"], page.text.encode("utf-8", "replace"), policy)

    def _of_file(self, what: str, key: str) -> None:
        file = self.server.contents().files.get(key)
        wanted = "trace" if what == "perfetto" else what
        if file is None or file.kind != wanted:
            self._end(404)
        elif what == "perfetto":
            with self.server.looking:
                moments = self.server.folder.moments(file)
            self._page(folder_page.perfetto(file.key, str(file.path), file.bytes, moments))
        elif what == "watch":
            known = self.server.folder.watched(file)
            if known is None:
                self._end(404)
            else:
                self._page(folder_page.watch(str(file.path.parent), known, time.time_ns()))
        else:
            self._send(file)

    def _send(self, file: File) -> None:
        try:
            opened = self.server.folder.root.open(file.path)
        except OSError:
            self._end(404)
            return
        with opened:
            size = opened.seek(0, 2)
            opened.seek(0)
            self._head(200, _TYPES[file.kind], size, _OF_REPORT if file.kind == "report" else f"{_NOTHING}; sandbox")
            if self.command != "HEAD":
                self._copy(opened, size)

    def _copy(self, opened: Any, size: int) -> None:
        """Send the `size` bytes that were announced, though a file may grow; where it shrinks the connection ends."""
        left = size
        while left > 0 and (piece := opened.read(min(left, shutil.COPY_BUFSIZE))):  # type: ignore[attr-defined]
            self.wfile.write(piece)
            left -= len(piece)
        self.close_connection = self.close_connection or left > 0

    def _end(self, status: int) -> None:
        body = f"perfdoctor: {self._MEANING.get(status, 'not understood')}\n".encode()
        self._answer(status, "text/plain; charset=utf-8", body, f"{_NOTHING}; sandbox")

    def _answer(self, status: int, type_: str, body: bytes, policy: str) -> None:
        self._head(status, type_, len(body), policy)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, type_: str, size: int, policy: str) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Content-Type", type_)
        self.send_header("Content-Length", str(size))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is no HTTP, or asks to write: nothing of it is repeated."""
        del message, explain
        self.close_connection = True  # what it sends along is not read
        self.command = getattr(self, "command", None) or "GET"
        self._end(code)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 as the library calls it
        """Addresses hold the token: they are written nowhere."""


def _row(report: ListedReport) -> folder_page.ReportRow:
    traces = report.others("trace")
    others = [("JSON", f"json/{each.key}") for each in report.others("json")[:1]]
    others += [("in Perfetto" if len(traces) == 1 else each.path.name, f"perfetto/{each.key}") for each in traces]
    return folder_page.ReportRow(
        report.file.key, str(report.file.path), report.verdict, report.step_ns, report.gpus,
        report.made_ns or report.file.changed_ns, others,
    )  # fmt: skip

"""A folder of reports, and a server of it that is asked over real HTTP."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recorded import recording
from report.samples import INPUT_BOUND

from perfdoctor.export import perfetto
from perfdoctor.report import html, json_report
from perfdoctor.viewer.server import Server

SECRET = "nobody else's business"


def filled(folder: Path, fixture: Path) -> Path:
    """A run with a report, its JSON and its timeline; a recording without; a secret beside the folder."""
    root = folder / "runs"
    (root / "train").mkdir(parents=True)
    known = recording(fixture)
    (root / "train" / "run.json").write_text("{}", "utf-8")
    (root / "train" / "report.html").write_text(html.render(known.diagnosis, known.views), "utf-8")
    (root / "train" / "diagnosis.json").write_text(json_report.render(known.diagnosis), "utf-8")
    (root / "train" / "timeline.pftrace").write_bytes(b"".join(perfetto.render(known.examination)))
    (root / "sample.perfdoctor.html").write_text(html.render(INPUT_BOUND), "utf-8")
    (root / "rank 0.sqlite").write_bytes(fixture.read_bytes())
    (root / "notes.html").write_text("<!doctype html><title>mine</title>", "utf-8")
    (root / "settings.json").write_text('{"password": "x"}', "utf-8")
    (folder / "secret.html").write_text(f"<!doctype html>\n<!-- perfdoctor report 1 -->\n{SECRET}", "utf-8")
    return root


@contextmanager
def served(root: Path, **options: int) -> Iterator[Server]:
    with Server(root, 0, **options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> Answer:
    """`path`: behind the token, or from the root where it begins with a slash."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        address = path if path.startswith(("/", "http")) else f"/{server.token}/{path}"
        connection.putrequest(method, address, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        return Answer(connection.getresponse())
    finally:
        connection.close()

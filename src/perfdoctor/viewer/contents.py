"""Which reports, exported traces and recordings without a report lie below a folder, and what do they say?"""

from __future__ import annotations

import gzip
import hashlib
import html
import os
import re
import shlex
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import IO, Any, BinaryIO, Literal, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.export.findings import FIRST_TRACK
from perfdoctor.export.moments import Moment, moments
from perfdoctor.patterns import regex
from perfdoctor.readers import formats
from perfdoctor.readers.tensorboard import session_of
from perfdoctor.system.run_folder import MANIFEST
from perfdoctor.viewer.root import ViewedFolder
from perfdoctor.watching import document
from perfdoctor.watching.document import WatchDocument

Kind = Literal["report", "json", "trace", "watch"]

#: Our pages begin with this, and our JSON has that.
_PAGE, _JSON, _FORMAT = b"<!-- perfdoctor report", b'"perfdoctor":', b'"format"'
_WATCH = b'{"format":'
_HEAD = 65_536
_OUR_HEAD = 1024
_GZIP = b"\x1f\x8b"
#: More than a folder of runs has; what is behind is named as not looked at.
MOST_FILES = 20_000
#: No report that we write is as large.
_LARGEST_REPORT = 1 << 27
_TITLE = regex(rb"<title>(.*?)</title>")
_DATA = regex(rb'<script type="application/json" id="diagnosis">(.*?)</script>', re.DOTALL)


class File(Struct, frozen=True):
    """A file that may be shown: `key` names it in addresses, and says nothing about where it lies."""

    kind: Kind
    path: PurePosixPath
    bytes: int
    changed_ns: int

    @property
    def key(self) -> str:
        return hashlib.sha256(self.path.as_posix().encode("utf-8", "surrogateescape")).hexdigest()[:16]


class ListedReport(Struct, frozen=True):
    """A page of ours, with its verdict. `step_ns`: the median step, None where there is none; beside it lie others."""

    file: File
    verdict: str
    step_ns: int | None = None
    gpus: tuple[str, ...] = ()
    sources: frozenset[str] = frozenset()
    made_ns: int = 0
    beside: tuple[File, ...] = ()

    def others(self, kind: Kind) -> list[File]:
        return [each for each in self.beside if each.kind == kind]


class Unread(Struct, frozen=True):
    """A recording, or a folder of perfdoctor run, without a report; and the command that makes one."""

    path: PurePosixPath
    command: str
    changed_ns: int


class FolderContents(Struct, frozen=True):
    """Files of a folder, newest first. `files`: all that may be shown, by key. `is_cut`: more files were not read."""

    reports: tuple[ListedReport, ...] = ()
    traces: tuple[File, ...] = ()
    watches: tuple[File, ...] = ()
    unread: tuple[Unread, ...] = ()
    files: dict[str, File] = field(default_factory=dict)
    is_cut: bool = False


class Folder:
    """A folder whose files are listed anew each time; what does not change is read once."""

    def __init__(self, root: ViewedFolder, most: int = MOST_FILES) -> None:
        self.root, self.most = root, most
        self._reports: dict[File, ListedReport] = {}
        self._moments: dict[File, list[Moment]] = {}
        self._kinds: dict[tuple[PurePosixPath, int, int], str | None] = {}

    def contents(self) -> FolderContents:
        paths = list(self.root.files(self.most + 1))
        is_cut, paths = len(paths) > self.most, paths[: self.most]
        ours: list[File] = []
        recordings: dict[PurePosixPath, int] = {}
        for path in paths:
            kind, size, changed_ns = self._looked_at(path)
            if kind in ("html", "json", "trace", "watch"):
                ours.append(File(cast("Kind", "report" if kind == "html" else kind), path, size, changed_ns))
            elif kind == "recording":
                recordings[path] = changed_ns
        beside = defaultdict(list)
        for file in ours:
            beside[file.path.parent].append(file)
        reports = [self._report(file, beside[file.path.parent]) for file in ours if file.kind == "report"]
        runs = {path.parent for path in paths if path.name == MANIFEST}
        taken = {other for report in reports for other in report.beside}
        return FolderContents(
            tuple(sorted(reports, key=lambda each: -each.made_ns)),
            tuple(file for file in ours if file.kind == "trace" and file not in taken),
            tuple(sorted((file for file in ours if file.kind == "watch"), key=lambda each: -each.changed_ns)),
            tuple(self._unread(reports, recordings, runs)),
            {file.key: file for file in ours},
            is_cut,
        )

    def moments(self, trace: File) -> list[Moment]:
        """The moments of the findings in an exported trace; none where it cannot be read."""
        if trace not in self._moments:
            try:
                with self.root.open(trace.path) as file:
                    is_packed = file.read(2) == _GZIP
                    file.seek(0)
                    plain = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if is_packed else file
                    self._moments[trace] = moments(plain)
            except (OSError, EOFError, zlib.error, PerfdoctorError):
                self._moments[trace] = []
        return self._moments[trace]

    def watched(self, file: File) -> WatchDocument | None:
        """What is known of a training under watch; None where that cannot be read now."""
        try:
            with self.root.open(file.path) as stream:
                return document.decoded(stream.read(_LARGEST_REPORT))
        except (OSError, PerfdoctorError):
            return None

    def _looked_at(self, path: PurePosixPath) -> tuple[str | None, int, int]:
        """Kind of a file (`html`, `json`, `trace` of ours, `recording`, else None), its size and time of change."""
        name = path.name.lower()
        if not name.endswith((".html", ".pftrace", ".pftrace.gz", *formats.endings(recordings=True))):
            return None, 0, 0
        try:
            with self.root.open(path) as file:
                now = os.fstat(file.fileno())
                key = path, now.st_size, now.st_mtime_ns
                if key not in self._kinds:
                    self._kinds[key] = _kind(name, file)
                return self._kinds[key], now.st_size, now.st_mtime_ns
        except OSError:
            return None, 0, 0

    def _report(self, file: File, beside: Sequence[File]) -> ListedReport:
        if file not in self._reports:
            self._reports[file] = self._read(file)
        read = self._reports[file]
        stem = _stem(file.path.name)
        # In a folder with several reports each has the files of its own name.
        is_alone = sum(each.kind == "report" for each in beside) == 1
        own = [each for each in beside if each.kind != "report" and (is_alone or _stem(each.path.name) == stem)]
        return replace(read, beside=tuple(own))

    def _read(self, file: File) -> ListedReport:
        page = b""
        if file.bytes <= _LARGEST_REPORT:
            with suppress(OSError), self.root.open(file.path) as stream:  # it was there a moment ago
                page = stream.read(_LARGEST_REPORT)
        title = _TITLE.search(page[:_HEAD])
        verdict = html.unescape(title[1].decode("utf-8", "replace")) if title else file.path.name
        data = _DATA.search(page)
        try:
            return _of_document(file, verdict, msgspec.json.decode(data[1])) if data else ListedReport(file, verdict)
        except (msgspec.DecodeError, ValueError, TypeError, KeyError, AttributeError):
            return ListedReport(file, verdict, made_ns=file.changed_ns)

    def _unread(
        self, reports: Sequence[ListedReport], recordings: dict[PurePosixPath, int], runs: set[PurePosixPath]
    ) -> list[Unread]:
        """Runs without a report in them, and recordings outside of runs that no report was made of."""
        with_report = {report.file.path.parent for report in reports}
        reported = defaultdict[str, set[PurePosixPath]](set)  # the folders of the reports of each name
        for report in reports:
            for name in report.sources:
                reported[name].add(report.file.path.parent)
        called = Counter(path.name for path in recordings)
        found: dict[PurePosixPath, int] = {}
        for path, changed_ns in recordings.items():
            run = next((parent for parent in path.parents if parent in runs), None)
            # Recordings of many folders are called alike, and a report says no more of its own than the name.
            folders = reported[path.name]
            is_known = bool(folders if called[path.name] == 1 else folders.intersection(path.parents))
            if run is None and not is_known:
                where = PurePosixPath(session) if (session := session_of(self.root.path / path)) else path
                where = where.relative_to(self.root.path) if where.is_absolute() else where
                found[where] = max(changed_ns, found.get(where, 0))
            elif run is not None and run not in with_report:
                found[run] = max(changed_ns, found.get(run, 0))
        newest = sorted(found.items(), key=lambda each: -each[1])
        analyze = "perfdoctor analyze"
        return [
            Unread(path, f"{analyze} {shlex.quote(str(self.root.given / path))}", changed_ns)
            for path, changed_ns in newest
        ]


def _of_document(file: File, verdict: str, document: Any) -> ListedReport:
    run = document["run"]
    steps = run["steps"]
    return ListedReport(
        file, verdict, int(steps["median_ns"]) if steps["count"] else None,
        tuple(str(gpu["name"]) for gpu in run["gpus"]), frozenset(str(source["file"]) for source in run["sources"]),
        file.changed_ns,
    )  # fmt: skip


def _kind(name: str, file: BinaryIO) -> str | None:
    """Kind of the file with this name, by its first bytes."""
    head = file.read(_HEAD)
    if name.endswith(".html"):
        return "html" if _PAGE in head[:_OUR_HEAD] else None
    if name.endswith((".pftrace", ".pftrace.gz")):
        return "trace" if FIRST_TRACK.encode() in formats.inflated(head)[:_OUR_HEAD] else None
    if name == document.FILE and head.startswith(_WATCH):
        return "watch"
    if name.endswith(".json") and _JSON in head[:_OUR_HEAD] and _FORMAT in head[:_OUR_HEAD]:
        return "json"
    try:
        row = formats.of_head(formats.inflated(head))
    except PerfdoctorError:
        return None
    return "recording" if row and row.is_recording else None


def _stem(name: str) -> str:
    """`train` of `train.perfdoctor.html` and `train.pftrace.gz`."""
    return name.split(".", 1)[0]

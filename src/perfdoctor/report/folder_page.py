"""Which page lists the reports of a folder, and which one hands a trace to Perfetto?"""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct

from perfdoctor.report.html import Page, page
from perfdoctor.report.words import watched, wording
from perfdoctor.watching.document import WatchDocument

_STYLES = ("style.css", "charts.css", "folder.css")
_NS = 10**9
#: A page of a training that runs is asked for anew after so long: what it shows is written as often.
_RENEWS_S = 5
_WIDTH, _HEIGHT = 1000, 200


class ReportRow(Struct, frozen=True):
    """A report: `others` are labels and addresses of what lies beside it."""

    key: str
    path: str
    verdict: str
    step_ns: int | None
    gpus: Sequence[str]
    written_ns: int
    others: Sequence[tuple[str, str]] = ()

    @property
    def step(self) -> str:
        return "" if self.step_ns is None else wording.duration(self.step_ns)


def index(
    name: str,
    reports: Sequence[ReportRow],
    traces: Sequence[tuple[str, str, int]],
    unread: Sequence[tuple[str, str, int]],
    most: int | None = None,
    watches: Sequence[tuple[str, str, int]] = (),
) -> Page:
    """`traces`, `watches`: keys, paths, times in ns since 1970; `unread`: paths, commands, times. `most`: of so many
    files.
    """
    return page(
        "folder.html.j2",
        _STYLES,
        name=name,
        reports=reports,
        day=day,
        traces=[{"key": key, "path": path, "written": day(at_ns)} for key, path, at_ns in traces],
        unread=[{"path": path, "command": command, "changed": day(at_ns)} for path, command, at_ns in unread],
        watches=[{"key": key, "path": path, "written": day(at_ns)} for key, path, at_ns in watches],
        is_cut=most is not None,
        most=most,
    )


def perfetto(key: str, path: str, size: int, moments: Sequence[tuple[str, int, int]]) -> Page:
    """The page that hands a trace of `size` bytes to Perfetto. `moments`: findings with start and end in its ns."""
    shown = []
    for finding, start_ns, end_ns in moments:
        # Perfetto shows the moment in the middle third of its window.
        around = max(end_ns - start_ns, 1)
        query = f"visStart={max(start_ns - around, 0)}&visEnd={end_ns + around}"
        shown.append({"finding": finding, "query": query, "length": wording.duration(end_ns - start_ns)})
    words = {"key": key, "path": path, "size": wording.size(size), "moments": shown}
    return page("perfetto.html.j2", _STYLES, ("perfetto.js",), **words)


def watch(path: str, known: WatchDocument, now_ns: int) -> Page:
    """The page of a training under watch, which renews itself while the training runs."""
    first, *lines = watched.status(known, max(now_ns - known.unix_ns, 0))
    highest = max((point.median_ns for point in known.curve), default=0)
    last = known.curve[-1].step if known.curve else 0
    points = " ".join(
        f"{_WIDTH * point.step / last:.1f},{_HEIGHT * (1 - point.median_ns / highest):.1f}"
        for point in known.curve
        if highest and last
    )
    return page(
        "watched.html.j2", _STYLES, path=path, state=known.state, first=first, lines=[each.strip() for each in lines],
        points=points, highest=wording.duration(highest), steps=wording.count(last),
        renews_s=0 if known.state == "ended" else _RENEWS_S,
    )  # fmt: skip


def day(at_ns: int) -> str:
    """`2026-05-04 17:30`, by this machine's clock."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_ns / _NS))

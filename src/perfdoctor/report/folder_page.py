"""Which page lists the reports of a folder, and which one hands a trace to Perfetto?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from msgspec import Struct

from perfdoctor import __version__
from perfdoctor.report import part_colours
from perfdoctor.report.html import content_hash, environment, joined
from perfdoctor.report.words import wording

if TYPE_CHECKING:
    from collections.abc import Mapping

_STYLES = ("style.css", "charts.css", "folder.css")
_SCRIPTS = ("perfetto.js",)
_NS = 10**9


class Page(Struct, frozen=True):
    """A page, and which styles and scripts its Content-Security-Policy admits: their hashes, "" for none."""

    text: str
    style_hash: str
    script_hash: str = ""


class ReportRow(Struct, frozen=True):
    """A report: `others` are labels and addresses of what lies beside it."""

    key: str
    path: str
    verdict: str
    step_ns: int | None
    gpus: Sequence[str]
    written_ns: int
    others: Sequence[tuple[str, str]] = ()

    def words(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "path": self.path,
            "verdict": self.verdict,
            "step": "" if self.step_ns is None else wording.duration(self.step_ns),
            "gpus": ", ".join(dict.fromkeys(self.gpus)),
            "written": day(self.written_ns),
            "others": self.others,
        }


def index(
    name: str,
    reports: Sequence[ReportRow],
    traces: Sequence[tuple[str, str, int]],
    unread: Sequence[tuple[str, str, int]],
    most: int | None = None,
) -> Page:
    """`traces`: keys, paths, times in ns since 1970; `unread`: paths, commands, times. `most`: of so many files."""
    return _page(
        "folder.html.j2",
        name=name,
        reports=[row.words() for row in reports],
        traces=[{"key": key, "path": path, "written": day(at_ns)} for key, path, at_ns in traces],
        unread=[{"path": path, "command": command, "changed": day(at_ns)} for path, command, at_ns in unread],
        is_cut=most is not None,
        most=most,
    )


def perfetto(key: str, path: str, size: int, moments: Sequence[tuple[str, int, int]]) -> Page:
    """`moments`: findings with start and end in ns of the trace."""
    shown = [
        {"finding": finding, "query": _moment(start_ns, end_ns), "length": wording.duration(end_ns - start_ns)}
        for finding, start_ns, end_ns in moments
    ]
    return _page("perfetto.html.j2", scripts=_SCRIPTS, key=key, path=path, size=wording.size(size), moments=shown)


def _moment(start_ns: int, end_ns: int) -> str:
    """What Perfetto shows first: the moment in the middle third of the window."""
    around = max(end_ns - start_ns, 1)
    return f"visStart={max(start_ns - around, 0)}&visEnd={end_ns + around}"


def _page(template: str, scripts: Sequence[str] = (), **words: Any) -> Page:
    style, script = f"\n{part_colours.style_sheet()}{joined(_STYLES)}", joined(scripts) if scripts else ""
    known: Mapping[str, Any] = {
        "style": Markup(style),  # noqa: S704 a file of our own
        "script": Markup(script),  # noqa: S704
        "version": __version__,
    }
    text = environment().get_template(template).render(**known, **words)
    return Page(text, content_hash(style), content_hash(script) if script else "")


def day(at_ns: int) -> str:
    """`2026-05-04 17:30`, by this machine's clock."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_ns / _NS))

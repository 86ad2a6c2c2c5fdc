"""What does a person read of a comparison in the browser? One page: verdict, waterfall, and two timelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup
from msgspec import Struct

from perfdoctor.comparison.contributions import part_of
from perfdoctor.comparison.records import Comparison
from perfdoctor.records.views import TimelineView
from perfdoctor.report import embedded, html
from perfdoctor.report.comparison import json_report, words
from perfdoctor.report.words.wording import duration
from perfdoctor.vocabulary.parts import PARTS, REST

STYLES = ("style.css", "timeline.css", "compare.css")
SCRIPTS = (*(name for name in html.SCRIPTS if name not in ("csv.js", "tables.js", "start.js")), "compare.js")
#: Causes of the waterfall; further ones are one bar.
_BARS = 9
#: Two timelines, each of at most so many packed bytes, and the page's own files stay below 2 MB.
MOST_TIMELINE_BYTES = 800_000


class ComparisonBar(Struct, frozen=True):
    """One row: a bar from `start` on, `length` long, of a whole that `rest` completes; all in ns."""

    label: str
    part: str
    start: int
    length: int
    rest: int
    delta_ns: int
    times: str
    number: str
    is_whole: bool = False


def render(comparison: Comparison, timelines: Mapping[str, TimelineView], verdict: Sequence[str] = ()) -> str:
    """The whole page. `timelines`: of the first run of each side that was recorded, by `before` and `after`.

    `verdict`: a heading and paragraphs instead of the comparison's own.
    """
    return html.page(
        "compare.html.j2",
        STYLES,
        SCRIPTS,
        comparison=comparison,
        words=words,
        verdict=list(verdict) or [words.verdict(comparison)],
        bars=bars(comparison),
        sides=tuple(timelines),
        data=Markup(embedded.plain(json_report.render(comparison))),  # noqa: S704 escaped there
        packed=embedded.packed_timelines(timelines) if timelines else "",
        part_labels={name: part.labels(without_gpu=comparison.without_gpu)[0] for name, part in PARTS.items()},
    ).text


def cell(comparison: Comparison) -> str:
    """What a notebook shows: the verdict, the waterfall, and what became of the findings."""
    template = html.environment().get_template("comparison_cell.html.j2")
    return template.render(comparison=comparison, bars=bars(comparison), colours=html.COLOURS, words=words)


def bars(comparison: Comparison) -> list[ComparisonBar]:
    """Bars from the step before to the step after: each cause begins where the one above ended."""
    begin, end = round(comparison.step.before.mean_ns), round(comparison.step.after.mean_ns)
    changes = [
        (each.label, part_of(each.key), each.delta_ns, f"{duration(each.before_ns)} → {duration(each.after_ns)}")
        for each in comparison.causes[:_BARS]
    ]
    for label, was, now, delta in words.sums(comparison, _BARS):
        changes.append((label, "profiler" if label == words.recording(comparison) else REST, delta, f"{was} → {now}"))
    levels = [begin]
    for _, _, delta, _ in changes:
        levels.append(levels[-1] + delta)
    whole, least = max(levels), min(0, *levels)
    found = [_total("before", begin, whole, least)]
    for (label, part, delta, times), level in zip(changes, levels[:-1], strict=True):
        start = min(level, level + delta) - least
        length = abs(delta)
        found.append(
            ComparisonBar(label, part, start, length, whole - least - start - length, delta, times, words.delta(delta))
        )
    return [*found, _total("after", end, whole, least)]


def _total(label: str, ns: int, whole: int, least: int) -> ComparisonBar:
    return ComparisonBar(label, "", -least, ns, whole - ns, 0, "", duration(ns), is_whole=True)

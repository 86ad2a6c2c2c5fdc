"""What does a person read of a series over numbers of GPUs in the browser? One page, without a script."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from perfdoctor.comparison.scaling.records import ScalingResult
from perfdoctor.report import charts
from perfdoctor.report.comparison import words as comparison_words
from perfdoctor.report.html import page
from perfdoctor.report.scaling import words
from perfdoctor.report.words.wording import duration
from perfdoctor.views.series import throughput_chart
from perfdoctor.vocabulary.parts import PARTS

_STYLES = ("style.css", "charts.css", "compare.css")


class Piece(Struct, frozen=True):
    """A part of the step, as long as `ns`."""

    part: str
    label: str
    ns: int
    times: str


class ScalingBar(Struct, frozen=True):
    """A step by its parts; `left` completes it to the longest of all."""

    label: str
    number: str
    pieces: tuple[Piece, ...]
    left: int


def render(scaling: ScalingResult) -> str:
    picture = throughput_chart(scaling)
    return page(
        "scaling.html.j2",
        _STYLES,
        scaling=scaling,
        words=words,
        changes=comparison_words,
        bars=bars(scaling),
        keys={each.part: each.label for bar in bars(scaling) for each in bar.pieces},
        picture=charts.chart(picture) if picture else "",
    ).text


def bars(scaling: ScalingResult) -> list[ScalingBar]:
    """A bar for the step on each number of ranks, at one scale."""
    longest = max(round(each.step_ns) for each in scaling.rungs)
    labels = {part: row.labels(without_gpu=scaling.without_gpu)[0] for part, row in PARTS.items()}
    found = []
    for at, rung in enumerate(scaling.rungs):
        times: defaultdict[str, float] = defaultdict(float)
        for each in scaling.growth:
            times[each.part] += each.times_ns[at]
        pieces = tuple(
            Piece(part, labels[part], round(times[part]), duration(round(times[part])))
            for part in PARTS
            if times[part] >= 1
        )
        left = max(longest - sum(each.ns for each in pieces), 0)
        found.append(ScalingBar(words.on(scaling, rung.ranks), duration(rung.step_ns), pieces, left))
    return found

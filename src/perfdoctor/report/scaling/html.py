"""What does a person read of a series over numbers of GPUs in the browser? One page, without a script."""

from __future__ import annotations

from markupsafe import Markup
from msgspec import Struct

from perfdoctor import __version__
from perfdoctor.comparison.scaling.records import ScalingResult
from perfdoctor.report import charts, part_colours
from perfdoctor.report.comparison import words as comparison_words
from perfdoctor.report.html import content_hash, environment, joined
from perfdoctor.report.scaling import words
from perfdoctor.report.words.wording import duration
from perfdoctor.views.scaling import throughput_chart
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
    style = f"\n{part_colours.style_sheet()}{joined(_STYLES)}"
    picture = throughput_chart(scaling)
    page: str = environment().get_template("scaling.html.j2").render(
        scaling=scaling,
        words=words,
        changes=comparison_words,
        bars=bars(scaling),
        keys={each.part: each.label for bar in bars(scaling) for each in bar.pieces},
        picture=charts.chart(picture) if picture else "",
        style=Markup(style),  # noqa: S704 files of our own
        style_hash=content_hash(style),
        version=__version__,
    )  # fmt: skip
    return page


def bars(scaling: ScalingResult) -> list[ScalingBar]:
    """One step each, at one scale."""
    longest = max(round(each.step_ns) for each in scaling.rungs)
    found = []
    for at, rung in enumerate(scaling.rungs):
        times: dict[str, float] = {}
        for each in scaling.growth:
            times[each.part] = times.get(each.part, 0.0) + each.times_ns[at]
        pieces = tuple(
            Piece(part, _label(part, scaling), round(times[part]), duration(round(times[part])))
            for part in PARTS
            if times.get(part, 0.0) >= 1
        )
        left = max(longest - sum(each.ns for each in pieces), 0)
        found.append(ScalingBar(words.on(scaling, rung.ranks), duration(rung.step_ns), pieces, left))
    return found


def _label(part: str, scaling: ScalingResult) -> str:
    return PARTS[part].labels(without_gpu=scaling.without_gpu)[0]

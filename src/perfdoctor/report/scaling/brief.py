"""A series over numbers of GPUs to be pasted into an issue or a chat, in less than 60 lines of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfdoctor.report.brief import block, wrapped
from perfdoctor.report.scaling import words
from perfdoctor.report.words.foreign_text import clean
from perfdoctor.report.words.wording import duration

if TYPE_CHECKING:
    from perfdoctor.comparison.scaling.records import ScalingResult

_MOST_FINDINGS = 5


def render(scaling: ScalingResult) -> str:
    said = (words.verdict(scaling), words.most_lost(scaling), words.kind(scaling))
    rungs = [
        f"  {words.on(scaling, each.ranks)}: {duration(each.step_ns)} a {words.noun(scaling)}, "
        f"{words.throughput(scaling, each.throughput)}, {words.speedup(each)}, efficiency {words.efficiency(each)}"
        for each in scaling.rungs
    ]
    lists = (
        (words.serial_heading(scaling), list(words.serial(scaling))),
        (words.prediction_heading(scaling), [words.ahead(scaling, each) for each in scaling.ahead]),
        (words.findings_heading(scaling), words.findings(scaling)[:_MOST_FINDINGS]),
    )
    lines = [*(line for each in said if each for line in wrapped(clean(each))), "", *rungs]
    for heading, sentences in lists:
        if sentences:
            lines += ["", *wrapped(heading), *(line for each in sentences for line in wrapped(each, "  ", "    ", 2))]
    return block(lines)

"""What does one paste of a series over numbers of GPUs? Short GitHub Markdown, or a block of plain text."""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.comparison.scaling.records import ScalingResult
from perfdoctor.report.brief import block, wrapped
from perfdoctor.report.comparison.markdown import SHOWN, listed, work_rows
from perfdoctor.report.comparison.words import delta, rest_of_causes
from perfdoctor.report.markdown import escaped, joined, table
from perfdoctor.report.scaling import words
from perfdoctor.report.words.foreign_text import clean, clean_note
from perfdoctor.report.words.wording import duration

_MOST_FINDINGS = 5


def render(scaling: ScalingResult) -> str:
    sections = (
        listed(words.settings_heading(scaling), (words.setting(scaling, each) for each in scaling.settings)),
        [f"**{escaped(words.verdict(scaling))}**"],
        [escaped(each) for each in (words.most_lost(scaling), words.kind(scaling), words.counted(scaling)) if each],
        table(
            (f"{words.unit(scaling)}s", words.noun(scaling), "throughput", "speed-up", "efficiency"),
            (True, True, True, True, False),
            (words.rung(scaling, each) for each in scaling.rungs),
        ),
        _growth(scaling),
        [escaped(words.fitted(scaling))],
        listed(words.serial_heading(scaling), words.serial(scaling)),
        listed(
            words.prediction_heading(scaling),
            [
                *(words.checked(scaling, each) for each in scaling.checked),
                *(words.ahead(scaling, each) for each in scaling.ahead),
                *words.assumed(scaling),
            ],
        ),
        [f"### {escaped(words.work_heading(scaling))}"] if scaling.work else [],
        work_rows(scaling),
        listed(words.findings_heading(scaling), words.findings(scaling)),
        listed("Notes", map(clean_note, scaling.notes)),
    )
    return joined(sections)


def _growth(scaling: ScalingResult) -> Iterator[str]:
    heads = " | ".join(words.on(scaling, each.ranks) for each in scaling.rungs)
    yield f"| cause | {heads} | each doubling |"
    yield f"| --- |{' --: |' * (len(scaling.rungs) + 1)}"
    shown, hidden = scaling.growth[:SHOWN], scaling.growth[SHOWN:]
    for label, each in (*((escaped(one.label), one) for one in shown), ("**together**", scaling.whole)):
        if label == "**together**" and hidden:
            rest = sum(one.per_doubling_ns for one in hidden)
            yield f"| {rest_of_causes(len(hidden))} |{' |' * len(scaling.rungs)} {delta(rest)} |"
        times = " | ".join(words.time(ns) for ns in each.times_ns)
        yield f"| {label} | {times} | {words.per_doubling(each)} |"


def brief(scaling: ScalingResult) -> str:
    """The series in less than 60 lines of plain text."""
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

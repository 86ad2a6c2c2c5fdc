"""What changed between two runs, and is it more than noise?"""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.assistant.arguments import Compare
from perfdoctor.assistant.bounded import Answer, name
from perfdoctor.assistant.desk import Desk
from perfdoctor.comparison.compare import compare
from perfdoctor.comparison.records import Comparison, Snapshot
from perfdoctor.comparison.snapshot import of_document, of_examination
from perfdoctor.report.check import words as check_words
from perfdoctor.report.comparison import json_report, words
from perfdoctor.report.json_document import document
from perfdoctor.report.words.foreign_text import clean
from perfdoctor.report.words.wording import duration

_KEPT = (
    "before", "after", "verdict", "not_comparable", "settings", "step", "item", "before_ns", "after_ns",
    "difference_ns", "recording_ns", "causes", "work", "work_rest", "findings", "predictions", "memory", "gpu_metrics",
    "notes",
)  # fmt: skip
#: In the text: causes, findings and settings.
_MOST_SAID = 5


def answer(asked: Compare, desk: Desk) -> Answer:
    before, after = (snapshots(side, desk) for side in (asked.before, asked.after))
    comparison = compare(before, after)
    whole = json_report.document(comparison)
    said = [words.verdict(comparison), words.per_item(comparison), *differences(comparison)]
    return Answer(
        "\n".join(filter(None, said)), {"sentence": words.verdict(comparison), **{key: whole[key] for key in _KEPT}}
    )


def differences(comparison: Comparison) -> Iterator[str]:
    """What else was changed, what the difference comes from, and what became of the findings, a line each."""
    settings = [words.setting(each) for each in comparison.settings]
    causes = [
        f"{each.label} {duration(each.before_ns)} → {duration(each.after_ns)} ({words.delta(each.delta_ns)})"
        for each in comparison.causes
    ]
    findings = [check_words.finding(each) for each in comparison.findings]
    for heading, listed in (("Settings", settings), ("Causes", causes), ("Findings", findings)):
        if listed:
            of = "" if len(listed) <= _MOST_SAID else f", {_MOST_SAID} of {len(listed)}"
            yield f"{heading}{of}: {'; '.join(map(clean, listed[:_MOST_SAID]))}."


def snapshots(side: str | list[str], desk: Desk) -> list[Snapshot]:
    return [_snapshot(text, desk) for text in ([side] if isinstance(side, str) else side)]


def _snapshot(text: str, desk: Desk) -> Snapshot:
    here = [desk.root.recording(text)] if desk.root.address(text) is None else []
    if here and (written := document(name(text), here[0])) is not None:
        return of_document(name(text), written, desk.known)
    return of_examination(name(text), desk.examined(text), desk.known, here)

"""What changed between two runs, and is it more than noise?"""

from __future__ import annotations

from typing import Any

from perfdoctor.assistant.arguments import Compare
from perfdoctor.assistant.bounded import Answer, name
from perfdoctor.assistant.desk import Desk
from perfdoctor.comparison.compare import compare
from perfdoctor.comparison.records import Snapshot
from perfdoctor.comparison.snapshot import of_document, of_examination
from perfdoctor.report.comparison import json_report, words
from perfdoctor.report.json_document import document

_KEPT = (
    "before", "after", "verdict", "not_comparable", "settings", "step", "item", "before_ns", "after_ns",
    "difference_ns", "recording_ns", "causes", "work", "work_rest", "findings", "predictions", "memory", "gpu_metrics",
    "notes",
)  # fmt: skip
_MOST = 12


def answer(asked: Compare, desk: Desk) -> Answer:
    sides = ([side] if isinstance(side, str) else side for side in (asked.before, asked.after))
    before, after = ([_snapshot(text, desk) for text in side] for side in sides)
    comparison = compare(before, after)
    whole = json_report.document(comparison)
    said = [each for each in (words.verdict(comparison), words.per_item(comparison)) if each]
    return Answer("\n".join(said), {"sentence": words.verdict(comparison), **_shortened(whole)})


def _snapshot(text: str, desk: Desk) -> Snapshot:
    here = [desk.root.recording(text)] if desk.root.address(text) is None else []
    if here and (written := document(name(text), here[0])) is not None:
        return of_document(name(text), written, desk.known)
    return of_examination(name(text), desk.examined(text), desk.known, here)


def _shortened(whole: dict[str, Any]) -> dict[str, Any]:
    """The comparison with its lists cut short, each with its whole length."""
    found: dict[str, Any] = {}
    for key in _KEPT:
        value = whole[key]
        if isinstance(value, list) and len(value) > _MOST:
            found[f"{key}_count"] = len(value)
            value = value[:_MOST]
        found[key] = value
    return found

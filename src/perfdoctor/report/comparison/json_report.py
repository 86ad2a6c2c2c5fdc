"""A comparison as JSON, in the shape of docs/json.md. Keys are added, never renamed."""

from __future__ import annotations

from typing import Any

import msgspec

from perfdoctor import __version__
from perfdoctor.comparison.records import Comparison, FindingChange, StepChange
from perfdoctor.comparison.statistics import CONFIDENCE
from perfdoctor.report.json_report import FORMAT, plain


def render(comparison: Comparison) -> str:
    return as_text(document(comparison))


def as_text(value: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(plain(value)), indent=2).decode() + "\n"


def document(comparison: Comparison) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "perfdoctor": __version__,
        "kind": "comparison",
        "before": list(comparison.before),
        "after": list(comparison.after),
        "verdict": comparison.judged.verdict,
        "settings": [_fields(each) for each in comparison.settings],
        "unknown_settings": list(comparison.unknown_settings),
        "step": _step(comparison.step),
        "item": _step(comparison.item) if comparison.item else None,
        "before_ns": comparison.before_ns,
        "after_ns": comparison.after_ns,
        "difference_ns": comparison.difference_ns,
        "recording_ns": comparison.recording_ns,
        "causes": [_fields(each) for each in comparison.causes],
        "work": [_fields(each) for each in comparison.work],
        "work_rest": {"delta_ns": comparison.work_rest_ns, "count": comparison.work_rest_count},
        "findings": [finding(each) for each in comparison.findings],
        "predictions": [_fields(each) for each in comparison.promises],
        "lines": [_fields(each) for each in comparison.lines],
        "memory": [_fields(each) for each in comparison.memory],
        "common_share": comparison.common_share,
        "items_per_step": {"before": comparison.items_before, "after": comparison.items_after},
        "notes": list(comparison.notes),
    }


def finding(change: FindingChange) -> dict[str, Any]:
    """`origin` is there where a rule does not come with perfdoctor."""
    return {name: value for name, value in _fields(change).items() if name != "origin" or value}


def _step(step: StepChange) -> dict[str, Any]:
    return {
        **_fields(step),
        "before": _fields(step.before),
        "after": _fields(step.after),
        "confidence": CONFIDENCE,
    }


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}

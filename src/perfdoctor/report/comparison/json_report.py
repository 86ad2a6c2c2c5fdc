"""Comparisons, series and checks as JSON, in the shape of docs/json.md. Keys are added, never renamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from perfdoctor import __version__
from perfdoctor.comparison.records import Comparison, FindingChange, StepChange
from perfdoctor.comparison.statistics import CONFIDENCE
from perfdoctor.records.document import FORMAT
from perfdoctor.report.json_report import as_text

if TYPE_CHECKING:
    from perfdoctor.comparison.check import Check
    from perfdoctor.comparison.scaling.records import ScalingResult


def render(comparison: Comparison) -> str:
    return as_text(document(comparison))


def render_scaling(scaling: ScalingResult) -> str:
    """A series over numbers of GPUs."""
    return as_text(
        {
            "format": FORMAT,
            "perfdoctor": __version__,
            "kind": "scaling",
            "scaling": scaling.kind or None,
            "scaling_from": scaling.kind_from or None,
            "throughput_counts": scaling.counted,
            "confidence": CONFIDENCE,
            "settings": [
                {
                    "name": each.name,
                    "matters": each.matters,
                    "values": [{"value": value, "ranks": ranks} for value, ranks in each.values],
                }
                for each in scaling.settings
            ],
            "rungs": scaling.rungs,
            "step_growth": scaling.whole,
            "growth": scaling.growth,
            "serial": scaling.serial,
            "checked": scaling.checked,
            "predicted": scaling.ahead,
            "not_replayed": scaling.unpredicted or None,
            "work": scaling.work,
            "work_rest": {"delta_ns": scaling.work_rest_ns, "count": scaling.work_rest_count},
            "new_findings": [finding(each) for each in scaling.findings],
            "notes": scaling.notes,
        }
    )


def render_check(check: Check) -> str:
    """A check, with its comparison."""
    return as_text(
        {
            "format": FORMAT,
            "perfdoctor": __version__,
            "kind": "check",
            "decision": check.decision,
            "failed": check.failed,
            "limit": check.limit,
            "runs_needed": check.runs_needed,
            "baseline": {"name": check.baseline, "runs": check.baseline_runs},
            "comparison": document(check.comparison),
        }
    )


def document(comparison: Comparison) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "perfdoctor": __version__,
        "kind": "comparison",
        "before": comparison.before,
        "after": comparison.after,
        "verdict": comparison.verdict,
        "not_comparable": comparison.not_comparable,
        "settings": comparison.settings,
        "unknown_settings": comparison.unknown_settings,
        "step": _step(comparison.step) if comparison.peaks is None else None,
        "item": _step(comparison.item) if comparison.item else None,
        "before_ns": comparison.before_ns,
        "after_ns": comparison.after_ns,
        "difference_ns": comparison.difference_ns,
        "recording_ns": comparison.recording_ns,
        "causes": comparison.causes,
        "work": comparison.work,
        "work_rest": {"delta_ns": comparison.work_rest_ns, "count": comparison.work_rest_count},
        "findings": [finding(each) for each in comparison.findings],
        "predictions": comparison.promises,
        "lines": comparison.lines,
        "memory": comparison.memory,
        "gpu_metrics": comparison.counters,
        "peaks": comparison.peaks,
        "common_share": comparison.common_share,
        "items_per_step": {"before": comparison.items_before, "after": comparison.items_after},
        "notes": comparison.notes,
    }


def finding(change: FindingChange) -> dict[str, Any]:
    """A finding that changed; `origin` is there where a rule does not come with perfdoctor."""
    return {name: value for name, value in asdict(change).items() if name != "origin" or value}


def _step(step: StepChange) -> dict[str, Any]:
    return {**asdict(step), "confidence": CONFIDENCE}

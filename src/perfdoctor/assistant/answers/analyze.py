"""What is wrong with this recording, in one answer that leads to the others?"""

from __future__ import annotations

from typing import Any

from perfdoctor.assistant.arguments import Analyze
from perfdoctor.assistant.bounded import Answer, name
from perfdoctor.assistant.desk import Desk
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice
from perfdoctor.records.savings import CASES
from perfdoctor.report.words import outlook, skipped_rules, wording
from perfdoctor.report.words.parts import all_parts

_MOST_DEVICES, _MOST_FINDINGS, _MOST_NOTES, _MOST_SOURCES, _MOST_LACKS = 8, 10, 6, 8, 6
_OF_DEVICE = (
    "rank", "device", "window_start_ns", "window_ns", "step_ns", "compute_ns", "exposed_communication_ns",
    "exposed_copy_ns", "idle_ns", "kernel_count",
)  # fmt: skip
#: Of the GPU's own counters those that say what limits kernels.
_METRICS, _MOST_METRICS = ("sm_active", "tensor_active", "dram_active", "dram_read", "dram_write"), 16
_OF_STEPS = ("count", "used", "median_ns", "p10_ns", "p90_ns", "found_by", "confidence")


def answer(asked: Analyze, desk: Desk) -> Answer:
    diagnosis = desk.diagnosed(asked)
    shown = diagnosis.findings[:_MOST_FINDINGS]
    lines = [
        wording.verdict(diagnosis),
        *(f"{advice.rank}. {advice.rule}: {wording.saving(diagnosis, advice)}" for advice in shown),
        outlook.together(diagnosis),
    ]
    return Answer("\n".join(filter(None, lines)), {**_what(diagnosis), **_found(diagnosis, shown)})


def _what(diagnosis: Diagnosis) -> dict[str, Any]:
    """Fields that say what was recorded, and where its time went."""
    return {
        "verdict": wording.verdict(diagnosis),
        "recorded": list(wording.recorded(diagnosis)),
        "per": diagnosis.basis.noun or "recording",
        "step_ns": diagnosis.base_ns,
        "recorded_step_ns": diagnosis.recorded_ns,
        "world_size": diagnosis.world_size,
        "steps": {field: getattr(diagnosis.steps, field) for field in _OF_STEPS},
        "parts": [
            {"part": part.key, "label": part.label, "ns": round(part.shown_ns), "share": part.share}
            for part in all_parts(diagnosis)
        ],
        "devices": [{field: getattr(split, field) for field in _OF_DEVICE} for split in diagnosis.time[:_MOST_DEVICES]],
        "device_count": len(diagnosis.time),
        "gpus": [{"rank": each.rank, "name": name(each.name)} for each in diagnosis.gpus[:_MOST_DEVICES]],
        "sources": [{"kind": each.kind, "file": name(each.file)} for each in diagnosis.sources[:_MOST_SOURCES]],
    }


def _found(diagnosis: Diagnosis, shown: tuple[Advice, ...]) -> dict[str, Any]:
    """Fields with the first findings, and with what could not be checked."""
    return {
        "findings": [finding(advice) for advice in shown],
        "finding_count": len(diagnosis.findings),
        "prediction": prediction(diagnosis),
        "critical_path": dict(diagnosis.critical_path.share) if diagnosis.critical_path else None,
        "mfu": diagnosis.efficiency.mfu if diagnosis.efficiency else None,
        "not_checked": _not_checked(diagnosis),
        "gpu_metrics": [
            {"rank": row.rank, "device": row.device, "metric": row.metric, "percent_in_kernels": row.mean_in_kernels}
            for row in diagnosis.gpu_metrics
            if row.metric in _METRICS and row.mean_in_kernels is not None
        ][:_MOST_METRICS],
        "notes": list(diagnosis.notes[:_MOST_NOTES]),
        "note_count": len(diagnosis.notes),
    }


def finding(advice: Advice) -> dict[str, Any]:
    """The finding in a few fields; the tool `findings` gives all of them."""
    likely = advice.saving_ns_per_step
    return {
        "rank": advice.rank,
        "rule": advice.rule,
        "title": advice.title,
        "category": advice.category,
        "confidence": advice.confidence,
        "saving_ns": {"low": likely.low, "likely": likely.likely, "high": likely.high},
        "speedup": advice.speedup[1],
        "symptoms": [symptom.rule for symptom in advice.symptoms],
        **({"origin": name(advice.origin)} if advice.origin else {}),
    }


def prediction(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """The step with the fixes that were taken together."""
    found = diagnosis.prediction
    if found is None:
        return None
    return {
        "fixed": [*found.fixed],
        "now_ns": found.now_ns,
        "recorded_ns": found.recorded_ns,
        "step_ns": dict(zip(CASES, found.step_ns, strict=True)),
        "speedup": dict(zip(CASES, found.speedup, strict=True)),
        "samples": found.samples,
        "stages": [{"rule": each.rule, "choice": each.choice, "step_ns": each.step_ns} for each in found.steps],
        "replay_error": found.replay_error,
    }


def _not_checked(diagnosis: Diagnosis) -> dict[str, Any]:
    groups = skipped_rules.not_checked(diagnosis)
    return {
        "count": sum(len(rules) for _, rules, _ in groups),
        "of": len(diagnosis.outcomes),
        "lacks": [
            {"missing": missing, "rules": len(rules), "record": hint} for missing, rules, hint in groups[:_MOST_LACKS]
        ],
    }

"""What is wrong with this recording, in one answer that leads to the others?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfdoctor.assistant.arguments import Analyze
from perfdoctor.assistant.bounded import Answer, name
from perfdoctor.assistant.desk import Desk
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice
from perfdoctor.records.savings import CASES
from perfdoctor.report.words import outlook, skipped_rules, wording
from perfdoctor.report.words.parts import all_parts, place_names, shown_places, split_base_ns

#: In the text, whose lines are read one after the other.
_MOST_FINDINGS, _MOST_DEVICES = 10, 4
_OF_DEVICE = (
    "rank", "device", "window_start_ns", "window_ns", "step_ns", "compute_ns", "exposed_communication_ns",
    "exposed_copy_ns", "idle_ns", "kernel_count",
)  # fmt: skip
#: Of the GPU's own counters those that say what limits kernels.
_METRICS = ("sm_active", "tensor_active", "dram_active", "dram_read", "dram_write")
_OF_STEPS = ("count", "used", "median_ns", "p10_ns", "p90_ns", "found_by", "confidence")


def answer(asked: Analyze, desk: Desk) -> Answer:
    diagnosis = desk.diagnosed(asked)
    return Answer("\n".join(filter(None, _said(diagnosis))), {**_what(diagnosis), **_found(diagnosis)})


def _said(diagnosis: Diagnosis) -> Iterator[str]:
    """The lines of the report: the verdict, what was recorded, the step, findings as they are numbered there."""
    yield wording.verdict(diagnosis)
    yield " · ".join(wording.recorded(diagnosis))
    shown = diagnosis.findings[:_MOST_FINDINGS]
    if len(shown) < len(diagnosis.findings):
        yield f"{len(shown)} of {len(diagnosis.findings)} findings are named here; findings has all, with cursor."
    for position, advice in enumerate(shown, 1):
        yield f"{position}. {advice.rule}: {wording.saving(diagnosis, advice)}"
    yield outlook.together(diagnosis)
    if parts := all_parts(diagnosis):
        listed = (f"{each.label} {wording.duration(each.shown_ns)} ({wording.share(each.share)})" for each in parts)
        yield f"{wording.bar_heading(diagnosis)}: {', '.join(listed)}."
    if len(diagnosis.time) > 1:
        yield _ranks(diagnosis)
    if path := outlook.critical_path(diagnosis):
        yield f"Critical path: {path}."
    groups = skipped_rules.not_checked(diagnosis)
    if skipped := sum(len(rules) for _, rules, _ in groups):
        rules = wording.counted(len(diagnosis.outcomes), "rule")
        yield f"Not checked: {skipped} of {rules}; run_next says what to record."
    if diagnosis.notes:
        yield f"{wording.counted(len(diagnosis.notes), 'note')}: {' '.join(map(name, diagnosis.notes[:2]))}"


def _ranks(diagnosis: Diagnosis) -> str:
    names = place_names(diagnosis.time)
    places = shown_places(diagnosis.time, _MOST_DEVICES)
    said = (
        f"{names[each.rank, each.device]}{f' ({remark})' if remark else ''} {wording.duration(split_base_ns(each))}, "
        f"computing {wording.share_of(each.compute_ns, each.window_ns)}"
        for each, remark in places
    )
    which = "" if len(places) == len(diagnosis.time) else f", {len(places)} of {len(diagnosis.time)}"
    return f"Ranks{which}: {'; '.join(said)}."


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
        "devices": [{field: getattr(split, field) for field in _OF_DEVICE} for split in diagnosis.time],
        "device_count": len(diagnosis.time),
        "gpus": [{"rank": each.rank, "name": name(each.name)} for each in diagnosis.gpus],
        "sources": [{"kind": each.kind, "file": name(each.file)} for each in diagnosis.sources],
    }


def _found(diagnosis: Diagnosis) -> dict[str, Any]:
    """Fields with the findings, and with what could not be checked."""
    return {
        "findings": [finding(advice, position) for position, advice in enumerate(diagnosis.findings, 1)],
        "finding_count": len(diagnosis.findings),
        "prediction": prediction(diagnosis),
        "critical_path": dict(diagnosis.critical_path.share) if diagnosis.critical_path else None,
        "mfu": diagnosis.efficiency.mfu if diagnosis.efficiency else None,
        "not_checked": _not_checked(diagnosis),
        "gpu_metrics": [
            {"rank": row.rank, "device": row.device, "metric": row.metric, "percent_in_kernels": row.mean_in_kernels}
            for row in diagnosis.gpu_metrics
            if row.metric in _METRICS and row.mean_in_kernels is not None
        ],
        "notes": list(diagnosis.notes),
    }


def finding(advice: Advice, position: int | None) -> dict[str, Any]:
    """The finding in a few fields; the tool `findings` gives all of them.

    `position`: its number in the report; None of a symptom, which stands below another finding there.
    """
    likely = advice.saving_ns_per_step
    return {
        "position": position,
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
        "lacks": [{"missing": missing, "rules": len(rules), "record": hint} for missing, rules, hint in groups],
    }

"""What does a script read? The diagnosis as JSON, format 1: keys are added, never renamed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perfdoctor import __version__
from perfdoctor.patterns import regex
from perfdoctor.records.cost import HOURS_A_MONTH, Cost
from perfdoctor.records.derivations import Derivation
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice, Evidence, Measure, Outcome, Rows
from perfdoctor.records.memory import MemoryUse
from perfdoctor.records.modules import ModuleCost
from perfdoctor.records.predictions import CriticalPath, Prediction, Scaling
from perfdoctor.records.real_time import RealTime
from perfdoctor.records.savings import CASES
from perfdoctor.records.time_split import JobTime, TimeSplit
from perfdoctor.records.work_done import Efficiency
from perfdoctor.vocabulary.kinds import KERNEL_FAMILIES, MATH_PATHS, OP_PHASES
from perfdoctor.vocabulary.parts import IDLE_CAUSES

FORMAT = 1
#: A model of a hundred layers has some two thousand modules, of half a kilobyte each; the page's table has them all.
MOST_MODULES = 200
_SURROGATES = regex("[\ud800-\udfff]")


def render(diagnosis: Diagnosis) -> str:
    document = plain(_document(diagnosis))
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "perfdoctor": __version__,
        "run": {
            "sources": [_fields(source) for source in diagnosis.sources],
            "gpus": [_fields(gpu) for gpu in diagnosis.gpus],
            "world_size": diagnosis.world_size,
            "steps": {**_fields(diagnosis.steps), **_real_time(diagnosis.real_time)},
            "items_per_step": diagnosis.items_per_step,
            "contended_share": diagnosis.contended_share,
            "processes": [_fields(process) for process in diagnosis.processes],
            "work": {
                "kind": diagnosis.kind_of_work,
                "server": diagnosis.server,
                "framework": diagnosis.framework,
            },
            "basis": _fields(diagnosis.basis),
            "gpu_not_recorded": diagnosis.gpu_not_recorded,
        },
        "base_ns": diagnosis.base_ns,
        **_job(diagnosis.job),
        "time": [_time(split) for split in _shown(diagnosis)],
        "recording": [_time(split) for split in diagnosis.recording],
        "outcomes": [_outcome(outcome) for outcome in diagnosis.outcomes],
        "findings": [
            _finding(rank, advice, cause) for rank, (advice, cause) in enumerate(_flat(diagnosis.findings), start=1)
        ],
        "prediction": _prediction(diagnosis.prediction),
        "critical_path": _critical_path(diagnosis.critical_path),
        "efficiency": _efficiency(diagnosis.efficiency),
        "roofline": _roofline(diagnosis.efficiency),
        "memory": [_memory(use) for use in diagnosis.memory],
        "kernels": [_fields(kernel) for kernel in diagnosis.kernels],
        **_modules(diagnosis.modules),
        "cost": _cost(diagnosis.cost),
        "contenders": [advice.rule for advice in diagnosis.contenders],
        "notes": list(diagnosis.notes),
    }


def _real_time(real_time: RealTime | None) -> dict[str, Any]:
    """What is known of steps that nobody recorded; null where nothing is."""
    if real_time is None:
        return {"unrecorded_ns": None, "stretch": None, "stretch_by_part": None, "real_time": None}
    return {
        "unrecorded_ns": real_time.measured_ns,
        "stretch": real_time.stretch,
        "stretch_by_part": dict(real_time.stretch_by_part),
        "real_time": {name: value for name, value in _fields(real_time).items() if name != "stretch_by_part"},
    }


def _job(job: JobTime | None) -> dict[str, Any]:
    """Of a job that was not read in full: else each rank has its row of `time`."""
    return {} if job is None else {"job": {"mean": _fields(job.mean), "nodes": [_fields(node) for node in job.nodes]}}


def _shown(diagnosis: Diagnosis) -> Sequence[TimeSplit]:
    """Of ten thousand ranks those that were read in full."""
    if diagnosis.job is None:
        return diagnosis.time
    in_full = {(split.rank, split.device) for split in diagnosis.recording}
    return [split for split in diagnosis.time if (split.rank, split.device) in in_full]


def _memory(use: MemoryUse) -> dict[str, Any]:
    return {**_fields(use), "holders": [_fields(holder) for holder in use.holders]}


def _modules(costs: Sequence[ModuleCost]) -> dict[str, Any]:
    """The costliest by themselves, and what is outside of modules; the others as one sum."""
    named, outside = [cost for cost in costs if cost.path], [cost for cost in costs if not cost.path]
    left_out = named[MOST_MODULES:]
    return {
        "modules": [_module(cost) for cost in (*named[:MOST_MODULES], *outside)],
        "modules_left_out": {"count": len(left_out), "own_ns": math.fsum(cost.own_ns for cost in left_out)},
    }


def _module(module: ModuleCost) -> dict[str, Any]:
    return {**_fields(module), "own_ns": module.own_ns, "ns": module.ns}


def _time(split: TimeSplit) -> dict[str, Any]:
    def complete(names: Iterable[str], given: Mapping[str, int]) -> dict[str, int]:
        return {**dict.fromkeys(names, 0), **given}

    return {
        **_fields(split),
        "idle_causes_ns": complete(IDLE_CAUSES, split.idle_causes_ns),
        "compute_by_family_ns": complete(KERNEL_FAMILIES, split.compute_by_family_ns),
        "matmul_ns_by_math_path": complete(MATH_PATHS, split.matmul_ns_by_math_path),
        "compute_by_phase_ns": complete(OP_PHASES, split.compute_by_phase_ns),
    }


def _flat(findings: Sequence[Advice], cause: str | None = None) -> Iterator[tuple[Advice, str | None]]:
    """Each finding with the rule that causes it (None for a cause): causes before their symptoms."""
    for advice in findings:
        yield advice, cause
        yield from _flat(advice.symptoms, advice.rule)


def _finding(rank: int, advice: Advice, cause: str | None) -> dict[str, Any]:
    return {
        "rank": rank,
        "rule": advice.rule,
        **({"origin": advice.origin} if advice.origin else {}),
        "title": advice.title,
        "summary": advice.summary,
        "category": advice.category,
        "confidence": advice.confidence,
        "confidence_because": advice.confidence_because,
        "saving_ns_per_step": _fields(advice.saving_ns_per_step),
        "speedup": _range(advice.speedup),
        "symptoms": [symptom.rule for symptom in advice.symptoms],
        "symptom_of": cause,
        "is_verdict": advice.is_verdict,
        "derivation": _derivation(advice.derivation),
        "values": dict(advice.values),
        "evidence": [_evidence(evidence) for evidence in advice.evidence],
        "lines": [_fields(line) for line in advice.lines],
        "fixes": [_fields(fix) for fix in advice.fixes],
        "why": advice.why,
        "not_a_problem_when": advice.not_a_problem_when,
        "references": list(advice.references),
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    """`origin` is there where a rule does not come with perfdoctor."""
    return {name: value for name, value in _fields(outcome).items() if name != "origin" or value}


def _derivation(derivation: Derivation | None) -> dict[str, Any] | None:
    if derivation is None:
        return None
    return {
        **_fields(derivation),
        "inputs": [_fields(each) for each in derivation.inputs],
        "expected": _fields(derivation.expected),
        "bounds": [{"by": bound.by, "left": _fields(bound.left)} for bound in derivation.bounds],
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    kind = "measure" if isinstance(evidence, Measure) else "rows" if isinstance(evidence, Rows) else "span"
    return {"type": kind, **_fields(evidence)}


def _critical_path(path: CriticalPath | None) -> dict[str, Any] | None:
    if path is None:
        return None
    return {"step_ns": path.step_ns, "share": dict(path.share), "pieces": [_fields(piece) for piece in path.pieces]}


def _prediction(prediction: Prediction | None) -> dict[str, Any] | None:
    if prediction is None:
        return None
    return {
        "fixed": list(prediction.fixed),
        "step_ns": _range(prediction.step_ns),
        "speedup": _range(prediction.speedup),
        "recorded_step_ns": prediction.recorded_ns,
        "unrecorded_step_ns": prediction.unrecorded_ns,
        "steps": [_fields(step) for step in prediction.steps],
        "replay_error": prediction.replay_error,
        "asked": prediction.asked,
        "samples": prediction.samples,
        "scaling": _scaling(prediction.scaling),
    }


def _scaling(scaling: Scaling | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    return {
        "recorded_ranks": scaling.recorded or None,
        "asked_ranks": scaling.asked,
        "efficiency": _range(scaling.efficiency),
    }


def _efficiency(efficiency: Efficiency | None) -> dict[str, Any] | None:
    """See `work_done.Efficiency`."""
    if efficiency is None:
        return None
    return {name: value for name, value in _fields(efficiency).items() if name != "roofline"}


def _roofline(efficiency: Efficiency | None) -> dict[str, Any] | None:
    """See `work_done.Roofline`."""
    if efficiency is None or efficiency.roofline is None:
        return None
    roofline = efficiency.roofline
    return {
        **_fields(roofline),
        "ceilings": [_fields(ceiling) for ceiling in roofline.ceilings],
        "rows": [_fields(row) for row in roofline.rows],
    }


def _cost(cost: Cost | None) -> dict[str, Any] | None:
    """See `cost.Cost`."""
    if cost is None:
        return None
    saved = cost.saved_per_month
    return {
        **_fields(cost),
        "price": _fields(cost.price),
        "hours_a_month": HOURS_A_MONTH,
        "saved_per_month": None if saved is None else _range(saved),
        "findings": [{"rule": each.rule, "saved_per_month": _range(each.per_month)} for each in cost.findings],
    }


def _range(low_likely_high: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(CASES, low_likely_high, strict=True))


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def plain(value: Any) -> Any:
    """The same in JSON's types: no lone surrogates, null for NaN and infinity, no numpy numbers."""
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return plain(value.item()) if hasattr(value, "item") else plain(str(value))

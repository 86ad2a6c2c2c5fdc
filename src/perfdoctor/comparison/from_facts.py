"""What of a run is compared that has no recording?

What the history stored of it: its steps, parts and findings; or, of a trial of a fix, its steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfdoctor.comparison.records import PromisedSaving, Snapshot, StepSample, sums
from perfdoctor.comparison.settings import batch_words
from perfdoctor.comparison.snapshot import promised, timed_sample
from perfdoctor.metrics.accounting.timed_steps import steady
from perfdoctor.recording.treated_run import TrialReport
from perfdoctor.records.savings import CASES
from perfdoctor.vocabulary.basis import EXECUTION, ITERATION, RECORDING, STEP, Basis
from perfdoctor.vocabulary.parts import PARTS
from perfdoctor.vocabulary.rulebook import Rule

#: Columns of the history, by the names of `settings.SETTINGS`.
_SETTINGS = {
    "GPU": "device", "number of GPUs": "gpus", "ranks": "world_size", "torch": "torch", "CUDA": "cuda",
    "driver": "driver",
    "project": "project", "steps analysed": "steps", "steps found by": "steps_found_by",
}  # fmt: skip
UNKNOWN_CAUSE = "unknown"
_RECORDERS = ("nsys", "kineto")


def of_facts(
    name: str,
    row: Mapping[str, Any],
    parts: Mapping[str, int],
    findings: Sequence[Mapping[str, Any]],
    steps_ns: Sequence[int],
    rules: Mapping[str, Rule],
    timed_ns: Sequence[int] = (),
) -> Snapshot:
    """The snapshot of a stored run, from what the history has of it. `parts`: in ns over all windows."""
    window_ns = sum(parts.values())
    step_ns = float(row["recorded_step_ns"] or window_ns)
    unrecorded = row["unrecorded_step_ns"] or (row["step_ns"] if row["step_ns"] != row["recorded_step_ns"] else None)
    known = [float(ns) for ns in steps_ns if ns > 0]  # the file may come from elsewhere
    steps = np.asarray(known or [step_ns], np.float64)
    scale = unrecorded / float(steps.mean()) if unrecorded and steps.mean() else 1.0
    return Snapshot(
        name=name,
        step_ns=step_ns,
        basis=_basis(row).noun,
        steps=StepSample(steps, scale, max(row["contended_share"] or 0.0, 0.0)),
        parts=_parts(parts, step_ns / window_ns if window_ns else 0.0),
        compute={},
        work=(),
        by_op=False,
        by_kernel=False,
        findings=tuple(_saving(each, rules) for each in findings),
        checked=frozenset(each["rule"] for each in findings),
        predictions=_predictions(row),
        memory=(),
        settings=_settings(row),
        without_gpu=not row["gpus"],
        unrecorded_ns=unrecorded,
        items_per_step=row["items_per_step"],
        timed=timed_sample(
            np.asarray([float(ns) for ns in timed_ns if ns > 0]),
            without_gpu=not row["gpus"],
            contended=max(row["contended_share"] or 0.0, 0.0),
        ),
        project=f"{row['project_id']} {row['program_words']}" if row["program_words"] else "",
        notes=(f"{name} ended with exit code {row['exit_code']}.",) if row["exit_code"] else (),
    )


def of_trial(name: str, trial: TrialReport) -> Snapshot:
    """The snapshot of a trial of `perfdoctor treat`, of which nothing was recorded but its steps."""
    steps = steady(trial.lengths_ns)
    fixes = " and ".join(fix for fix, touched in trial.touched.items() if touched)
    found = {"torch": trial.torch, "ranks": str(trial.ranks)}
    return Snapshot(
        name=name, step_ns=float(steps.mean()), basis=STEP.noun, steps=StepSample(steps), parts={}, compute={}, work=(),
        by_op=False, by_kernel=False, findings=(), checked=frozenset(), predictions={}, memory=(),
        settings={each: value for each, value in found.items() if value}, without_gpu=not trial.gpu_bytes,
        notes=(f"{name} is a trial with {fixes}." if fixes else f"{name} is a trial of the untreated program.",),
    )  # fmt: skip


def _parts(parts: Mapping[str, int], a_step: float) -> dict[str, float]:
    """The parts of a step in ns. A part that only a later perfdoctor knows counts as idle time of unknown cause."""
    found = sums((part if part in PARTS else UNKNOWN_CAUSE, ns * a_step) for part, ns in parts.items())
    return {name: ns for name, ns in found.items() if ns > 0}


def _basis(row: Mapping[str, Any]) -> Basis:
    """The basis of the run's numbers, as `metrics.program` finds it in a recording."""
    if not row["steps"]:
        return RECORDING
    if (row["part"] or "").startswith("range "):
        return EXECUTION
    return ITERATION if row["work"] == "inference" and row["steps_found_by"] != "profiler-step" else STEP


def _saving(finding: Mapping[str, Any], rules: Mapping[str, Rule]) -> PromisedSaving:
    ns = [finding[f"{case}_ns"] or 0 for case in CASES]
    return promised(finding["rule"], finding["title"] or finding["rule"], ns, rules, symptom_of=finding["symptom_of"])


def _predictions(row: Mapping[str, Any]) -> dict[tuple[str, ...], tuple[float, float, float]]:
    """The predicted step with all fixes; the steps in between are not stored."""
    step_ns = tuple(row[name] for name in ("predicted_low_ns", "predicted_ns", "predicted_high_ns"))
    try:
        fixed = json.loads(row["predicted_fixed"] or "[]")
    except ValueError:
        return {}
    if None in step_ns or not isinstance(fixed, list) or not fixed:
        return {}
    low, likely, high = (float(ns) for ns in step_ns)
    return {tuple(sorted({str(rule) for rule in fixed})): (low, likely, high)}


def _settings(row: Mapping[str, Any]) -> dict[str, str]:
    """The settings of the run, named as in `settings.settings_of`."""
    tools = [tool for tool in (row["tools"] or "").split("; ") if tool.startswith(_RECORDERS)]
    names = sorted((row["device"] or "").split(", ")) if row["gpus"] else []
    found = {name: str(row[column]) for name, column in _SETTINGS.items() if row[column]}
    found |= {
        "GPU": " and ".join(names), "number of GPUs": str(row["gpus"] or 0), "recorder": " and ".join(sorted(tools)),
        "batch": batch_words(row["items_per_step"]),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value}

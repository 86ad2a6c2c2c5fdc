"""What of one run is compared? From its recordings, or from what a diagnosis.json of it says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import convert
from msgspec.structs import replace

from perfdoctor.comparison.records import Memory, PromisedSaving, Snapshot, StepSample, WorkTime, summed, sums
from perfdoctor.comparison.settings import batch_words, recorder_words, settings_of
from perfdoctor.comparison.without_steps import LAUNCH, measured_work
from perfdoctor.comparison.work import work_of
from perfdoctor.diagnosis.records import Examination
from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.timed_steps import FEWEST_BEHIND, steady
from perfdoctor.metrics.host.costs import line_costs
from perfdoctor.metrics.kernels.costs import TABLE_ROWS
from perfdoctor.metrics.work.phases import FORWARD
from perfdoctor.model.columns import Floats
from perfdoctor.model.run import Run
from perfdoctor.patterns import regex
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice, Rows, with_symptoms
from perfdoctor.records.savings import CASES
from perfdoctor.system.project import Project, project_from
from perfdoctor.system.run_folder import TimedSteps
from perfdoctor.vocabulary.basis import EXECUTION, ITERATION, STEP
from perfdoctor.vocabulary.names.python_code import first_user_function
from perfdoctor.vocabulary.parts import IDLE_CAUSES, PARTS, SHRINKS
from perfdoctor.vocabulary.rulebook import Rule

#: The rule that finds that other programs had the cores.
_OTHERS_ON_THE_CORES = "busy-machine"
#: Fewer timed steps than the least that is timed behind the recorded ones say no more than these do. Launches that wait
#: in a GPU's queue (1,024 at most) are those of a few steps: of fifty they are a small share.
FEWEST_TIMED, FEWEST_TIMED_ON_GPU = FEWEST_BEHIND, 50
#: A stored distribution of steps is drawn with at most so many: more say no more of it.
_MOST_STEPS = 10_000
#: What a step is called, where there are some.
_NOUNS = frozenset(basis.noun for basis in (STEP, ITERATION, EXECUTION))
#: `train.py(10): forward`
_LINE = regex(r"\(\d+\)(?=: )")


def of_examination(name: str, examination: Examination, rules: Mapping[str, Rule], paths: Sequence[Path]) -> Snapshot:
    """The snapshot of a run that was read and diagnosed."""
    run, diagnosis = examination.run, examination.diagnosis
    work = work_of(run) if run.places else measured_work(run.timeline)
    parts = sums((each.part, each.ns) for each in work)
    family = "phase" if _is_on_host(run) else "group"
    return Snapshot(
        name=name,
        step_ns=sum(parts.values()),
        basis=diagnosis.basis.noun if run.per_step else LAUNCH if work and not run.places else "",
        steps=_sample(run, diagnosis) if run.places else StepSample(np.array([sum(parts.values())])),
        parts=parts,
        compute=sums((getattr(each, family) or "other", each.ns) for each in work if each.part == "compute"),
        work=work,
        by_op=True,
        findings=tuple(_saving(advice, rules) for advice in with_symptoms(diagnosis.findings)),
        checked=frozenset(each.rule for each in diagnosis.outcomes if each.status in ("found", "clear")),
        predictions=_predictions(diagnosis),
        memory=tuple(
            Memory(
                use.rank,
                use.device,
                use.peak_bytes,
                use.most_reserved_bytes,
                _held((each.line, each.bytes) for each in use.holders),
            )
            for use in diagnosis.memory
        ),
        settings=_settings(run, diagnosis, paths),
        without_gpu=_is_on_host(run),
        unrecorded_ns=diagnosis.real_time.unrecorded_ns if diagnosis.real_time else None,
        items_per_step=diagnosis.items_per_step,
        notes=run.timeline.notes,
        lines=_lines(run),
        timed=_timed(diagnosis.timed, without_gpu=_is_on_host(run), contended=diagnosis.contended_share),
        project=_project(diagnosis.project),
        counters=_counters((row.metric, row.unit, row.mean_in_kernels) for row in diagnosis.gpu_metrics),
    )


def _counters(rows: Iterable[tuple[str, str, float | None]]) -> dict[str, float]:
    """The mean of all GPUs by metric, as a share: of rows (metric, unit, mean while kernels ran)."""
    found: dict[str, list[float]] = {}
    for metric, unit, mean in rows:
        if metric and unit == "percent" and mean is not None:
            found.setdefault(metric, []).append(mean / 100)
    return {metric: math.fsum(means) / len(means) for metric, means in found.items()}


def _settings(run: Run, diagnosis: Diagnosis, paths: Sequence[Path]) -> dict[str, str]:
    found = {**settings_of(run, paths), "steps analysed": str(diagnosis.steps.used)}
    if not run.places and (names := sorted({gpu.name for gpu in diagnosis.gpus if gpu.name})):
        found |= {"GPU": " and ".join(names), "number of GPUs": str(len(diagnosis.gpus))}
    return found


def _held(rows: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The bytes of each line, whoever called it."""
    return {line: round(size) for line, size in sums(rows).items()}


def _timed(timed: TimedSteps | None, *, without_gpu: bool, contended: float) -> StepSample | None:
    """The steady ones among the timed steps, where they are enough to say more than the recorded ones."""
    if timed is None:
        return None
    return timed_sample(steady(timed.lengths_ns, timed.recorded), without_gpu=without_gpu, contended=contended)


def timed_sample(steps_ns: Floats, *, without_gpu: bool, contended: float) -> StepSample | None:
    """The steps as a sample; None of too few. A host that is ahead of its GPU sees the first steps end too soon."""
    enough = steps_ns.size >= (FEWEST_TIMED if without_gpu else FEWEST_TIMED_ON_GPU)
    return StepSample(steps_ns, contended=contended) if enough else None


def _project(project: Project | None) -> str:
    return f"{project.id} {project.program}" if project else ""


def _lines(run: Run) -> dict[str, float]:
    """Time of each function, by file and name: the line on which one begins moves with every edit above it."""
    costs = line_costs(run)
    if costs is None:
        return {}
    own = costs.own_host_ns if _is_on_host(run) else np.nan_to_num(costs.own_device_ns)
    return sums((_LINE.sub("", name), float(ns)) for (name,), ns in zip(costs.keys, own.tolist(), strict=True))


def _is_on_host(run: Run) -> bool:
    return bool(run.places) and all(place.device is None for place in run.places)


def _sample(run: Run, diagnosis: Diagnosis) -> StepSample:
    """The recorded steps in order, each as the mean over the ranks, which step together."""
    if not run.per_step:
        return StepSample(np.array([float(run.step_ns)]))
    each = [place.steps.durations_ns.astype(np.float64) for place in run.job.places]
    used = min(steps.size for steps in each)
    steps = np.mean([steps[:used] for steps in each], axis=0)
    known = diagnosis.real_time
    scale = known.unrecorded_ns / run.step_ns if known is not None and run.step_ns else 1.0
    return StepSample(np.asarray(steps, np.float64), scale, diagnosis.contended_share)


def _saving(advice: Advice, rules: Mapping[str, Rule]) -> PromisedSaving:
    saving = advice.saving_ns_per_step
    rows = [evidence.rows for evidence in advice.evidence if isinstance(evidence, Rows)]
    ns = [round(each) for each in (saving.low, saving.likely, saving.high)]
    return promised(advice.rule, advice.title, ns, rules, rows, advice.origin, advice.symptom_of)


def promised(
    rule: str, title: str, saving_ns: Sequence[float], rules: Mapping[str, Rule],
    tables: Iterable[Iterable[Iterable[object]]] = (), origin: str = "", symptom_of: str | None = None,
) -> PromisedSaving:  # fmt: skip
    """The saving of a finding: low, likely and high. `tables`: rows of its evidence, whose first own line it names."""
    low, likely, high = map(float, saving_ns)
    line = first_user_function(tables)
    return PromisedSaving(rule, title, low, likely, high, parts_of(rule, rules), line, origin, symptom_of or "")


def parts_of(rule: str, rules: Mapping[str, Rule]) -> tuple[str, ...]:
    """Which parts of the step the rule's fix makes shorter; () where none is its own."""
    action = rules[rule].action if rule in rules else ""
    if action:
        return (SHRINKS[action],)
    return tuple(name for name, part in PARTS.items() if rule in part.rules)


def _predictions(diagnosis: Diagnosis) -> dict[tuple[str, ...], tuple[float, float, float]]:
    """The step in ns with the first fixes, and each next one, by their rules. What was asked for counts no batch."""
    predicted = diagnosis.prediction
    if predicted is None or predicted.samples != 1 or predicted.scaling is not None:
        return {}
    steps = [(step.rule, float(step.step_ns)) for step in predicted.steps]
    return _staged(steps, tuple(float(ns) for ns in predicted.step_ns))


def _staged(
    steps: Sequence[tuple[str, float]], whole: Sequence[float]
) -> dict[tuple[str, ...], tuple[float, float, float]]:
    """(low, likely, high) of the step after each stage, by the rules fixed; the range of all is that of the last."""
    found: dict[tuple[str, ...], tuple[float, float, float]] = {}
    rules: list[str] = []
    for rule, ns in steps:
        rules.append(rule)
        share = ns / whole[1] if whole[1] else 1.0
        found[tuple(sorted(set(rules)))] = (whole[0] * share, ns, whole[2] * share)
    return found


# --- from a diagnosis.json -------------------------------------------------------------------------------------------


def of_document(name: str, document: Mapping[str, Any], rules: Mapping[str, Rule]) -> Snapshot:
    """The snapshot of a stored diagnosis: parts, findings and the longest kernels, without ops and lines.

    Raises PerfdoctorError where it lacks what every diagnosis has.
    """
    try:
        with np.errstate(divide="raise", invalid="raise", over="raise"):  # numpy only warns where Python raises
            return _of_document(name, document, rules)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise PerfdoctorError(
            f"{name} is damaged: it lacks what a diagnosis has",
            do="Write it again: perfdoctor analyze RECORDING --json FILE",
        ) from error


def _of_document(name: str, document: Mapping[str, Any], rules: Mapping[str, Rule]) -> Snapshot:
    run, steps = document["run"], document["run"]["steps"]
    parts, compute = _stored_parts(document["time"])
    step_ns = sum(parts.values())
    unrecorded = _stored_unrecorded(document, step_ns)
    scale = unrecorded / step_ns if unrecorded and step_ns else 1.0
    contended, without_gpu = _stored_contention(document), all(row["device"] is None for row in document["time"])
    return Snapshot(
        name=name,
        step_ns=step_ns,
        basis=_stored_noun(run) if steps["used"] else "",
        steps=StepSample(_stored_steps(steps, step_ns), scale, contended),
        parts=parts,
        compute=compute,
        work=tuple(_stored_work(document, parts)),
        by_op=False,
        findings=tuple(_stored_saving(each, rules) for each in document["findings"]),
        checked=frozenset(each["rule"] for each in document["outcomes"] if each["status"] in ("found", "clear")),
        predictions=_stored_predictions(document.get("prediction")),
        memory=tuple(
            Memory(
                use["rank"],
                use["device"],
                use["peak_bytes"],
                use["most_reserved_bytes"],
                _held((each["line"], each["bytes"]) for each in use.get("holders", ())),
            )
            for use in document.get("memory", ())
        ),
        settings=_stored_settings(run),
        without_gpu=without_gpu,
        unrecorded_ns=unrecorded,
        items_per_step=run.get("items_per_step"),
        timed=_timed(_stored_timed(steps.get("timed")), without_gpu=without_gpu, contended=contended),
        project=_project(project_from(run.get("project"))),
        counters=_counters(
            (row["metric"], row["unit"], row["mean_in_kernels"]) for row in document.get("gpu_metrics", ())
        ),
    )


def _stored_noun(run: Mapping[str, Any]) -> str:
    """What a step is called; documents of earlier versions do not say it. Of a damaged one no other text is taken."""
    noun = (run.get("basis") or {}).get("noun")
    return noun if noun in _NOUNS else STEP.noun


def _stored_timed(document: Mapping[str, Any] | None) -> TimedSteps | None:
    return convert(document, TimedSteps) if document else None


def _stored_unrecorded(document: Mapping[str, Any], step_ns: float) -> float | None:
    """The mean step without a recorder, as of the recording itself: `unrecorded_ns` of the document is a median."""
    steps = document["run"]["steps"]
    if steps.get("stretch"):
        return float(round(step_ns / steps["stretch"]))
    known = (document.get("prediction") or {}).get("unrecorded_step_ns") or steps.get("unrecorded_ns")
    return float(known) if known else None


def _stored_contention(document: Mapping[str, Any]) -> float:
    """The contended share of steps; older documents have it only in their finding about it."""
    known = document["run"].get("contended_share")
    if known is None:
        found = (each["values"] for each in document["findings"] if each["rule"] == _OTHERS_ON_THE_CORES)
        known = sum(values.get("waiting_percent", 0.0) for values in found) / 100
    return min(max(float(known), 0.0), 1.0)


def _stored_parts(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], dict[str, float]]:
    """The parts of a mean step, and its compute by family (by phase without a GPU), in ns."""
    parts: list[tuple[str, float]] = []
    compute: list[tuple[str, float]] = []
    for row in rows:
        a_step = (row["step_ns"] or row["window_ns"]) / max(row["window_ns"], 1) / len(rows)
        sizes = {
            "compute": row["compute_ns"], "exposed_communication": row["exposed_communication_ns"],
            "exposed_copy": row["exposed_copy_ns"],
            **{cause: row["idle_causes_ns"].get(cause, 0) for cause in IDLE_CAUSES},
        }  # fmt: skip
        parts += [(part, ns * a_step) for part, ns in sizes.items()]
        if row["device"] is not None:
            kinds = row["compute_by_family_ns"]
        else:  # a training thread stands for the device; beside a backward pass, work of no phase counts as forward
            phases = row.get("compute_by_phase_ns", {})
            rest = FORWARD if phases.get("backward") != 0 else "other"
            kinds = {rest if name == "other" else name: ns for name, ns in phases.items()}
        alone = row["compute_ns"] / max(sum(kinds.values()), 1)
        compute += [(kind, ns * alone * a_step) for kind, ns in kinds.items()]
    return {part: ns for part, ns in sums(parts).items() if ns}, {kind: ns for kind, ns in sums(compute).items() if ns}


def _stored_steps(steps: Mapping[str, Any], step_ns: float) -> Floats:
    """The steps themselves where the document has them; else as many as a normal distribution with its quantiles."""
    known = steps.get("durations_ns")
    if known:
        return np.asarray(known, np.float64)
    used = min(int(steps["used"]), _MOST_STEPS)
    if used < 2 or not steps["median_ns"]:
        return np.array([step_ns])
    quantiles = (steps["p10_ns"], steps["p10_ns"], steps["median_ns"], steps["p90_ns"], steps["p90_ns"])
    at = np.interp(np.linspace(0, 1, used), (0.0, 0.1, 0.5, 0.9, 1.0), quantiles)
    return np.asarray(at * (step_ns / at.mean()), np.float64)


def _stored_work(document: Mapping[str, Any], parts: Mapping[str, float]) -> Iterator[WorkTime]:
    in_full = {(row["rank"], row["device"]) for row in document["recording"]}  # whose kernels are in the table
    read = [row for row in document["time"] if (row["rank"], row["device"]) in in_full] or document["time"]
    places, windows = max(len(read), 1), [(row["window_ns"], row["step_ns"]) for row in read]
    units = np.mean([round(window / step) if step else 1 for window, step in windows]) if windows else 1
    kernels = [row for row in document["kernels"] if row["family"] != "communication"]
    whole = sum(row["total_ns"] for row in kernels) / places / units
    left, is_full = parts.get("compute", 0.0), len(document["kernels"]) >= TABLE_ROWS
    share = min(left / whole, 1.0) if whole else 0.0  # kernels that overlap share the time
    for row in kernels:
        ns = row["total_ns"] / places / units * share
        left -= ns
        yield WorkTime("compute", row["family"], row["name"], "", "", "", "", "", ns, row["count"] / places / units)
    if is_full or not math.isclose(left, 0, abs_tol=1):
        yield WorkTime("compute", "", "", "", "", "", "", "", left, 0)
    for part, ns in parts.items():
        if part != "compute":
            yield WorkTime(part, "", "", "", "", "", "", "", ns, 0)


def _stored_saving(finding: Mapping[str, Any], rules: Mapping[str, Rule]) -> PromisedSaving:
    ns = [finding["saving_ns_per_step"][case] for case in CASES]
    rows = [evidence["rows"] for evidence in finding.get("evidence", ()) if "rows" in evidence]
    origin, cause = finding.get("origin", ""), finding.get("symptom_of")
    return promised(finding["rule"], finding["title"], ns, rules, rows, origin, cause)


def _stored_predictions(
    predicted: Mapping[str, Any] | None,
) -> dict[tuple[str, ...], tuple[float, float, float]]:
    if not predicted or predicted.get("samples", 1) != 1 or predicted.get("scaling"):
        return {}
    steps = [(step["rule"], float(step["step_ns"])) for step in predicted["steps"]]
    return _staged(steps, [float(predicted["step_ns"][case]) for case in CASES])


def _stored_settings(run: Mapping[str, Any]) -> dict[str, str]:
    found = {
        "GPU": " and ".join(sorted({gpu["name"] for gpu in run["gpus"] if gpu["name"]})),
        "number of GPUs": str(len(run["gpus"])),
        "ranks": str(run["world_size"]),
        "recorder": recorder_words((each["kind"], each["tool_version"]) for each in run["sources"]),
        "batch": batch_words(run.get("items_per_step")),
        "steps analysed": str(run["steps"]["used"]),
        "steps found by": run["steps"]["found_by"],
        "project": (run.get("project") or {}).get("name", ""),
    }
    return {name: value for name, value in found.items() if value}


def without_ops(snapshot: Snapshot) -> Snapshot:
    """The snapshot reduced to kernel names, for a comparison with one that knows no more."""

    def names(work: WorkTime) -> tuple[str, ...]:
        is_kernel = work.part == "compute" and not snapshot.without_gpu
        return (work.part, *((work.group, work.kernel) if is_kernel else ("", "")), "", "", "", "", "")

    return replace(snapshot, work=summed((names(each), each.ns, each.count) for each in snapshot.work), by_op=False)


def by_listed_kernels(runs: Sequence[Snapshot]) -> list[Snapshot]:
    """The runs reduced to kernel names, and these to those that each would list: a stored diagnosis has the longest.

    What is shorter in all runs than all that one of them lists is of the nameless rest: there it may be as well.
    """
    least = max((_least_listed(run) for run in runs if not run.by_op), default=0.0)
    runs = [without_ops(run) for run in runs]
    longest: dict[str, float] = {}
    for each in (each for run in runs for each in run.work if _is_kernel(each)):
        longest[each.kernel] = max(each.ns, longest.get(each.kernel, 0.0))

    def names(work: WorkTime) -> tuple[str, ...]:
        is_rest = _is_kernel(work) and longest[work.kernel] < least
        return (work.part, *[""] * (len(work.names) - 1)) if is_rest else work.names

    return [replace(run, work=summed((names(each), each.ns, each.count) for each in run.work)) for run in runs]


def _least_listed(run: Snapshot) -> float:
    """The least ns of a kernel that the run lists, where others are its nameless rest; 0 where all are listed."""
    if not any(each.part == "compute" and not each.kernel for each in run.work):
        return 0.0
    return min((each.ns for each in run.work if _is_kernel(each)), default=math.inf)


def _is_kernel(work: WorkTime) -> bool:
    return work.part == "compute" and bool(work.kernel)


def without_kernels(snapshot: Snapshot) -> Snapshot:
    """The snapshot reduced to the parts of the step."""
    return replace(snapshot, work=(), compute={}, by_op=False, by_kernel=False)

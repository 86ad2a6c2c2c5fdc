"""Which diagnosis does a diagnosis.json hold? All of it that is printed; its recording is not there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.hardware.prices import Price
from perfdoctor.model.steps import Confidence
from perfdoctor.model.timeline import RecordedProcess
from perfdoctor.records.cost import Cost, FindingCost
from perfdoctor.records.derivations import Derivation
from perfdoctor.records.diagnosis import Diagnosis, GpuInfo, SourceInfo
from perfdoctor.records.findings import Advice, CodeLine, Evidence, Fix, Measure, Outcome, Rows, Span, Value
from perfdoctor.records.memory import MemoryUse
from perfdoctor.records.modules import ModuleCost
from perfdoctor.records.predictions import CriticalPath, PredictedStep, Prediction, Scaling
from perfdoctor.records.real_time import RealTime
from perfdoctor.records.savings import Saving
from perfdoctor.records.time_split import JobTime, KernelRow, StepStats, TimeSplit
from perfdoctor.records.work_done import Efficiency, Roofline
from perfdoctor.report import json_document
from perfdoctor.report.words.foreign_text import clean
from perfdoctor.vocabulary.basis import Basis
from perfdoctor.vocabulary.derivations import SOURCES

#: Of a number that is not known JSON says null.
_Known = int | float | str | None


class _Range(msgspec.Struct):
    low: float
    likely: float
    high: float

    @property
    def cases(self) -> tuple[float, float, float]:
        return self.low, self.likely, self.high


class _Lengths(msgspec.Struct):
    low: int
    likely: int
    high: int


class _Measure(msgspec.Struct, tag_field="type", tag="measure"):
    label: str
    value: int | float | None
    unit: Literal["ns", "bytes", "bytes_per_second", "count", "share"]


class _Rows(msgspec.Struct, tag_field="type", tag="rows"):
    label: str
    columns: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[_Known, ...], ...]


class _Span(msgspec.Struct, tag_field="type", tag="span"):
    label: str
    rank: int
    start_ns: int
    end_ns: int


class _Finding(msgspec.Struct):
    """A row of `findings`: causes and symptoms in one list, each symptom behind its cause."""

    rank: int
    rule: str
    title: str
    summary: str
    category: str
    confidence: Confidence
    confidence_because: str
    saving_ns_per_step: Saving
    speedup: _Range
    symptom_of: str | None
    derivation: Derivation | None
    values: dict[str, _Known]
    evidence: tuple[_Measure | _Rows | _Span, ...]
    lines: tuple[CodeLine, ...]
    fixes: tuple[Fix, ...]
    why: str
    not_a_problem_when: str
    references: tuple[str, ...]
    is_verdict: bool
    origin: str = ""


class _RealTime(msgspec.Struct):
    recorded_ns: int
    unrecorded_ns: int
    measured_ns: int
    event_ns: float
    events_per_step: float
    has_stacks: bool


class _Steps(msgspec.Struct):
    """What stands in `run.steps` beside the fields of StepStats."""

    real_time: _RealTime | None
    stretch_by_part: dict[str, float | None] | None


class _Work(msgspec.Struct):
    kind: Literal["training", "inference", "unknown"]
    server: str
    framework: Literal["torch", "jax", "triton", "cuda", "unknown"]


class _Run(msgspec.Struct):
    sources: tuple[SourceInfo, ...]
    gpus: tuple[GpuInfo, ...]
    world_size: int
    steps: msgspec.Raw
    processes: tuple[RecordedProcess, ...]
    work: _Work
    basis: Basis
    gpu_not_recorded: bool
    #: Documents that were written before these were known lack them.
    items_per_step: float | None = None
    contended_share: float = 0.0


class _Scaling(msgspec.Struct):
    recorded_ranks: int | None
    asked_ranks: int
    efficiency: _Range


class _Prediction(msgspec.Struct):
    fixed: tuple[str, ...]
    step_ns: _Lengths
    speedup: _Range
    recorded_step_ns: int
    unrecorded_step_ns: int | None
    steps: tuple[PredictedStep, ...]
    replay_error: float | None
    asked: bool
    samples: float
    scaling: _Scaling | None


class _FindingCost(msgspec.Struct):
    rule: str
    saved_per_month: _Range


class _Cost(msgspec.Struct):
    price: Price
    gpus: int
    recorded_gpus: int
    per_step: float | None
    per_million_items: float | None
    items: str
    per_run: float | None
    run_seconds: float | None
    per_month: float
    saved_per_month: _Range | None
    findings: tuple[_FindingCost, ...]


class _Document(msgspec.Struct):
    run: _Run
    base_ns: int
    time: tuple[TimeSplit, ...]
    recording: tuple[TimeSplit, ...]
    outcomes: tuple[Outcome, ...]
    findings: tuple[_Finding, ...]
    prediction: _Prediction | None
    critical_path: CriticalPath | None
    efficiency: Efficiency | None
    roofline: Roofline | None
    memory: tuple[MemoryUse, ...]
    kernels: tuple[KernelRow, ...]
    modules: tuple[ModuleCost, ...]
    cost: _Cost | None
    notes: tuple[str, ...]
    job: JobTime | None = None


def stored(name: str, path: Path) -> Diagnosis | None:
    """None where it is anything else. Raises PerfdoctorError where it is a diagnosis that cannot be read."""
    written, file = json_document.document(name, path), json_document.file_of(path)
    if written is None or file is None:
        return None
    if "base_ns" not in written:
        raise PerfdoctorError(
            f"{name} was written by an earlier version, and lacks what is printed now",
            do="Analyze its recording again; `perfdoctor compare` takes it as it is.",
        )
    try:
        return _diagnosis(msgspec.json.decode(file.read_bytes(), type=_Document))
    except (AssertionError, RecursionError, ValueError) as error:
        raise PerfdoctorError(
            f"{name} is damaged: it lacks what a diagnosis has",
            do="Write it again: perfdoctor analyze RECORDING --json FILE",
        ) from error


def _check(of: _Document) -> None:
    """Raises ValueError for what no diagnosis has, and its reports rely on."""
    for finding in of.findings:
        for rows in (each for each in finding.evidence if isinstance(each, _Rows)):
            if {len(rows.units), *map(len, rows.rows)} != {len(rows.columns)}:
                raise ValueError("a row of evidence has not its columns")
        if finding.derivation and not all(each.source in SOURCES for each in finding.derivation.inputs):
            raise ValueError("a number of a formula is from nowhere")
    if any(split.window_ns <= 0 for split in (*of.time, *of.recording)):
        raise ValueError("a window has no length")
    if of.prediction and any(step.samples <= 0 for step in of.prediction.steps):
        raise ValueError("a predicted step has no samples")


def _diagnosis(of: _Document) -> Diagnosis:
    _check(of)
    run, efficiency = of.run, of.efficiency
    if efficiency is not None and of.roofline is not None:
        efficiency = replace(efficiency, roofline=of.roofline)
    findings, behind = _tree(of.findings, None, 0)
    if behind < len(of.findings):
        raise ValueError("a symptom does not stand behind its cause")
    basis = replace(run.basis, noun=clean(run.basis.noun), of=clean(run.basis.of))
    return Diagnosis(
        sources=run.sources, gpus=run.gpus, world_size=run.world_size,
        steps=msgspec.json.decode(run.steps, type=StepStats),
        time=of.time, recording=of.recording, kernels=of.kernels, outcomes=of.outcomes,
        findings=findings, prediction=_prediction(of.prediction), notes=of.notes,
        base_ns=of.base_ns, basis=basis, kind_of_work=run.work.kind, server=run.work.server,
        framework=run.work.framework, critical_path=_path(of.critical_path), efficiency=efficiency,
        gpu_not_recorded=run.gpu_not_recorded, memory=of.memory, processes=run.processes,
        real_time=_real_time(msgspec.json.decode(run.steps, type=_Steps)), job=of.job, cost=_cost(of.cost),
        modules=of.modules, items_per_step=run.items_per_step, contended_share=run.contended_share,
    )  # fmt: skip


def _tree(rows: Sequence[_Finding], cause: str | None, begin: int) -> tuple[tuple[Advice, ...], int]:
    """The findings of this cause from that row on, with their symptoms inside, and the row behind them."""
    found = []
    while begin < len(rows) and rows[begin].symptom_of == cause:
        row = rows[begin]
        symptoms, begin = _tree(rows, row.rule, begin + 1)
        found.append(_advice(row, symptoms))
    return tuple(found), begin


def _advice(row: _Finding, symptoms: tuple[Advice, ...]) -> Advice:
    return Advice(
        rank=row.rank, rule=row.rule, title=row.title, summary=row.summary, why=row.why, category=row.category,
        confidence=row.confidence, confidence_because=row.confidence_because,
        saving_ns_per_step=row.saving_ns_per_step, speedup=row.speedup.cases, symptoms=symptoms,
        values={name: _value(value) for name, value in row.values.items()},
        evidence=tuple(map(_evidence, row.evidence)), fixes=row.fixes, not_a_problem_when=row.not_a_problem_when,
        references=row.references, is_verdict=row.is_verdict, derivation=row.derivation, lines=row.lines,
        origin=row.origin,
    )  # fmt: skip


def _evidence(of: _Measure | _Rows | _Span) -> Evidence:
    if isinstance(of, _Measure):
        return Measure(of.label, math.nan if of.value is None else of.value, of.unit)
    if isinstance(of, _Rows):
        return Rows(of.label, of.columns, of.units, tuple(tuple(map(_value, row)) for row in of.rows))
    return Span(of.label, of.rank, of.start_ns, of.end_ns)


def _value(value: _Known) -> Value:
    return math.nan if value is None else value


def _prediction(of: _Prediction | None) -> Prediction | None:
    if of is None:
        return None
    return Prediction(
        of.fixed, (of.step_ns.low, of.step_ns.likely, of.step_ns.high), of.speedup.cases, of.recorded_step_ns, of.steps,
        of.replay_error, of.asked, of.samples, _scaling(of.scaling), of.unrecorded_step_ns,
    )  # fmt: skip


def _path(of: CriticalPath | None) -> CriticalPath | None:
    return None if of is None else replace(of, share={clean(kind): part for kind, part in of.share.items()})


def _scaling(of: _Scaling | None) -> Scaling | None:
    return None if of is None else Scaling(of.recorded_ranks or 0, of.asked_ranks, of.efficiency.cases)


def _real_time(steps: _Steps) -> RealTime | None:
    of = steps.real_time
    if of is None:
        return None
    by_part = {part: math.inf if by is None else by for part, by in (steps.stretch_by_part or {}).items()}
    return RealTime(
        of.recorded_ns, of.unrecorded_ns, of.measured_ns, of.event_ns, of.events_per_step, by_part, of.has_stacks
    )


def _cost(of: _Cost | None) -> Cost | None:
    if of is None:
        return None
    return Cost(
        of.price, of.gpus, of.recorded_gpus, of.per_step, of.per_million_items, of.items, of.per_run, of.run_seconds,
        of.per_month, of.saved_per_month.cases if of.saved_per_month else None,
        tuple(FindingCost(each.rule, each.saved_per_month.cases) for each in of.findings),
    )  # fmt: skip

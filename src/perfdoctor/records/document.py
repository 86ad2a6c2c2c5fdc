"""What is in a diagnosis.json? The records of a diagnosis, in the order and under the names of docs/json.md."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import cleandoc
from typing import Any, Literal

import msgspec
from msgspec import Struct

from perfdoctor.model.timeline import RecordedProcess
from perfdoctor.records.collectives import CollectiveUse
from perfdoctor.records.cost import Cost
from perfdoctor.records.diagnosis import GpuInfo, SourceInfo
from perfdoctor.records.findings import Advice, Outcome
from perfdoctor.records.gpu_metrics import GpuMetric
from perfdoctor.records.memory import MemoryUse
from perfdoctor.records.predictions import CriticalPath, Prediction
from perfdoctor.records.run_time import RunTime
from perfdoctor.records.time_split import JobTime, KernelRow, RealTime, StepStats, TimeSplit
from perfdoctor.records.work_done import Efficiency, ModuleCost, Roofline
from perfdoctor.system.project import Project
from perfdoctor.system.run_folder import TimedSteps
from perfdoctor.vocabulary.basis import Basis

#: Keys are added, never renamed or removed: else this number rises.
FORMAT: Literal[1] = 1


class DocumentSteps(StepStats, frozen=True, kw_only=True):
    """The steps, and what is known of steps that nobody recorded; null where nothing is."""

    unrecorded_ns: int | None = None
    stretch: float | None = None
    stretch_by_part: Mapping[str, float] | None = None
    real_time: RealTime | None = None
    timed: TimedSteps | None = None


class DocumentWork(Struct, frozen=True):
    """What the program does, whose server it is, and what computes."""

    kind: Literal["training", "inference", "unknown"]
    server: str
    framework: Literal["torch", "jax", "triton", "cuda", "unknown"]


class DocumentRun(Struct, frozen=True, kw_only=True):
    """What was recorded."""

    sources: tuple[SourceInfo, ...]
    gpus: tuple[GpuInfo, ...]
    world_size: int
    steps: DocumentSteps
    items_per_step: float | None = None
    contended_share: float = 0.0
    processes: tuple[RecordedProcess, ...]
    work: DocumentWork
    basis: Basis
    gpu_not_recorded: bool
    project: Project | None = None


class FindingRow(Advice, frozen=True, kw_only=True):
    """A ranked finding; causes and symptoms are in one list, each symptom after its cause.

    `symptoms`: the rules of its symptoms. `symptom_of`: the rule of its cause, null for a cause.
    """

    symptoms: tuple[str, ...]  # type: ignore[assignment]


class ModuleRow(ModuleCost, frozen=True):
    """One module, with its time in forward and backward pass together: `own_ns` without the modules inside."""

    own_ns: float
    ns: float


class ModulesLeftOut(Struct, frozen=True):
    """How many modules are not listed, and what they cost together, in ns a step."""

    count: int = 0
    own_ns: float = 0.0


class Document(Struct, frozen=True, kw_only=True):
    """A diagnosis of perfdoctor. `_ns` are nanoseconds, `_share` fractions of 1; null: not known."""

    format: Literal[1] = FORMAT
    perfdoctor: str
    run: DocumentRun
    base_ns: int
    job: JobTime | None = None
    time: tuple[TimeSplit, ...]
    recording: tuple[TimeSplit, ...]
    outcomes: tuple[Outcome, ...]
    findings: tuple[FindingRow, ...]
    prediction: Prediction | None
    critical_path: CriticalPath | None
    efficiency: Efficiency | None
    roofline: Roofline | None
    memory: tuple[MemoryUse, ...]
    kernels: tuple[KernelRow, ...]
    modules: tuple[ModuleRow, ...]
    modules_left_out: ModulesLeftOut = ModulesLeftOut()
    cost: Cost | None
    contenders: tuple[str, ...] = ()
    run_time: RunTime | None = None
    gpu_metrics: tuple[GpuMetric, ...] = ()
    collectives: tuple[CollectiveUse, ...] = ()
    notes: tuple[str, ...]


def schema() -> dict[str, Any]:
    """The JSON Schema of a diagnosis.json. Any number may be null: JSON has no NaN and no infinity."""
    made: dict[str, Any] = _nullable(msgspec.json.schema(Document))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def _nullable(schema: Any) -> Any:
    """The schema with null beside each number, and descriptions without the indentation of docstrings."""
    if isinstance(schema, list):
        return [_nullable(each) for each in schema]
    if not isinstance(schema, dict):
        return cleandoc(schema) if isinstance(schema, str) else schema
    types = {"type": ["number", "null"]} if schema.get("type") == "number" else {}
    return {key: _nullable(each) for key, each in schema.items()} | types

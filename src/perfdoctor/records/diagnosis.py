"""What is wrong with a run? Everything that a report may use.

A Diagnosis contains numbers and texts, no arrays and no Timeline: a report formats it and computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from perfdoctor.model.timeline import RecordedProcess
from perfdoctor.records.collectives import CollectiveUse
from perfdoctor.records.cost import Cost
from perfdoctor.records.findings import Advice, Outcome
from perfdoctor.records.gpu_metrics import GpuMetric
from perfdoctor.records.memory import MemoryUse
from perfdoctor.records.predictions import CriticalPath, Prediction
from perfdoctor.records.run_time import RunTime
from perfdoctor.records.time_split import JobTime, KernelRow, RealTime, StepStats, TimeSplit
from perfdoctor.records.work_done import Efficiency, ModuleCost
from perfdoctor.system.project import Project
from perfdoctor.system.run_folder import TimedSteps
from perfdoctor.vocabulary.basis import STEP, Basis

#: Three steps have no typical one among them if they differ by a quarter: what was slow in one may be chance.
FEW_STEPS = 3
MOST_SPREAD = 0.25


class SourceInfo(Struct, frozen=True):
    """One file that was read."""

    kind: str
    file: str
    tool_version: str
    ranks: tuple[int, ...]
    cut_off: bool = False


class GpuInfo(Struct, frozen=True):
    """One GPU in the recording."""

    rank: int
    device: int
    name: str
    known_peaks: bool


class Diagnosis(Struct, frozen=True):
    """Everything that a report may show. `basis`: what savings are for one of.
    `server`: whose it is, where the work is inference ("" if not known).

    `findings` are the ranked causes, with their symptoms inside. `time` covers the analysed window, `recording` the
    time from the first to the last device event, in the same shape. Savings are a share of `base_ns`, the step without
    a recorder where `real_time` has another one; all other numbers are as recorded. `critical_path`
    is None if the run was not replayed, `efficiency` if nothing is known of it.
    `gpu_not_recorded`: no activity of a GPU was recorded, though the program launched work on one, or has one and
    nothing but ranges was recorded.
    `processes`: the trainings of a recorded command, of which one is diagnosed. `job`: where not every rank was read in
    full; `time` has all of them, `recording` those that were. `cost`: None where nobody asked for it.
    `items_per_step`: what one rank trains on in a step; None if unknown. `contended_share`: of its steps, in which the
    training thread waited for cores that other programs had (0-1). `timed`: the last steps that one rank's process
    timed in the same execution; None where it timed none, or these are other steps. `project`: where the program
    belongs; None if unknown. `run_time`: the partition of the whole run; None where it was not noted.
    `gpu_metrics`: the means of the GPUs' own counters; empty where they were not recorded.
    `collectives`: what communication cost, by what it is for; of the ranks read in full.
    """

    sources: tuple[SourceInfo, ...]
    gpus: tuple[GpuInfo, ...]
    world_size: int
    steps: StepStats
    time: tuple[TimeSplit, ...]
    recording: tuple[TimeSplit, ...]
    kernels: tuple[KernelRow, ...]
    outcomes: tuple[Outcome, ...]
    findings: tuple[Advice, ...]
    prediction: Prediction | None
    notes: tuple[str, ...]
    base_ns: int = 0
    basis: Basis = STEP
    kind_of_work: Literal["training", "inference", "unknown"] = "unknown"
    server: str = ""
    framework: Literal["torch", "jax", "triton", "cuda", "unknown"] = "unknown"
    titles: Mapping[str, str] = field(default_factory=dict)
    critical_path: CriticalPath | None = None
    efficiency: Efficiency | None = None
    gpu_not_recorded: bool = False
    memory: tuple[MemoryUse, ...] = ()
    processes: tuple[RecordedProcess, ...] = ()
    real_time: RealTime | None = None
    job: JobTime | None = None
    cost: Cost | None = None
    modules: tuple[ModuleCost, ...] = ()
    items_per_step: float | None = None
    contended_share: float = 0.0
    run_time: RunTime | None = None
    gpu_metrics: tuple[GpuMetric, ...] = ()
    collectives: tuple[CollectiveUse, ...] = ()
    timed: TimedSteps | None = None
    project: Project | None = None

    @property
    def contenders(self) -> tuple[Advice, ...]:
        """The first finding and the next, where each one's likely saving lies in the range of the other: which of them
        is first may differ between two recordings of one program. Empty where the first is clear, or none saves time.
        """
        if len(self.findings) < 2:
            return ()
        first, second = self.findings[:2]
        ours, theirs = first.saving_ns_per_step, second.saving_ns_per_step
        meet = theirs.likely > 0 and ours.low < theirs.likely and ours.likely < theirs.high
        return (first, second) if meet and not first.is_verdict else ()

    @property
    def is_too_little(self) -> bool:
        """Are the steps so few and so different that nothing follows where no finding is worth fixing?"""
        steps = self.steps
        spread = steps.p90_ns - steps.p10_ns
        return 0 < steps.used <= FEW_STEPS and spread > MOST_SPREAD * steps.median_ns

    @property
    def stretched(self) -> RealTime | None:
        """Without a recorder, where the step is notably shorter then; else None."""
        return self.real_time if self.real_time is not None and self.real_time.is_notable else None

    @property
    def recorded_ns(self) -> int:
        """The step as it was recorded, whose parts `time` has."""
        return self.stretched.recorded_ns if self.stretched else self.base_ns

    @property
    def per_step(self) -> bool:
        """Are savings for a step (an iteration, an execution), and not for all that was recorded?"""
        return bool(self.basis.noun)

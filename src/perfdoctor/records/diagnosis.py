"""What is wrong with a run? All that a report may see.

A Diagnosis holds numbers and words, no arrays and no Timeline: a report formats it and computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfdoctor.records.findings import Advice, Outcome
from perfdoctor.records.memory import MemoryUse
from perfdoctor.records.predictions import CriticalPath, Prediction
from perfdoctor.records.time_split import KernelRow, StepStats, TimeSplit
from perfdoctor.records.work_done import Efficiency


@dataclass(frozen=True)
class SourceInfo:
    kind: str
    file: str
    tool_version: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class GpuInfo:
    rank: int
    device: int
    name: str
    known_peaks: bool


@dataclass(frozen=True)
class Diagnosis:
    """Everything a report may say. `per_step`: savings are per step, else per window looked at.

    `findings` are the ranked causes, their symptoms inside them. `time` covers the window looked at, `recording` the
    whole stretch from the first to the last device event, same shape. `base_ns` is what savings are a share of.
    `critical_path` is None where the run was not played again, `efficiency` where nothing can be said of it.
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
    per_step: bool = True
    titles: Mapping[str, str] = field(default_factory=dict)
    critical_path: CriticalPath | None = None
    efficiency: Efficiency | None = None
    memory: tuple[MemoryUse, ...] = ()

"""What was found, how sure are we, and what was not looked at? All that a report may see.

A Diagnosis holds numbers and words, no arrays and no Timeline: a report formats it and computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from perfdoctor.model.steps import Confidence, FoundBy
from perfdoctor.model.timeline import Ints, Mask
from perfdoctor.records.work_done import Efficiency

Status = Literal["found", "clear", "skipped", "failed"]
Value = int | float | str

IDLE_CAUSES = (
    "input_wait",
    "host_sync",
    "launch_bound",
    "host_work",
    "allocator",
    "storage",
    "garbage_collection",
    "compilation",
    "peer_wait",
    "profiler",
    "queue_latency",
    "unknown",
)
KERNEL_FAMILIES = (
    "gemm",
    "attention",
    "convolution",
    "elementwise",
    "reduction",
    "normalization",
    "optimizer",
    "embedding",
    "other",
)
MATH_PATHS = ("tensor_core", "no_tensor_core", "unknown")

#: What `--what-if` can ask beside rules: another size of the run.
SIZES = ("batch", "ranks", "synthetic-data")


#: The three ends of a range, in the order of `Saving`.
CASES = ("low", "likely", "high")


@dataclass(frozen=True)
class Saving:
    """How much shorter a step gets, in ns per step (per window where no steps were found): low ≤ likely ≤ high."""

    low: int
    likely: int
    high: int

    def __post_init__(self) -> None:
        assert 0 <= self.low <= self.likely <= self.high, f"a saving must be ordered: {self}"


@dataclass(frozen=True)
class Measure:
    """One number that convinces. `unit`: ns, bytes, bytes_per_second, count, share."""

    label: str
    value: float
    unit: Literal["ns", "bytes", "bytes_per_second", "count", "share"]


@dataclass(frozen=True)
class Rows:
    """A small table: the worst offenders. `units`, one a column: ns, bytes, bytes_per_second, count, share, text."""

    label: str
    columns: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class Span:
    """One stretch of the recording to look at; times are ns since the first event of the window."""

    label: str
    rank: int
    start_ns: int
    end_ns: int


Evidence = Measure | Rows | Span


@dataclass(frozen=True)
class Fix:
    """What to change. `how` is text with code to paste."""

    title: str
    how: str
    effort: Literal["minutes", "hours", "days"]
    changes_numerics: bool


@dataclass(frozen=True)
class Finding:
    """What a detector saw: numbers only. `situation` picks the words and fixes that fit the evidence ("" for all).

    `symptom_of` names the rules whose cure makes just this finding vanish, beside those that its rule names; `explains`
    is its other end: the rules whose findings vanish with this one, where only this one's detector knows that. `work`
    tells which of a place's kernels, copies or collectives it is about: by (rank, device), one bool a row of the
    place's frame. Empty where it is about all of them, or none. `counted_ns` is the time of that work a step of which
    the saving is a share, 0 where all of it counts. `thread_time`: on a run without a GPU, by rank, starts and ends of
    the training thread's time that it is about.
    """

    rule: str
    saving_ns_per_step: Saving
    confidence: Confidence
    values: Mapping[str, Value]
    evidence: tuple[Evidence, ...] = ()
    situation: str = ""
    symptom_of: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    work: Mapping[tuple[int, int], Mask] = field(default_factory=dict)
    counted_ns: int = 0
    thread_time: Mapping[int, tuple[Ints, Ints]] = field(default_factory=dict)


@dataclass(frozen=True)
class Advice:
    """A finding with its rule's words, ranked: what a report shows. `rank` starts at 1.

    `confidence` is the detector's, lowered where the recording is thin; `confidence_because` says why in a sentence.
    """

    rank: int
    rule: str
    title: str
    summary: str
    why: str
    category: str
    confidence: Confidence
    confidence_because: str
    saving_ns_per_step: Saving
    speedup: tuple[float, float, float]
    symptoms: tuple[Advice, ...]
    values: Mapping[str, Value]
    evidence: tuple[Evidence, ...]
    fixes: tuple[Fix, ...]
    not_a_problem_when: str
    references: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of one rule. `missing`: the signals it lacked (skipped); `error`: what it raised (failed)."""

    rule: str
    status: Status
    missing: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class TimeSplit:
    """Where the window of one rank and device went, in ns; the parts sum exactly (see `model/place.py`).

    `device` is None where the training thread of a run without GPU plays the device. `step_ns` is None where no steps
    were found. `window_start_ns` is on the recording's own clock, so that anybody can recompute the numbers.
    """

    rank: int
    device: int | None
    window_start_ns: int
    window_ns: int
    step_ns: int | None
    compute_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    idle_ns: int
    communication_ns: int
    hidden_communication_ns: int
    copy_ns: int
    kernel_count: int
    idle_causes_ns: Mapping[str, int]
    compute_by_family_ns: Mapping[str, int]
    matmul_ns_by_math_path: Mapping[str, int]


@dataclass(frozen=True)
class StepStats:
    """How the steps were found and how long they are; zero times where none were found."""

    count: int = 0
    used: int = 0
    median_ns: int = 0
    p10_ns: int = 0
    p90_ns: int = 0
    found_by: FoundBy = "none"
    confidence: Confidence = "low"


@dataclass(frozen=True)
class KernelRow:
    """One line of the kernel table: all executions of one name in the windows looked at."""

    name: str
    family: str
    math_path: str
    count: int
    total_ns: int
    mean_ns: int


@dataclass(frozen=True)
class GpuInfo:
    rank: int
    device: int
    name: str
    known_peaks: bool


@dataclass(frozen=True)
class SourceInfo:
    kind: str
    file: str
    tool_version: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class PredictedStep:
    """The step after one more cure or size, with all before it, in ns. `choice`: how far it goes, or how large.

    `samples`: how many times as many samples as recorded all ranks then work on in a step.
    """

    rule: str
    step_ns: int
    choice: str = ""
    samples: float = 1.0


@dataclass(frozen=True)
class Scaling:
    """From `recorded` ranks (0: not told) to those `asked` for. `efficiency`: low ≤ likely ≤ high.

    That is the step among the fewer ranks over the step among the more, each rank with the same work.
    """

    recorded: int
    asked: int
    efficiency: tuple[float, float, float]


@dataclass(frozen=True)
class Prediction:
    """The step with the named findings fixed together: ns (low ≤ likely ≤ high) and speedup (low ≤ likely ≤ high).

    `steps` is the way there from `recorded_ns`, one cure after the other: none longer than the one before, the last
    the likely `step_ns`. `replay_error`: by how much the replay misses the unchanged step, as a share of it; None where
    nothing was played and savings were subtracted. `asked`: is it the answer to a question, or what we find worth it?
    Where the run's size was asked for, a step has `samples` times as many samples and may be longer; `speedup` is that
    of samples a second over all ranks, and `scaling` what other numbers of ranks make of it.
    """

    fixed: tuple[str, ...]
    step_ns: tuple[int, int, int]
    speedup: tuple[float, float, float]
    recorded_ns: int
    steps: tuple[PredictedStep, ...]
    replay_error: float | None = None
    asked: bool = False
    samples: float = 1.0
    scaling: Scaling | None = None


@dataclass(frozen=True)
class PathPiece:
    """All of one name on the critical path: ns a step, and how often in a step."""

    kind: str
    name: str
    ns_per_step: float
    times_per_step: float


@dataclass(frozen=True)
class CriticalPath:
    """What the length of the step hangs on: `share` by kind (they sum to one), and the longest pieces first.

    `step_ns` is the step as it was played.
    """

    step_ns: float
    share: Mapping[str, float]
    pieces: tuple[PathPiece, ...]


@dataclass(frozen=True)
class Holder:
    """Memory that the same lines of code asked for: the innermost own line, it and its callers, what for, how much."""

    line: str
    stack: str
    category: str
    bytes: int
    count: int


@dataclass(frozen=True)
class MemoryUse:
    """What torch's allocator held on one device; -1 where the recording does not tell a number.

    The first four are its state at the end, as torch counts it itself: reserved from the driver, handed out, in use
    (handed out, or freed and still waited for by another stream), and asked for before rounding. `peak_bytes` is the
    most that was in use in the window of `events` changes, and at that moment: what was reserved, the free pieces of
    it, and who held it. `most_reserved_bytes` is the most that was ever reserved in the window. Of source `driver` all
    that CUDA handed out counts as reserved and in use, to libraries as well.
    """

    rank: int
    device: int
    source: Literal["snapshot", "profiler", "timeline", "driver"]
    events: int
    reserved_bytes: int
    allocated_bytes: int
    active_bytes: int
    requested_bytes: int
    peak_bytes: int
    peak_reserved_bytes: int
    most_reserved_bytes: int
    free_bytes: int
    free_pieces: int
    largest_free_bytes: int
    by_category: Mapping[str, int] = field(default_factory=dict)
    holders: tuple[Holder, ...] = ()


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

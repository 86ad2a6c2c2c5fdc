"""What does a comparison hand on? Numbers and names, no rows of a recording: reports only format them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from perfdoctor.model.columns import Floats

StepVerdict = Literal["slower", "faster", "no change", "too noisy"]
#: Also of a comparison that says nothing of the program, and of snapshots of memory.
Verdict = Literal["slower", "faster", "no change", "too noisy", "not comparable", "more memory", "less memory"]
#: Where the spread of runs comes from: the runs that were given, those of the other side, what is usual, how the level
#: of the run itself drifts, the time in which other programs had the cores of the thread that trains, or, of the ratio
#: of two runs one right behind the other, the pairs.
SpreadFrom = Literal["runs", "other side", "usual", "drift", "contended", "pairs"]
#: Which steps are compared: the recorded ones, the same as long as they are without a recorder, all that were timed
#: beside the recording, or those of runs that alternated.
StepsCompared = Literal["recorded", "unrecorded", "timed", "paired"]
#: What became of time: it is in AFTER alone, in BEFORE alone, or in both and more, less, or as much.
Fate = Literal["came", "went", "grew", "shrank", "same"]
FindingFate = Literal["fixed", "partly fixed", "no longer found", "new", "remaining", "not checked"]
Kept = Literal["kept", "more", "less", "unknown"]

#: Of 20 public recordings, those of one model share 0.84 and more of their compute time through other precisions,
#: fusions and 1 to 4 GPUs; most of two models share less than a half.
LEAST_IN_COMMON = 0.5


class StepSample(Struct, frozen=True):
    """The steps of one run in ns, in order. `scale`: the unrecorded step over the recorded one; 1.0 if unknown.

    `contended`: the share of the steps in which other programs had the cores that the thread that trains waited for.
    """

    steps_ns: Floats
    scale: float = 1.0
    contended: float = 0.0


class StepSide(Struct, frozen=True):
    """What is known of the step of one side. `spread`: the standard deviation of the mean step from run to run, as a
    share of it. `blocks`: how many consecutive steps are drawn together, a number a run.
    """

    mean_ns: float
    median_ns: float
    runs: int
    steps: int
    blocks: tuple[int, ...]
    spread: float
    spread_from: SpreadFrom


class StepChange(Struct, frozen=True):
    """How the mean step changed. `change`, `low`, `high`: AFTER over BEFORE, less 1, with its 95 % interval.

    `low` and `high` are None where a side has a single step. `median_low`, `median_high`: the same of the median step.
    `detectable`: the smallest change that would have been found, as a share; None if nothing is. `contended`: the
    largest share of its time in which a run waited for cores that other programs had. `unrecorded`: are they steps
    without a recorder?
    """

    before: StepSide
    after: StepSide
    change: float
    low: float | None
    high: float | None
    median_change: float
    median_low: float | None
    median_high: float | None
    verdict: StepVerdict
    detectable: float | None
    unrecorded: bool
    contended: float = 0.0
    steps_compared: StepsCompared = "recorded"

    def is_longer_by(self, limit: float) -> bool:
        """Does the whole interval lie above this share?"""
        return self.low is not None and self.low > limit

    @property
    def hidden_by_long_steps(self) -> bool:
        """Is the median step clearly another one, while the mean step is not?"""
        if self.verdict != "too noisy" or self.median_low is None or self.median_high is None:
            return False
        return self.median_low > 0 or self.median_high < 0


class WorkTime(Struct, frozen=True):
    """Time of a step that one kind of work takes alone, in ns; what overlaps counts once, so that all sums to the step.

    `part`: of the step. `kernel`: the name on the device, or of the line, range or call that the device waited for;
    `op`, `shapes`, `phase` (forward, backward, optimizer), `module` and `inside`, the innermost range around its
    launch, say where it belongs; "" where not known.
    """

    part: str
    group: str
    kernel: str
    op: str
    shapes: str
    phase: str
    module: str
    inside: str
    ns: float
    count: float

    @property
    def names(self) -> tuple[str, ...]:
        return (self.part, self.group, self.kernel, self.op, self.shapes, self.phase, self.module, self.inside)


def summed(rows: Iterable[tuple[Sequence[str], float, float]]) -> tuple[WorkTime, ...]:
    """The work of these rows, (names, ns, count) each: rows with the same names are one. Names: as `WorkTime.names`."""
    found: dict[tuple[str, ...], list[float]] = {}
    for names, ns, count in rows:
        total = found.setdefault(tuple(names), [0.0, 0.0])
        total[0] += ns
        total[1] += count
    return tuple(WorkTime(*names, *total) for names, total in found.items())  # type: ignore[arg-type]


def sums(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The sum of the numbers of each name, in ns."""
    found: dict[str, float] = {}
    for name, ns in pairs:
        found[name] = found.get(name, 0.0) + ns
    return found


class Memory(Struct, frozen=True):
    """The most that one device held, in bytes; -1 if unknown. `holders`: of them each line; empty if unknown."""

    rank: int
    device: int
    peak_bytes: int
    reserved_bytes: int
    holders: Mapping[str, int] = field(default_factory=dict)


class PromisedSaving(Struct, frozen=True):
    """What a fix of a finding was predicted to save, in ns a step, and which part of the step it is about.

    `line`: the first own line that its evidence names, `train.py(10): forward`; "" if none. `origin`: the folder or
    package of a rule that does not come with perfdoctor. `symptom_of`: the rule of its cause; "" for a cause.
    """

    rule: str
    title: str
    low: float
    likely: float
    high: float
    parts: tuple[str, ...] = ()
    line: str = ""
    origin: str = ""
    symptom_of: str = ""


class Snapshot(Struct, frozen=True):
    """One run, reduced to what is compared. `parts` sum to `step_ns`, as `work` does; both are of a mean step.

    `settings`: what it ran with, by the names of `settings.SETTINGS`. `basis`: what a step is called; "" if none was
    found. `by_op`: does `work` know more than the names of kernels? `by_kernel`: does it know these? If not, `work` and
    `compute` are empty. `predictions`: the likely step after the first
    fixes together, by the rules fixed. `checked`: the rules that could be checked. `unrecorded_ns`: None if unknown.
    `lines`: own functions, by file and name, with the ns a step of the work that they launch themselves (without a GPU,
    of their own time); empty where stacks were not recorded. `notes`: what reading it had to leave out. `timed`: the
    steps that were timed without a recorder, where there are enough. `project`: its id and program; "" if unknown.
    `counters`: what the GPU's own ones showed while kernels ran, by metric, as shares of the peak (0-1).
    """

    name: str
    step_ns: float
    basis: str
    steps: StepSample
    parts: Mapping[str, float]
    compute: Mapping[str, float]
    work: tuple[WorkTime, ...]
    by_op: bool
    findings: tuple[PromisedSaving, ...]
    checked: frozenset[str]
    predictions: Mapping[tuple[str, ...], tuple[float, float, float]]
    memory: tuple[Memory, ...]
    settings: Mapping[str, str]
    without_gpu: bool
    unrecorded_ns: float | None = None
    items_per_step: float | None = None
    notes: tuple[str, ...] = ()
    lines: Mapping[str, float] = field(default_factory=dict)
    by_kernel: bool = True
    timed: StepSample | None = None
    project: str = ""
    counters: Mapping[str, float] = field(default_factory=dict)


class Setting(Struct, frozen=True):
    """Something beside the code that differs. `matters`: steps that differ in it are no longer the same work."""

    name: str
    before: str
    after: str
    matters: bool = False


class Contribution(Struct, frozen=True):
    """What one cause brings to the difference of the mean step, in whole ns. `rules` speak of it."""

    key: str
    label: str
    before_ns: int
    after_ns: int
    delta_ns: int
    fate: Fate
    rules: tuple[str, ...] = ()


class Changed(Struct, frozen=True):
    """What one kind of work contributes to the difference. `label`: what it is called.

    `matched_by`: what both sides have in common. `was`, `now`: names on the device, where they differ.
    """

    part: str
    label: str
    matched_by: str
    where: str
    was: tuple[str, ...]
    now: tuple[str, ...]
    before_ns: int
    after_ns: int
    delta_ns: int
    before_count: float
    after_count: float
    fate: Fate


class FindingChange(Struct, frozen=True):
    """`line`: the first own line that the evidence names, of AFTER where it is there; "" if none."""

    rule: str
    title: str
    fate: FindingFate
    before_ns: float
    after_ns: float
    line: str = ""
    origin: str = ""


class Promise(Struct, frozen=True):
    """What was predicted for BEFORE, next to what AFTER shows, in ns a step. `rules`: the findings fixed.

    `shown_ns`: by how much the step, or the part that the finding is about, got shorter; `same_items`: of as many items
    as before, where batches differ.
    """

    rules: tuple[str, ...]
    title: str
    low: float
    likely: float
    high: float
    shown_ns: float
    kept: Kept
    because: str
    whole: bool = False
    same_items: bool = False


class LineChange(Struct, frozen=True):
    """An own function: the work that it launches itself, in ns a step."""

    name: str
    before_ns: float
    after_ns: float


class HolderChange(Struct, frozen=True):
    """What one line held of a peak; -1 where it is not among those of which that is known, the largest."""

    line: str
    before_bytes: int
    after_bytes: int


class MemoryChange(Struct, frozen=True):
    """A peak. `holders`: the lines whose part of it changed most; empty where one side did not record them."""

    rank: int
    device: int
    before_bytes: int
    after_bytes: int
    holders: tuple[HolderChange, ...] = ()


class CounterChange(Struct, frozen=True):
    """One of the GPU's own counters while kernels ran, on the mean of all GPUs: shares of its peak (0-1)."""

    metric: str
    label: str
    before: float
    after: float


class Comparison(Struct, frozen=True):
    """`causes` sum to `difference_ns` exactly, and so do `work` and `work_rest_ns`: both are the difference of the mean
    steps that were recorded, and `recording_ns`, where unrecorded steps are compared, what recording itself added.
    `item`: where batches are known and differ, the same as `step` of the time that one item takes. `common_share`: of
    the compute time of the first runs, which has names that both have (0-1), on the side where it is less; None if
    unknown. `not_comparable`: why the difference says nothing of the program, in clauses; () where it does.
    `peaks`: the largest peak of each side in bytes, and `of_peaks` the verdict on them, where nothing but memory was
    recorded: there is no step then, and `step.change` is theirs.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    step: StepChange
    basis: str
    without_gpu: bool
    settings: tuple[Setting, ...]
    unknown_settings: tuple[str, ...]
    before_ns: int
    after_ns: int
    difference_ns: int
    recording_ns: int
    causes: tuple[Contribution, ...]
    work: tuple[Changed, ...]
    work_rest_ns: int
    work_rest_count: int
    findings: tuple[FindingChange, ...]
    promises: tuple[Promise, ...]
    memory: tuple[MemoryChange, ...]
    counters: tuple[CounterChange, ...] = ()
    items_before: float | None = None
    items_after: float | None = None
    item: StepChange | None = None
    common_share: float | None = None
    lines: tuple[LineChange, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
    not_comparable: tuple[str, ...] = ()
    peaks: tuple[int, int] | None = None
    of_peaks: Verdict = "no change"

    @property
    def verdict(self) -> Verdict:
        if self.peaks is not None:
            return self.of_peaks
        return "not comparable" if self.not_comparable else self.judged.verdict

    def is_longer_by(self, limit: float) -> bool:
        """Is the step surely longer by more than this share, and by the program?"""
        return not self.not_comparable and self.judged.is_longer_by(limit)

    @property
    def may_be_two_programs(self) -> bool:
        """Is so little of the work the same that another program, or other kernels throughout, were recorded?"""
        return self.common_share is not None and self.common_share < LEAST_IN_COMMON

    @property
    def judged(self) -> StepChange:
        """The change whose verdict is given: that of an item if batches differ, since a longer step may hold more."""
        return self.item or self.step

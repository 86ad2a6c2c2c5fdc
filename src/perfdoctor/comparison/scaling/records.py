"""What does a series over numbers of GPUs hand on? Numbers and names: reports only format them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from perfdoctor.comparison.records import Changed, FindingChange, Snapshot
from perfdoctor.model.run import Run

#: weak: each rank has the same work. strong: all ranks share the work of one. "": neither is known.
Kind = Literal["weak", "strong", ""]
#: Of what one step of all ranks counts: items, steps of one rank, or steps.
Counted = Literal["items", "rank steps", "steps"]
#: How more ranks are predicted.
Way = Literal["replay", "fit"]


class Recorded(Struct, frozen=True):
    """One recording of the series. `ranks`: 0 if unknown. `work`: how much one rank has in a step, by what shows it
    (`recorded.MEASURES`). `run`: what a replay needs; None where it was not read.
    """

    snapshot: Snapshot
    ranks: int
    work: Mapping[str, float] = field(default_factory=dict)
    run: Run | None = None


class Rung(Struct, frozen=True):
    """All recordings among so many ranks. `step_ns`: the mean step. `throughput`: in `Counted` a second.

    `speedup`: throughput over that of the fewest ranks; `efficiency`: the same over what the number of ranks alone
    would bring, with its 95 % interval (None where a single step shows no spread). `serial_share`: what of the step of
    the fewest ranks was not shared, by Karp and Flatt; None where it is not asked (see `laws`).
    """

    ranks: int
    names: tuple[str, ...]
    step_ns: float
    steps: int
    throughput: float
    speedup: float
    efficiency: float
    efficiency_low: float | None
    efficiency_high: float | None
    serial_share: float | None = None


class CauseGrowth(Struct, frozen=True):
    """One cause over the series. `times_ns`: a step, one a rung. `over_ns`: what of it is more than its share of the
    step of the fewest ranks. `per_doubling_ns`: by how much that grows with each doubling, and its standard error (None
    where two rungs show none).
    """

    key: str
    label: str
    part: str
    times_ns: tuple[float, ...]
    over_ns: tuple[float, ...]
    per_doubling_ns: float
    error_ns: float | None


class SerialCause(Struct, frozen=True):
    key: str
    label: str
    share: float
    error: float | None


class Serial(Struct, frozen=True):
    """What acts as if it were serial, as a share of the step of the fewest ranks (amdahl) or of the most (gustafson).

    The `causes` sum to `share`. `limit`: the speed-up over the fewest ranks that no number exceeds; None without one.
    """

    law: Literal["amdahl", "gustafson"]
    share: float
    error: float | None
    limit: float | None
    causes: tuple[SerialCause, ...]


class Forecast(Struct, frozen=True):
    """The step among `ranks`, from those of `known`: likely, and between which bounds. `by`: a replay of the largest of
    them, or the law that is fitted to all. `measured_ns`, `error`: where they were recorded; predicted over measured,
    less 1. `throughput`: of `step_ns`.
    """

    by: Way
    known: tuple[int, ...]
    ranks: int
    step_ns: float
    low_ns: float
    high_ns: float
    throughput: float
    measured_ns: float | None = None
    error: float | None = None


class SettingOver(Struct, frozen=True):
    """Something beside the number of ranks that differs: its values, each with the ranks that have it."""

    name: str
    values: tuple[tuple[str, tuple[int, ...]], ...]
    matters: bool


class ScalingResult(Struct, frozen=True):
    """`growth` sums to `whole`, the step's. `work`: as in a comparison, of the most ranks with the share of the fewest.

    `checked`: the largest rung, left out and predicted. `ahead`: twice as many. `unpredicted`: why a replay says
    nothing.
    """

    kind: Kind
    kind_from: str
    counted: Counted
    basis: str
    without_gpu: bool
    settings: tuple[SettingOver, ...]
    rungs: tuple[Rung, ...]
    growth: tuple[CauseGrowth, ...]
    whole: CauseGrowth
    work: tuple[Changed, ...]
    work_rest_ns: int
    work_rest_count: int
    serial: Serial | None
    checked: tuple[Forecast, ...]
    ahead: tuple[Forecast, ...]
    unpredicted: str
    findings: tuple[FindingChange, ...]
    notes: tuple[str, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(each.ranks for each in self.rungs)

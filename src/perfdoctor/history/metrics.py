"""Which numbers of a run can be followed over time, in which unit, and which way is better?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from perfdoctor.errors import UsageError
from perfdoctor.history.facts import Row
from perfdoctor.vocabulary.nearest import near
from perfdoctor.vocabulary.parts import IDLE_CAUSES, PARTS

STEP = "step_ns"
Better = Literal["lower", "higher"]


class Metric(Struct, frozen=True):
    """`column` of `runs`; "" for a part of the step. `unit`: as in `records.views.Unit`."""

    name: str
    label: str
    unit: Literal["ns", "share", "bytes", "number"]
    better: Better
    column: str = ""

    def of(self, row: Row, parts: Mapping[str, int]) -> float | None:
        """The value for the run of this `row`, with its `parts` in ns; None if it is not known."""
        value: float | None
        if self.column == STEP:
            value = step_ns(row)
        elif self.column:
            value = row.get(self.column)
        elif self.name == "spread":
            high, low = row.get("p90_ns"), row.get("p10_ns")
            apart = high - low if isinstance(high, int) and isinstance(low, int) else None
            value = _share(apart, row.get("median_ns"))
        else:
            names = IDLE_CAUSES if self.name == "idle" else (self.name,)
            share = _share(sum(parts.get(name, 0) for name in names), row.get("window_ns"))
            step = row.get("recorded_step_ns")
            value = share * step if share is not None and isinstance(step, int) else None
        return float(value) if isinstance(value, int | float) else None


def step_ns(row: Row) -> int | None:
    """The mean step without a recorder wherever that is known, also where it differs little from the recorded one:
    in a series of runs a step that is the one now and the other then would change by itself.
    """
    known = row.get("unrecorded_step_ns") or row.get(STEP)
    return known if isinstance(known, int) else None


def percentile_ns(row: Row, column: str) -> float | None:
    """`p10_ns` or `p90_ns` (the `column`), scaled from the recorded steps to steps as long as `step_ns`."""
    value, step, recorded = row.get(column), step_ns(row), row.get("recorded_step_ns")
    if not isinstance(value, int):
        return None
    return value * step / recorded if step and isinstance(recorded, int) and recorded > 0 else float(value)


def _share(part: float | None, whole: object) -> float | None:
    return part / whole if part is not None and isinstance(whole, int) and whole > 0 else None


_OF_RUNS = (
    Metric("step", "step time", "ns", "lower", STEP),
    Metric("median", "median step time", "ns", "lower", "median_ns"),
    Metric("p90", "90th percentile of the step times", "ns", "lower", "p90_ns"),
    Metric("spread", "spread of the step times (10th to 90th percentile, of the median)", "share", "lower"),
    Metric("predicted", "step time with all fixes", "ns", "lower", "predicted_ns"),
    Metric("throughput", "tokens or targets a second", "number", "higher", "items_per_second"),
    Metric("mfu", "MFU", "share", "higher", "mfu"),
    Metric("hfu", "HFU", "share", "higher", "hfu"),
    Metric("memory", "peak memory in use", "bytes", "lower", "peak_memory_bytes"),
    Metric("reserved", "most memory reserved", "bytes", "lower", "reserved_memory_bytes"),
    Metric("idle", "idle time of a step", "ns", "lower"),
)
METRICS: Mapping[str, Metric] = {
    **{each.name: each for each in _OF_RUNS},
    **{name: Metric(name, f"{part.label}, of a step", "ns", "lower") for name, part in PARTS.items()},
}


def metric(name: str) -> Metric:
    """The metric of this name, with or without its unit: `step`, `step_ns`, `input-wait`. Raises UsageError."""
    wanted = name.lower().replace("-", "_")
    for candidate in (wanted, wanted.removesuffix("_ns"), wanted.removesuffix("_bytes"), wanted.removesuffix("_share")):
        if candidate in METRICS:
            return METRICS[candidate]
    raise UsageError(f"{name[:60]!r} is no metric of a run", do=near(wanted, METRICS))

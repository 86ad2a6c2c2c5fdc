"""Why does a measured kernel reach no limit of the device, and how much shorter could a step be?

Each kernel has one reason, so that no two rules count its time: it fetches sectors of memory of which it uses a part,
or too few warps are there to hide its waits, or it is something else. Kernels that other rules speak about, by what
they are and not by what was measured of them, are left to those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.grouping import combined, weighted_mean
from perfdoctor.metrics.kernels.matmul_sizes import misaligned_matmuls
from perfdoctor.metrics.kernels.optimizer import in_optimizer
from perfdoctor.metrics.kernels.profiles import Measured, launches_alone, measured
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats, Mask
from perfdoctor.records.findings import Evidence, Measure, Rows, Value
from perfdoctor.records.savings import CASES, Saving
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES, stall_label
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names.base_names import base_name

#: How many kernels, or words of NVIDIA's rules, a table of a finding names.
_TABLE_ROWS = 5
_NOT_MEASURED = "–"
#: The columns of a finding's table and the numbers of `kernel_profiles` in them.
_SHOWN = {
    "SMs": "sm_share",
    "tensor cores": "tensor_share",
    "memory": "memory_share",
    "DRAM": "dram_share",
    "warps": "occupancy_share",
}


class Bounds(Struct, frozen=True):
    """What counts as far from a limit: shares of a kernel's sectors, of a unit's peak, of a processor's warps; ns."""

    excess_share: float
    kernel_ns: float
    busy_share: float = 0
    occupancy_share: float = 0

    def wasteful(self, kernels: Measured) -> Mask:
        """Kernels that ask for many more sectors than their threads use."""
        rows: Mask = kernels.known & (kernels.number("excess_sector_share") >= self.excess_share)
        return rows & (kernels.rows.duration_ns >= self.kernel_ns)

    def few_warps(self, kernels: Measured) -> Mask:
        """Kernels far from each limit that leave most of the places for warps empty, or SMs without any block.

        Nsight Compute counts the warps of those SMs that have some.
        """
        occupancy = kernels.number("occupancy_share")
        empty = (occupancy < self.occupancy_share) | (~np.isnan(occupancy) & (kernels.used_sms_share < 1))
        return self._far(kernels) & empty

    def other(self, kernels: Measured) -> Mask:
        """Kernels far from each limit with warps enough, or whose number of warps is unknown."""
        return self._far(kernels) & ~self.few_warps(kernels)

    def _far(self, kernels: Measured) -> Mask:
        long: Mask = kernels.rows.duration_ns >= self.kernel_ns
        return long & (kernels.busiest_share < self.busy_share) & ~self.wasteful(kernels)


class Claim(Struct, frozen=True):
    """All kernels of one reason. Times are per step and place; `alone`: of all measured launches together.

    `rows` are those of `kernels`, the place where they take most; `units` the steps that it holds.
    """

    run: Run
    chosen: Callable[[Place], tuple[Measured, Mask]]
    kernels: Measured
    rows: Mask
    units: int
    alone: bool

    @property
    def time_ns(self) -> int:
        """How long these kernels, and no other, keep the device computing."""
        if self.alone:
            return int(self.kernels.time_ns[self.rows].sum())
        return self.run.mean(lambda place: place.alone_ns(self.chosen(place)[1]))

    @property
    def whole_ns(self) -> int:
        return int(self.kernels.time_ns.sum()) if self.alone else self.run.step_ns

    @property
    def share(self) -> float:
        return self.time_ns / self.whole_ns if self.whole_ns else 0.0

    @property
    def measured_share(self) -> float:
        """How much of all kernels' time is of kernels that were measured."""
        total = self.kernels.time_ns.sum()
        return float(self.kernels.time_ns[self.kernels.known].sum() / total) if total else 0.0

    @property
    def affected_ns(self) -> int:
        """The part of the step that a saving is of; 0 without a timeline."""
        return 0 if self.alone else self.time_ns

    def sentence_values(self, gain_ns: int) -> dict[str, Value]:
        """The numbers in the sentence of each of these rules: how many kernels a step, their time, and the longest.

        `gain_ns`: what launches without a timeline lose of their time at the roofline, 0 where that is not known.
        """
        longest = int(np.argmax(np.where(self.rows, self.kernels.time_ns, -1)))
        return {
            "kernels": float(self.rows.sum() / self.units),
            "kernels_ms": ms(self.time_ns),
            "step_ms": ms(self.whole_ns),
            "kernels_percent": percent(self.share),
            "name": base_name(self.kernels.rows.name[longest]),
            "at_peak_ms": ms(self.time_ns - gain_ns) if gain_ns else 0.0,
        }

    def saving(self, share: Callable[[Measured, str], Floats], hoped: Callable[[Measured], Floats]) -> Saving:
        """What a step gets shorter by. `share`: what each kernel loses of its time in one of CASES.

        `hoped`: what NVIDIA's own rules estimate, NaN where they do not say. Low and likely are no more than that.
        """

        def lost(kernels: Measured, case: str) -> Floats:
            most = share(kernels, case)
            return most if case == "high" else np.minimum(most, np.nan_to_num(hoped(kernels), nan=1.0))

        low, likely, high = (self.won_ns(partial(lost, case=case)) for case in CASES)
        return Saving(low, likely, high)

    def won_ns(self, share: Callable[[Measured], Floats]) -> int:
        """What a step gets shorter by where each kernel loses this share of its time; 0 without a timeline."""

        def won(place: Place) -> float:
            kernels, rows = self.chosen(place)
            time_ns = kernels.time_ns[rows]
            if not time_ns.sum():
                return 0.0
            lost = np.clip(np.nan_to_num(share(kernels)[rows]), 0, 1)
            # Of kernels that run beside others only what they run alone shortens a step.
            return float((time_ns * lost).sum() / time_ns.sum()) * place.alone_ns(rows)

        return 0 if self.alone else self.run.mean(won)

    def measured_gain_ns(self, share: Callable[[Measured, str], Floats]) -> int:
        """What these launches lose of their own time at the most, where no timeline says what that is to a program."""
        if not self.alone:
            return 0
        lost = np.clip(np.nan_to_num(share(self.kernels, "high")[self.rows]), 0, 1)
        return int((self.kernels.time_ns[self.rows] * lost).sum())

    def mean(self, values: Floats) -> float:
        """A number of these kernels, each counting as long as it ran; NaN where it is not known of any."""
        return weighted_mean(values[self.rows], np.maximum(self.kernels.time_ns[self.rows], 1))

    def work(self) -> Mapping[tuple[int, int], Mask]:
        """By place the rows of these kernels, as a replay asks for them; empty without a timeline."""
        return {} if self.alone else work_of(self.run, lambda place: self.chosen(place)[1])


def claim(run: Run, choose: Callable[[Measured], Mask], *, with_eager: bool = False) -> Claim:
    """The kernels that `choose` picks of all that were measured, but those that other rules speak about.

    `with_eager`: also PyTorch's own element-wise kernels. Those are not rewritten: they are fused away, of which
    elementwise-chains and precision-casts speak; but in which order they read is up to the program.
    """

    @once_per_place
    def chosen(place: Place) -> tuple[Measured, Mask]:
        others = _of_other_rules(place)
        if not with_eager:
            eager = place.kernels.name.where(lambda name: "at::native::" in name)
            others = others | (place.kernel_rows("elementwise") & eager)
        return measured(place), choose(measured(place)) & ~others

    if not run.places:
        kernels = launches_alone(run.timeline)
        return Claim(run, chosen, kernels, choose(kernels), 1, alone=True)
    worst = run.worst(lambda place: place.alone_ns(chosen(place)[1]))
    return Claim(run, chosen, *chosen(worst), worst.units, alone=False)


def _of_other_rules(place: Place) -> Mask:
    """Optimizers, changes of layout, single channels, odd sizes, and matmuls that tensor cores could have done."""
    names = place.kernels.name
    plain = names.has(kernel_names.math_path, "no_tensor_core")
    return (
        in_optimizer(place)
        | place.kernel_rows("optimizer")
        | names.where(kernel_names.is_layout_change)
        | names.where(kernel_names.is_depthwise)
        | misaligned_matmuls(place).rows
        | (plain & place.kernel_rows(*MATMUL_FAMILIES))
    )


# --- evidence ---


def evidence(found: Claim, shares: Mapping[str, Floats], *, with_advice: bool = True) -> tuple[Evidence, ...]:
    """How long these kernels take, the named shares of them where they were measured, and the largest of them.

    `with_advice`: and what NVIDIA's rules hope for, which is nothing to kernels at their limit.
    """
    known = {label: found.mean(values) for label, values in shares.items()}
    advice = _advice(found) if with_advice else None
    return (
        Measure("their time", found.time_ns, "ns"),
        *(Measure(label, value, "share") for label, value in known.items() if not np.isnan(value)),
        *(
            ()
            if found.alone
            else (Measure("of all kernel time, that of measured kernels", found.measured_share, "share"),)
        ),
        _largest(found),
        *((advice,) if advice else ()),
    )


def _largest(found: Claim) -> Rows:
    """The kernels that take most time, with what was measured of them."""
    kernels = found.kernels
    own = np.flatnonzero(found.rows)
    # Launches stand for themselves where there is no timeline: those of one size are one row, with their means.
    kind = kernels.rows["blocks"] if found.alone else kernels.stands_in
    group, first = combined(kernels.rows.name.codes[own].astype(np.int64), kind[own])
    time_ns, count = np.bincount(group, weights=kernels.time_ns[own]), np.bincount(group)
    numbers = {title: kernels.number(column) for title, column in _SHOWN.items()}
    rows: list[tuple[Value, ...]] = []
    for at in np.argsort(-time_ns, kind="stable").tolist()[:_TABLE_ROWS]:
        row = int(own[first[at]])
        members = own[group == at] if found.alone else own[first[at] : first[at] + 1]
        shares = (
            weighted_mean(values[members], np.maximum(kernels.time_ns[members], 1)) for values in numbers.values()
        )
        shown = (_NOT_MEASURED if np.isnan(share) else share for share in shares)
        waits = stall_label(kernels.word("stall", row)) or _NOT_MEASURED
        rows.append((
            kernels.rows.name[row], count[at] / found.units, int(time_ns[at] / found.units), *shown, waits
        ))  # fmt: skip
    label = "Largest of them" if found.alone else "Largest of them, a step"
    columns = ("kernel", "count", "time", *_SHOWN, "waits for")
    return Rows(label, columns, ("text", "count", "ns", *("share",) * len(_SHOWN), "text"), tuple(rows))


def _advice(found: Claim) -> Rows | None:
    """What NVIDIA's rules say of these kernels, the largest estimates first; None where they say nothing."""
    kernels, of_rows = found.kernels, np.unique(found.kernels.stands_in[found.rows])
    launches = np.unique(np.concatenate([kernels.sets[number] for number in of_rows.tolist()] or [[]]))
    advice = kernels.advice
    advice = advice.take(np.isin(advice["launch"], kernels.profiles["launch"][launches.astype(np.int64)]))
    advice = advice.take(~np.isnan(advice.floats("speedup_share")))
    best: dict[tuple[str, str], float] = {}
    for rule, whole, share in zip(advice.name, advice["is_global"], advice.floats("speedup_share"), strict=True):
        key = rule, "the kernel" if whole else "a part of it"
        best[key] = max(best.get(key, 0.0), float(share))
    rows = sorted(((*key, share) for key, share in best.items()), key=lambda row: (row[1] != "the kernel", -row[2]))
    if not rows:
        return None
    columns = ("NVIDIA's rule", "of", "estimated")
    return Rows("What NVIDIA's rules hope for", columns, ("text", "text", "share"), tuple(rows[:_TABLE_ROWS]))

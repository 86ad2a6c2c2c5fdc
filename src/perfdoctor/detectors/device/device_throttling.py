"""Something holds the clocks of a GPU down while it works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.detectors.saved_shares import at_most
from perfdoctor.metrics.communication.lateness import excess_ns, won_ns
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.counters.clocks import clocks_of
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.grouping import of_known
from perfdoctor.metrics.kernels.same_kernels import same_kernels
from perfdoctor.metrics.machine.gpu_samples import HELD_BY, SampledGpu, free_clock_mhz, gpus, lost_ns, of_places, table
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Mask
from perfdoctor.records.findings import Evidence, Finding, Measure
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES

#: By what the clocks are held down (keys of `device_state.HELD_BY`), and the words for it.
_CAUSES = {
    "heat": "heat",
    "brake": "the power brake",
    "hardware": "the hardware itself",
    "power": "the power limit",
    "clocks-set": "clocks that were set",
    "counted": "what was not recorded",
    "counted-low": "what was not recorded",
}
#: By the counters alone: that it is so, and not why.
_COUNTED = ("counted", "counted-low")
#: The golden ratio: its multiples fall nowhere into step with a pattern.
_GOLDEN = (5**0.5 - 1) / 2


class _Held(Struct, frozen=True):
    """GPUs that one cause holds down. `held`: for each GPU the samples under load in which it does.

    `placed`: whose GPU each is, where that need not be found out.
    """

    cause: str
    affected: list[SampledGpu]
    held: list[Mask]
    samples: int
    share: float
    clock_mhz: float
    free_mhz: float
    is_measured: bool
    placed: Mapping[tuple[int, int], SampledGpu] = {}

    @property
    def loss(self) -> float:
        """The lost share of the clock; NaN where clocks are unknown."""
        return 1 - self.clock_mhz / self.free_mhz


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the cause for which the driver says that clocks are held down; else clocks locked far below the highest."""
    sampled = gpus(run.timeline)
    files = [[gpu for gpu in sampled if gpu.file == file] for file in dict.fromkeys(gpu.file for gpu in sampled)]
    held = [_held(of_file, cause, at) for of_file in files for cause in HELD_BY]
    # A limit that costs next to no clock is none. Where clocks are unknown, the driver's reason counts.
    found = [each for each in held if each and not each.loss < at["min_clock_loss"]] or _standing_still(sampled, at)
    found = found or _counted(run, at)
    if not found:
        return
    worst = max(found, key=lambda each: each.share * np.nan_to_num(each.loss, nan=0.0))
    losses = _losses(run, worst, at)
    won = _won(run, worst, losses)
    if worst.cause in _COUNTED and won.kernels_ns < at["min_share_of_step"] * run.step_ns:
        return  # no reading of the driver says that anything is wrong
    saving = won.saving(at["sure_share"])
    work, affected_ns = _moved(run, losses)
    clocks_known = not np.isnan(worst.loss)
    evidence: list[Evidence] = [Measure("samples under load in which it is so", worst.share, "share")]
    if (rows := table(sampled, at["min_load_share"])) is not None:
        evidence.append(rows)
    yield Finding(
        rule="device-throttling",
        saving_ns_per_step=saving,
        confidence="low" if not clocks_known else "high" if worst.samples >= at["many_samples"] else "medium",
        values={
            "gpus": len(worst.affected),
            "sampled": len(worst.placed) or sum(gpu.file == worst.affected[0].file for gpu in sampled),
            "gpu": worst.affected[0].device,
            "held_percent": percent(worst.share),
            "samples": worst.samples,
            "clock_mhz": worst.clock_mhz if clocks_known else 0,
            "free_mhz": worst.free_mhz if clocks_known else 0,
            "reason": _CAUSES[worst.cause],
            "products_ms": ms(won.products_ns),
            "kernels_ms": ms(won.kernels_ns),
        },
        evidence=tuple(evidence),
        situation=worst.cause if clocks_known else "untold",
        formula=won.formula,
        explains=_explains(run, losses) if saving.likely else (),
        work=work,
        affected_ns=affected_ns,
    )


def _held(sampled: list[SampledGpu], cause: str, at: Mapping[str, float]) -> _Held | None:
    """The GPUs that this cause holds down for long enough; None if there are none, or too few samples to say so."""
    load = at["min_load_share"]
    masks = [(gpu, gpu.under_load(load) & (gpu.samples["reasons"] != UNKNOWN)) for gpu in sampled]
    pairs = [(gpu, loaded, loaded & gpu.held_by(cause)) for gpu, loaded in masks if loaded.any()]
    pairs = [each for each in pairs if each[2].sum() >= at["min_share_of_time"] * each[1].sum()]
    samples = int(sum(loaded.sum() for _, loaded, _ in pairs))
    if samples < at["min_samples"]:
        return None
    pairs.sort(key=lambda each: -float(each[2].mean()))
    worst, _, held = pairs[0]
    others = [gpu for gpu in sampled if gpu is not worst and gpu.name == worst.name]
    free, is_measured = free_clock_mhz(worst, others, load, int(at["min_samples"]))
    clocks = worst.floats("sm_clock_mhz")[held]
    known = clocks[~np.isnan(clocks)]
    return _Held(
        cause,
        [gpu for gpu, _, _ in pairs],
        [mask for _, _, mask in pairs],
        samples,
        float(sum(mask.sum() for _, _, mask in pairs) / samples),
        float(np.median(known)) if known.size else float("nan"),
        free,
        is_measured,
    )


def _standing_still(sampled: list[SampledGpu], at: Mapping[str, float]) -> list[_Held]:
    """The GPUs whose clocks were locked by hand: they stand still under load, without a reason in NVML."""
    found = []
    for gpu in sampled:
        clocks = gpu.floats("sm_clock_mhz")
        loaded = gpu.under_load(at["min_load_share"]) & ~np.isnan(clocks) & (gpu.samples["reasons"] != UNKNOWN)
        highest = gpu.floats("max_sm_clock_mhz")
        if loaded.sum() < at["many_samples"] or np.isnan(highest).all() or gpu.is_held()[loaded].any():
            continue
        clock, most = float(np.median(clocks[loaded])), float(np.nanmax(highest))
        if np.ptp(clocks[loaded]) <= at["max_clock_spread_mhz"] and 1 - clock / most >= at["min_locked_loss"]:
            found.append(_Held("clocks-set", [gpu], [loaded], int(loaded.sum()), 1.0, clock, most, False))
    return found


def _counted(run: Run, at: Mapping[str, float]) -> list[_Held]:
    """The GPUs whose own counters show that the clock falls under load and comes back, or stays low; by what, they do
    not know.
    """
    placed = {place.rank_and_device: gpu for place in run.places if (gpu := clocks_of(place)) is not None}
    slowed = []
    for gpu in placed.values():
        loaded, clocks = gpu.under_load(at["min_load_share"]), gpu.floats("sm_clock_mhz")
        loaded &= ~np.isnan(clocks)
        if loaded.sum() < at["many_samples"]:
            continue
        free = float(np.quantile(clocks[loaded], 1 - at["min_share_of_time"]))
        most = of_known(np.nanmax, gpu.floats("max_sm_clock_mhz"))
        is_low = free <= most * (1 - at["min_low_loss"])
        free, cause = (most, "counted-low") if is_low else (free, "counted")
        held = loaded & (clocks <= free * (1 - at["min_clock_loss"]))
        if held.sum() >= at["min_share_of_time"] * loaded.sum():
            share = float(held.sum() / loaded.sum())
            clock = float(np.median(clocks[held]))
            slowed.append(_Held(cause, [gpu], [held], int(loaded.sum()), share, clock, free, not is_low, placed))
    return slowed


# --- what it costs ---------------------------------------------------------------------------------------------------


def _limited_by_clock(place: Place) -> Mask:
    """One bool a kernel: is it a matrix product, which waits for the SMs, and not for memory or launches?"""
    return place.kernel_rows(*MATMUL_FAMILIES)


def _work(place: Place) -> Intervals:
    rows = _limited_by_clock(place)
    return Intervals.of(place.kernels.start_ns[rows], place.kernels.end_ns[rows]) & place.window


class _Loss(Struct, frozen=True):
    """What a place loses while its GPU is held down, in ns a step: of its products' time, and of all its kernels'."""

    place: Place
    products_ns: float
    of_products: float
    of_all: float

    @property
    def share(self) -> float:
        """The lost share of the time of its products."""
        return self.of_products / self.products_ns if self.products_ns else 0.0


def _losses(run: Run, worst: _Held, at: Mapping[str, float]) -> list[_Loss]:
    """The losses of the places on the GPUs that are held; [] where their ranks or the loss are unknown."""
    if np.isnan(worst.loss):
        return []
    placed = worst.placed or of_places(run, at["min_load_share"], "sm_clock_mhz")
    held = {(gpu.device, gpu.file): mask for gpu, mask in zip(worst.affected, worst.held, strict=True)}
    losses = []
    for place in run.places:
        gpu = placed.get(place.rank_and_device)
        if gpu is not None and (mask := held.get((gpu.device, gpu.file))) is not None:
            work = _work(place)
            of_products, of_all = (lost_ns(place, gpu, mask, w, worst.free_mhz) for w in (work, place.compute))
            losses.append(_Loss(place, *(ns / place.units for ns in (work.total_ns, of_products, of_all))))
    return losses


class _Won(Struct, frozen=True):
    """What a step gets shorter by at the free clock, in ns: its products, all its kernels. `formula`: how sure it is.

    `inferred`: the free clock was not seen under load; `bounded`: whether the clock can be raised is unknown.
    """

    products_ns: int = 0
    kernels_ns: int = 0
    formula: str = ""

    def saving(self, sure_share: float) -> Saving:
        if self.formula == "bounded":
            return at_most(self.kernels_ns)
        sure = int(self.products_ns * sure_share)
        return Saving(sure, sure if self.formula == "inferred" else self.products_ns, self.kernels_ns)


def _won(run: Run, worst: _Held, losses: Sequence[_Loss]) -> _Won:
    limit, usual = (worst.affected[0].floats(column) for column in ("power_limit_w", "default_power_limit_w"))
    was_lowered, is_known = (limit < usual).any(), not np.isnan(limit + usual).all()
    # A power limit at the board's own value is no mistake: only one below it was set on purpose.
    if not losses or (worst.cause == "power" and is_known and not was_lowered):
        return _Won()
    products = round(won_ns(run, {loss.place.rank_and_device: loss.of_products for loss in losses}))
    kernels = max(round(won_ns(run, {loss.place.rank_and_device: loss.of_all for loss in losses})), products)
    if worst.cause in _COUNTED or (worst.cause == "power" and not was_lowered):
        return _Won(products, kernels, "bounded")
    return _Won(products, kernels, "" if worst.is_measured else "inferred")


def _moved(run: Run, losses: Sequence[_Loss]) -> tuple[Mapping[tuple[int, int], Mask], int]:
    """The products of the places that lose, and their time in ns a step, of which the saving is a share.

    One share is simulated on all places: that of the one that loses most. Of another's products so many are chosen that
    it gets back what it loses, and not more.
    """
    most = max((loss.share for loss in losses), default=0.0)
    if not most:
        return work_of(run, _limited_by_clock), run.mean(lambda place: _work(place).total_ns)
    chosen = {}
    for loss in losses:
        rows = _limited_by_clock(loss.place)
        # Multiples of the golden ratio spread them so that they fall in with no pattern.
        chosen[loss.place.rank_and_device] = rows & (np.modf(np.cumsum(rows) * _GOLDEN)[0] < loss.share / most)
    won = won_ns(run, {loss.place.rank_and_device: loss.of_products for loss in losses})
    return chosen, max(round(won / most), 1)


# --- what it makes others seem to have -------------------------------------------------------------------------------


def _explains(run: Run, losses: Sequence[_Loss]) -> tuple[str, ...]:
    """The rules that see nothing but this: the rank that comes late, or whose kernels are slow, is one that is held.

    It must lose more than the median of the others by at least half of what it has too much of.
    """
    lost = {place.rank_and_device: 0.0 for place in run.places}
    lost |= {loss.place.rank_and_device: loss.of_products for loss in losses}

    def beyond_others(place: JobPlace) -> float:
        others = [ns for key, ns in lost.items() if key != place.rank_and_device]
        return lost[place.rank_and_device] - float(np.median(others or [0.0]))

    return tuple(rule for rule, place, ns in _too_much(run) if 0 < ns <= 2 * beyond_others(place))


def _too_much(run: Run) -> Iterator[tuple[str, JobPlace, float]]:
    """By rule the rank that others wait for, or whose kernels are slow, and its excess over them in ns a step."""
    if (matched := skew(run)) is not None:
        places = [place for place in run.places if matched.has(place.rank) and len(place.collectives)]
        late = next(place for place in places if place.rank == matched.late_rank)
        yield "rank-skew", late, sum(excess_ns(places, matched)[late.rank].values()) / late.units
    if (same := same_kernels(run, 0)) is not None:
        slow = same.places[int(same.slowdown.argmax())]
        yield "gpus-differ", slow, slow.compute.total_ns / slow.units * (1 - 1 / float(same.slowdown.max()))

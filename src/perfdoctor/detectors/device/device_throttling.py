"""Something holds the clocks of a GPU down while it works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.detectors.saved_shares import at_most
from perfdoctor.metrics.communication.lateness import excess_ns, won_ns
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.kernels.same_kernels import same_kernels
from perfdoctor.metrics.machine.gpu_samples import SampledGpu, free_clock_mhz, gpus, lost_ns, of_places, table
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Floats, Mask
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
}
#: The golden ratio: its multiples fall nowhere into step with a pattern.
_GOLDEN = (5**0.5 - 1) / 2


class _Held(Struct, frozen=True):
    """GPUs that one cause holds down. `held`: one mask a GPU, the samples under load in which it does."""

    cause: str
    affected: list[SampledGpu]
    held: list[Mask]
    samples: int
    share: float
    clock_mhz: float
    free_mhz: float
    is_measured: bool

    @property
    def loss(self) -> float:
        """The share of the clock that is lost; NaN where clocks are unknown."""
        return 1 - self.clock_mhz / self.free_mhz


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """By what the driver says holds them, the worst first; else clocks that stand still far below what the GPU can."""
    sampled = gpus(run.timeline)
    files = [[gpu for gpu in sampled if gpu.file == file] for file in dict.fromkeys(gpu.file for gpu in sampled)]
    held = [_held(of_file, cause, at) for of_file in files for cause in _CAUSES]
    found = [each for each in held if each is not None and _matters(each, at)] or _standing_still(sampled, at)
    if not found:
        return
    worst = max(found, key=lambda each: each.share * np.nan_to_num(each.loss, nan=0.0))
    losses = _losses(run, worst, at)
    won = _won(run, worst, losses)
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
            "sampled": sum(gpu.file == worst.affected[0].file for gpu in sampled),
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


def _matters(held: _Held, at: Mapping[str, float]) -> bool:
    """A limit that costs next to no clock is none. Where clocks are unknown, the driver's reason counts."""
    return bool(np.isnan(held.loss) or held.loss >= at["min_clock_loss"])


def _standing_still(sampled: list[SampledGpu], at: Mapping[str, float]) -> list[_Held]:
    """Clocks locked by hand have no reason in NVML: they stand still under load, far below the highest."""
    found = []
    for gpu in sampled:
        clocks = gpu.floats("sm_clock_mhz")
        loaded = gpu.under_load(at["min_load_share"]) & ~np.isnan(clocks) & (gpu.samples["reasons"] != UNKNOWN)
        highest = gpu.floats("max_sm_clock_mhz")
        if loaded.sum() < at["many_samples"] or np.isnan(highest).all() or gpu.is_held()[loaded].any():
            continue
        spread = float(np.ptp(clocks[loaded]))
        clock, most = float(np.median(clocks[loaded])), float(np.nanmax(highest))
        if spread <= at["max_clock_spread_mhz"] and 1 - clock / most >= at["min_locked_loss"]:
            found.append(_Held("clocks-set", [gpu], [loaded], int(loaded.sum()), 1.0, clock, most, False))
    return found


# --- what it costs ---------------------------------------------------------------------------------------------------


def _limited_by_clock(place: Place) -> Mask:
    """Products of matrices: they wait for the SMs. What waits for memory or for launches does not care."""
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
    def key(self) -> tuple[int, int]:
        return self.place.rank, self.place.device or 0

    @property
    def share(self) -> float:
        """Of the time of its products."""
        return self.of_products / self.products_ns if self.products_ns else 0.0


def _losses(run: Run, worst: _Held, at: Mapping[str, float]) -> list[_Loss]:
    """Of the places on the GPUs that are held; [] where their ranks or the loss are unknown."""
    if np.isnan(worst.loss):
        return []
    placed = of_places(run, at["min_load_share"], "sm_clock_mhz")
    losses = []
    for place in run.places:
        gpu = placed.get((place.rank, place.device or 0))
        mask = next((m for g, m in zip(worst.affected, worst.held, strict=True) if gpu and _same(g, gpu)), None)
        if gpu is not None and mask is not None:
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
    if not losses or _is_the_boards_own(worst):
        return _Won()
    products = round(won_ns(run, {loss.key: loss.of_products for loss in losses}))
    kernels = max(round(won_ns(run, {loss.key: loss.of_all for loss in losses})), products)
    if worst.cause == "power" and not _was_lowered(worst):
        return _Won(products, kernels, "bounded")
    return _Won(products, kernels, "" if worst.is_measured else "inferred")


def _moved(run: Run, losses: Sequence[_Loss]) -> tuple[Mapping[tuple[int, int], Mask], int]:
    """The products of the places that lose, and their time in a step of which the saving is a share.

    One share is simulated on all places: that of the one that loses most. Of another's products so many are chosen that
    it gets back what it loses, and not more.
    """
    most = max((loss.share for loss in losses), default=0.0)
    if not most:
        return work_of(run, _limited_by_clock), run.mean(lambda place: _work(place).total_ns)
    chosen = {loss.key: _part(_limited_by_clock(loss.place), loss.share / most) for loss in losses}
    won = won_ns(run, {loss.key: loss.of_products for loss in losses})
    return chosen, max(round(won / most), 1)


def _part(rows: Mask, share: float) -> Mask:
    """This share of the rows, spread so that it falls in with no pattern of theirs: multiples of the golden ratio."""
    part: Mask = rows & (np.modf(np.cumsum(rows) * _GOLDEN)[0] < share)
    return part


# --- what it makes others seem to have -------------------------------------------------------------------------------


def _explains(run: Run, losses: Sequence[_Loss]) -> tuple[str, ...]:
    """The rules that see nothing but this: the rank that comes late, or whose kernels are slow, is one that is held.

    And more than the middle one of the others: by at least half of what it has too much of.
    """
    lost = {(place.rank, place.device or 0): 0.0 for place in run.places} | {x.key: x.of_products for x in losses}

    def beyond_others(place: JobPlace) -> float:
        own = place.rank, place.device or 0
        return lost[own] - float(np.median([ns for key, ns in lost.items() if key != own] or [0.0]))

    return tuple(rule for rule, place, ns in _too_much(run) if 0 < ns <= 2 * beyond_others(place))


def _too_much(run: Run) -> Iterator[tuple[str, JobPlace, float]]:
    """Which rank others wait for, and whose kernels are slow; and what it does more than they, in ns a step."""
    if (matched := skew(run)) is not None:
        places = [place for place in run.places if matched.has(place.rank) and len(place.collectives)]
        late = next(place for place in places if place.rank == matched.late_rank)
        yield "rank-skew", late, sum(excess_ns(places, matched)[late.rank].values()) / late.units
    if (same := same_kernels(run, 0)) is not None:
        slow = same.places[int(same.slowdown.argmax())]
        yield "gpus-differ", slow, slow.compute.total_ns / slow.units * (1 - 1 / float(same.slowdown.max()))


# --- limits of power -------------------------------------------------------------------------------------------------


def _same(one: SampledGpu, other: SampledGpu) -> bool:
    return one.device == other.device and one.file == other.file


def _limits(held: _Held) -> tuple[Floats, Floats]:
    """The limit that holds, and the board's own, in W, in the samples that have both."""
    limit, usual = (held.affected[0].floats(column) for column in ("power_limit_w", "default_power_limit_w"))
    both = ~np.isnan(limit) & ~np.isnan(usual)
    return limit[both], usual[both]


def _was_lowered(held: _Held) -> bool:
    limit, usual = _limits(held)
    return bool((limit < usual).any())


def _is_the_boards_own(held: _Held) -> bool:
    """A power limit at the board's own value is no mistake: only one below it was set on purpose."""
    limit, _ = _limits(held)
    return held.cause == "power" and limit.size > 0 and not _was_lowered(held)

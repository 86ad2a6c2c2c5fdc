"""Something holds the clocks of a GPU down while it works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from perfdoctor.findings import Evidence, Finding, Measure, Saving
from perfdoctor.metrics.breakdown import MATMUL_FAMILIES, Place
from perfdoctor.metrics.device_state import Floats, Gpu, free_clock_mhz, gpus, lost_ns, of_places, table
from perfdoctor.metrics.moved import work_of
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.units import percent
from perfdoctor.timeline.intervals import Intervals
from perfdoctor.timeline.model import UNKNOWN, Mask

#: By what the clocks are held down (keys of `device_state.HELD_BY`), and the words for it.
_CAUSES = {
    "heat": "heat",
    "brake": "the power brake",
    "hardware": "the hardware itself",
    "power": "the power limit",
    "clocks-set": "clocks that were set",
}


@dataclass(frozen=True)
class _Held:
    """GPUs that one cause holds down. `held`: one mask a GPU, the samples under load in which it does."""

    cause: str
    affected: list[Gpu]
    held: list[Mask]
    samples: int
    share: float
    clock_mhz: float
    free_mhz: float
    is_measured: bool

    @property
    def loss(self) -> float:
        """The share of the clock that is lost; NaN where clocks are not told."""
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
    saving, counted_ns = _saving(run, worst, at)
    clocks_told = not np.isnan(worst.loss)
    evidence: list[Evidence] = [Measure("samples under load in which it is so", worst.share, "share")]
    if (rows := table(sampled, at["min_load_share"])) is not None:
        evidence.append(rows)
    yield Finding(
        rule="device-throttling",
        saving_ns_per_step=saving,
        confidence="low" if not clocks_told else "high" if worst.samples >= at["many_samples"] else "medium",
        values={
            "gpus": len(worst.affected),
            "sampled": sum(gpu.file == worst.affected[0].file for gpu in sampled),
            "gpu": worst.affected[0].device,
            "held_percent": percent(worst.share),
            "samples": worst.samples,
            "clock_mhz": worst.clock_mhz if clocks_told else 0,
            "free_mhz": worst.free_mhz if clocks_told else 0,
            "reason": _CAUSES[worst.cause],
        },
        evidence=tuple(evidence),
        situation=worst.cause if clocks_told else "untold",
        work=work_of(run, _limited_by_clock),
        counted_ns=counted_ns,
    )


def _held(sampled: list[Gpu], cause: str, at: Mapping[str, float]) -> _Held | None:
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
    told = clocks[~np.isnan(clocks)]
    return _Held(
        cause,
        [gpu for gpu, _, _ in pairs],
        [mask for _, _, mask in pairs],
        samples,
        float(sum(mask.sum() for _, _, mask in pairs) / samples),
        float(np.median(told)) if told.size else float("nan"),
        free,
        is_measured,
    )


def _matters(held: _Held, at: Mapping[str, float]) -> bool:
    """A limit that costs next to no clock is none. Where clocks are not told, what the driver says must do."""
    return bool(np.isnan(held.loss) or held.loss >= at["min_clock_loss"])


def _standing_still(sampled: list[Gpu], at: Mapping[str, float]) -> list[_Held]:
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


def _saving(run: Run, worst: _Held, at: Mapping[str, float]) -> tuple[Saving, int]:
    """What a step gets shorter by at the free clock, and how much time of products a step has."""
    placed = of_places(run, at["min_load_share"], "sm_clock_mhz")
    counted_ns = run.mean(lambda place: _work(place).total_ns)
    if not placed or np.isnan(worst.loss) or not run.places:
        return Saving(0, 0, 0), counted_ns

    def lost(place: Place, work: Intervals) -> float:
        gpu = placed.get((place.rank, place.device or 0))
        mask = next((m for g, m in zip(worst.affected, worst.held, strict=True) if gpu and _same(g, gpu)), None)
        return 0.0 if gpu is None or mask is None else lost_ns(place, gpu, mask, work, worst.free_mhz)

    of_products = run.mean(lambda place: lost(place, _work(place)))
    of_all = run.mean(lambda place: lost(place, place.compute))
    if _is_the_boards_own(worst):
        return Saving(0, 0, 0), counted_ns
    if worst.cause == "power" and not _was_lowered(worst):  # whether it can be raised is not told
        return Saving(0, 0, of_all), counted_ns
    if not worst.is_measured:
        return Saving(0, int(of_products * at["sure_share"]), of_all), counted_ns
    return Saving(int(of_products * at["sure_share"]), of_products, max(of_all, of_products)), counted_ns


def _same(one: Gpu, other: Gpu) -> bool:
    return one.device == other.device and one.file == other.file


def _limits(held: _Held) -> tuple[Floats, Floats]:
    """The limit that holds, and the board's own, in W, in the samples that tell both."""
    limit, usual = (held.affected[0].floats(column) for column in ("power_limit_w", "default_power_limit_w"))
    told = ~np.isnan(limit) & ~np.isnan(usual)
    return limit[told], usual[told]


def _was_lowered(held: _Held) -> bool:
    limit, usual = _limits(held)
    return bool((limit < usual).any())


def _is_the_boards_own(held: _Held) -> bool:
    """A power limit at the board's own value is no mistake: only one below it was set by somebody."""
    limit, _ = _limits(held)
    return held.cause == "power" and limit.size > 0 and not _was_lowered(held)

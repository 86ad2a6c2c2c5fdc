"""How much of what the GPUs can do went into the model? MFU, HFU, and what a step trains on.

```
MFU = model FLOP of a step ÷ (peak · step)         PaLM, arXiv 2204.02311, appendix B
HFU = FLOP computed in a step ÷ (peak · step)      Korthikanti et al., arXiv 2205.05198, section 6: with recomputation
model FLOP ≈ 6 · parameters · tokens               2 forward and 4 backward for each; without attention's scores
           ≈ 2 · parameters · tokens               of inference, which is forward alone
```
The peak is the dense one of the data type in which most was computed. Where types are mixed this is the faster one more
often than not, and what runs in the slower counts as time lost.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.hardware.peaks import Peaks
from perfdoctor.metrics.accounting.real_time import real_step_ns
from perfdoctor.metrics.host.batch_items import targets_per_step
from perfdoctor.metrics.program import kind_of_work
from perfdoctor.metrics.work.device_peaks import peaks
from perfdoctor.metrics.work.op_work import OpWork, known_share, op_work
from perfdoctor.metrics.work.roofline import roofline
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.work_done import Efficiency
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names import kernels as kernel_names

#: With less of the time of matrix products counted, "at least" says more about the recording than about the run.
_LEAST_KNOWN_SHARE = 0.5
#: For each parameter and token: a product forward, and one for each of two gradients, at two FLOP.
_FORWARD, _FORWARD_AND_BACKWARD = 2, 6


def model_flop(parameters: float, tokens: float, *, only_forward: bool = False) -> float:
    """FLOP of one step, forward and backward unless `only_forward`, by the size of the model."""
    return (_FORWARD if only_forward else _FORWARD_AND_BACKWARD) * parameters * tokens


def utilization(flop: float, peak_flop_per_second: float, step_ns: float) -> float:
    """MFU or HFU, by what is counted: a share. Above 1 something that was given or recorded is wrong."""
    return flop / (peak_flop_per_second * step_ns / 1e9)


def efficiency(run: Run) -> Efficiency | None:
    """The efficiency of a run; None where no place was recorded, or without a GPU where ops have no shapes."""
    counted = [_count(place) for place in run.places]
    on_gpu = any(place.device is not None for place in run.places)
    if not counted or not (on_gpu or any(each.flop for each in counted)):
        return None
    user_values = run.timeline.user_values
    # Tokens a step cannot be held against a window of unknown many steps.
    only_forward = kind_of_work(run.timeline).kind == "inference"
    by_size = model_flop(user_values.parameters, user_values.tokens_per_step, only_forward=only_forward)
    given = by_size if run.whole_steps else 0.0
    best = max(counted, key=lambda each: float(each.work.ns[each.work.known].sum()))
    is_given = best.data_type in user_values.peaks
    source = f"--peak {best.data_type}" if is_given else best.peaks.source if best.peaks else ""
    known = any(each.flop for each in counted)
    share = float(np.mean([each.known_share for each in counted]))
    enough = known and share >= _LEAST_KNOWN_SHARE
    # Of one GPU and step: as given, else the targets of the loss, where all places agree.
    targets = {targets_per_step(place) for place in run.places}
    items = user_values.tokens_per_step or (targets.pop() if len(targets) == 1 else None)
    step_ns = real_step_ns(run)
    model = given or (float(np.mean([each.model for each in counted])) if known else None)
    return Efficiency(
        model_from="parameters" if given else "shapes" if known else "",
        flop_per_step=float(np.mean([each.flop for each in counted])) if known else None,
        model_flop_per_step=model,
        recomputed_flop_per_step=float(np.mean([each.again for each in counted])) if known else None,
        known_share=share,
        mfu=_share(counted, [given or each.model for each in counted]) if given or enough else None,
        hfu=_share(counted, [each.flop for each in counted]) if enough else None,
        data_type=best.data_type,
        gpu=best.peaks.name if best.peaks and best.peaks.name else best.place.info.name,
        peak_flop_per_second=best.peak or None,
        peak_source=source if best.peak else "",
        items="tokens" if user_values.tokens_per_step else "targets" if items else "",
        items_per_step=items,
        items_per_second=items / (step_ns / 1e9) if items and run.whole_steps and step_ns else None,
        lacks=_lacks(best, counted=bool(given) or enough, steps=run.whole_steps or not user_values.parameters),
        on_gpu=on_gpu,
        roofline=roofline(best.place, best.work, best.peaks) if best.place.device is not None else None,
    )


class _PlaceFlop(Struct, frozen=True):
    """One place: FLOP a step, and the peak that they are held against (0: not known)."""

    place: Place
    work: OpWork
    flop: float
    model: float
    again: float
    known_share: float
    data_type: str
    peaks: Peaks | None
    peak: float


def _count(place: Place) -> _PlaceFlop:
    work, limits = op_work(place), peaks(place)
    known = work.known
    data_type = _main_type(place, work)
    flop, model = float(work.flop[known].sum()), float(work.model_flop[known & ~work.again].sum())
    return _PlaceFlop(
        place,
        work,
        flop / place.units,
        model / place.units,
        float(work.flop[known & work.again].sum()) / place.units,
        known_share(place, work),
        data_type,
        limits,
        limits.matmul_flop_per_second(data_type) if limits and data_type else 0.0,
    )


def _main_type(place: Place, work: OpWork) -> str:
    """The data type of most FLOP, else that of most time of the kernels that multiply; "" where both are unknown."""
    if work.known.any():
        types, weights = work.data_types[work.known], work.flop[work.known]
    else:
        matmul = place.kernel_rows(*MATMUL_FAMILIES)
        named = place.kernels.name.mapped(kernel_names.data_type)
        types = np.array(named.values or [""])[named.codes[matmul]]
        weights = place.kernel_ns[matmul].astype(float)
    different, row = np.unique(types, return_inverse=True)
    return str(different[np.bincount(row, weights=weights).argmax()]) if different.size else ""


def _share(counted: list[_PlaceFlop], flop: list[float]) -> float | None:
    """The mean over the places whose peak is known; None where there is none, or nothing was counted."""
    shares = [
        utilization(amount, each.peak, each.place.window_ns / each.place.units)
        for each, amount in zip(counted, flop, strict=True)
        if each.peak and each.place.window_ns
    ]
    return float(np.mean(shares)) if shares and any(flop) else None


def _lacks(best: _PlaceFlop, *, counted: bool, steps: bool) -> tuple[str, ...]:
    """What was not recorded that MFU needs, as keys of a report's words."""
    missing = [] if counted else ["shapes"] if steps else ["steps"]
    if best.peaks is None:
        missing.append("peaks")
    elif not best.peak:
        missing.append("type_peak" if best.data_type else "data_type")
    return tuple(missing)

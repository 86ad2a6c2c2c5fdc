"""How much did the ops of one place compute, and which kernels did it?

An op counts if its first kernel ran inside the window (on a run without a GPU: if it began there), and as a whole: the
ops that it calls are part of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from perfdoctor.metrics.grouping import combined
from perfdoctor.metrics.kernels.recompute import forward_again
from perfdoctor.metrics.work.flops import OpFlop, is_counted, work_of_op
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.host_rows import outermost
from perfdoctor.model.launches import first_kernels
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Floats, Frame, Ints, Mask
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names import kernels as kernel_names


class OpWork(Struct, frozen=True):
    """The ops of one place that multiply matrices, one row each; NaN, or "" for a type, where that is not known.

    `counts`: does it belong to the window? `again`: was it forward work inside the backward pass? `ns`: how long its
    kernels ran inside the window. `kernel_op`: for each row of `place.kernels` the op that launched it, or UNKNOWN.
    `main_kernel`: the row of `place.kernels` of its longest kernel, UNKNOWN if it has none.
    """

    ops: Frame
    flop: Floats
    model_flop: Floats
    needed_flop: Floats
    moved_bytes: Floats
    results: Floats
    data_types: npt.NDArray[np.str_]
    counts: Mask
    again: Mask
    ns: Ints
    kernel_op: Ints
    main_kernel: Ints

    @property
    def known(self) -> Mask:
        """Counted, and it is known how much."""
        return self.counts & ~np.isnan(self.flop)


@once_per_place
def op_work(place: Place) -> OpWork:
    """The ops of one place that multiply matrices, each different one (op, shapes, types, values) computed once."""
    if place.device is not None:
        kernel_op, ops, first = first_kernels(place, place.timeline.ops.name.where(is_counted))
        counts = first >= (place.window.starts[0] if place.window else np.iinfo(np.int64).max)
    else:
        of_rank = place.timeline.ops.of(rank=place.rank)
        kernel_op, ops = np.empty(0, np.int64), outermost(of_rank.take(of_rank.name.where(is_counted)))
        counts = place.window.overlap_ns(ops.start_ns, ops.start_ns + 1) > 0
    row, works = _works(ops)
    of_kernel = np.where(kernel_op == UNKNOWN, len(ops), kernel_op)
    ns = np.bincount(of_kernel, weights=place.kernel_ns, minlength=len(ops) + 1)[: len(ops)].astype(np.int64)
    main = _longest(place, kernel_op, len(ops))

    def column(name: str) -> Floats:
        values = [getattr(work, name) if work else None for work in works]
        return np.array([np.nan if value is None else value for value in values] or [np.nan], dtype=float)[row]

    types = np.array([work.data_type if work else "" for work in works] or [""])[row]
    again = forward_again(place.timeline, place.rank)
    return OpWork(
        ops=ops,
        flop=column("flop"),
        model_flop=column("model_flop"),
        needed_flop=column("needed_flop"),
        moved_bytes=column("moved_bytes"),
        results=column("results"),
        data_types=_refined(place, types, main),
        counts=counts,
        again=again.innermost(ops.start_ns, ops["process"], ops["thread"]) != UNKNOWN,
        ns=ns,
        kernel_op=kernel_op,
        main_kernel=main,
    )


def known_share(place: Place, work: OpWork) -> float:
    """The share of the time of matmul kernels (without a GPU: of ops) of which FLOP are known (0-1)."""
    if place.device is None:
        return float(work.ops.duration_ns[work.known].sum() / max(work.ops.duration_ns[work.counts].sum(), 1))
    matmul = place.kernel_rows(*MATMUL_FAMILIES)
    total = int(place.kernel_ns[matmul].sum())
    known = matmul & (work.kernel_op != UNKNOWN)
    known[known] = work.known[work.kernel_op[known]]
    return float(place.kernel_ns[known].sum()) / total if total else 0.0


def _works(ops: Frame) -> tuple[Ints, list[OpFlop | None]]:
    """For each op the place of its Work in a list of the different ones."""
    texts = [ops.name, *(ops.text(column) for column in ("input_shapes", "input_types", "input_values"))]
    work, first = combined(*(text.codes for text in texts))
    return work, [work_of_op(*(text[row] for text in texts)) for row in first.tolist()]


def _longest(place: Place, kernel_op: Ints, count: int) -> Ints:
    """The longest kernel of each op: one that multiplies and names its type, where it has any; no sum of pieces."""
    found = np.full(count, UNKNOWN, dtype=np.int64)
    linked = np.flatnonzero(kernel_op != UNKNOWN)
    matmul = place.kernel_rows(*MATMUL_FAMILIES)[linked]
    typed = matmul & ~place.kernels.name.has(kernel_names.data_type, "")[linked]
    order = linked[np.lexsort((place.kernel_ns[linked], matmul, typed))]
    found[kernel_op[order]] = order  # the last one written stays
    return found


def _refined(place: Place, types: npt.NDArray[np.str_], main: Ints) -> npt.NDArray[np.str_]:
    """The type of each op, by its kernel where the op does not say it, or whether fp32 ran as TF32."""
    types_of_kernels = place.kernels.name.mapped(kernel_names.data_type)
    of_kernel = np.array(types_of_kernels.values or [""])[types_of_kernels.codes]
    of_op = np.where(main == UNKNOWN, "", of_kernel[np.maximum(main, 0)] if of_kernel.size else "")
    refined = np.where(types == "", of_op, types)
    is_fp32 = types == "fp32"
    if place.device is not None:
        refined = np.where(is_fp32, np.where(np.isin(of_op, ("fp32", "tf32")), of_op, ""), refined)
    result: npt.NDArray[np.str_] = refined.astype("U8")
    return result


def more_flop(late: Place, others: Sequence[Place]) -> float:
    """The share by which its FLOP a step exceed the median of the others'; NaN where they are not known."""
    own, middle = flop_per_step(late), float(np.median([flop_per_step(place) for place in others]))
    return own / middle - 1 if middle else float("nan")


def explained_by_flop(late: Place, others: Sequence[Place]) -> float:
    """How much of its longer compute is there because it has more FLOP, from 0 to 1; 0 where they are not known."""
    middle = float(np.median([place.compute.total_ns / place.units for place in others]))
    longer = late.compute.total_ns / late.units / middle - 1 if middle else 0.0
    more = more_flop(late, others)
    return float(np.clip(more / longer, 0, 1)) if longer > 0 and not np.isnan(more) else 0.0


def uneven_flop(places: Sequence[Place]) -> float:
    """By how much the FLOP of these training threads differ in a step: the largest less the smallest of a mean rank's,
    as the mean over steps; NaN where they are not known, or the ranks have unequally many steps.
    """
    each = [_flop_by_step(place) for place in places]
    if len(each) < 2 or len({own.size for own in each}) > 1 or not all(own.sum() for own in each):
        return float("nan")
    steps = np.stack(each)
    return float(np.mean((steps.max(axis=0) - steps.min(axis=0)) / np.maximum(steps.mean(axis=0), 1)))


def _flop_by_step(place: Place) -> Floats:
    """Known FLOP of each step that is used, of a training thread that stands in for a device."""
    work, edges = op_work(place), place.steps.used_bounds
    step = np.searchsorted(edges, work.ops.start_ns[work.known], side="right") - 1
    inside = (step >= 0) & (step < place.steps.used)
    flop: Floats = np.zeros(place.steps.used)
    np.add.at(flop, step[inside], work.flop[work.known][inside])
    return flop


def flop_per_step(place: Place) -> float:
    """Known FLOP of a step; NaN without any."""
    work = op_work(place)
    return float(work.flop[work.known].sum()) / place.units if work.known.any() else float("nan")

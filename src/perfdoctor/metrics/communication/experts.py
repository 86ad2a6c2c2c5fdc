"""How many tokens do the experts of each rank get, and what do sorting and moving them cost?"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.communication.collectives import Loads
from perfdoctor.metrics.communication.parallelism import group_uses
from perfdoctor.metrics.work.flops import shapes_of
from perfdoctor.metrics.work.op_work import op_work
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.host_rows import named
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Ints, Mask
from perfdoctor.records.findings import Measure
from perfdoctor.vocabulary.names import torch as torch_names
from perfdoctor.vocabulary.names.kernels import PERMUTES_TOKENS

#: The factors of a product of groups of rows, each group with a matrix of its own.
_ROWS, _MATRICES = 2, 3


def has_experts(run: Run) -> bool:
    """Is any group of ranks there for experts?"""
    return any(use.kind == "expert" for use in group_uses(run).values())


def tokens_of_experts(run: Run) -> Loads | None:
    """Rows of the grouped products of each rank's experts, in their order; None where shapes do not show them.

    Rows that only fill up a buffer count: they are computed.
    """
    places = [place for place in run.places if place.device is not None]
    rows = [_grouped_rows(place) for place in places]
    if len(places) < 2 or len({own.size for own in rows}) > 1 or not rows[0].size:
        return None
    sizes = np.stack(rows)
    return Loads(tuple(place.rank for place in places), sizes, sizes.mean(axis=0))


@once_per_place
def _grouped_rows(place: Place) -> Ints:
    """The rows that each grouped product of the window has, in order."""
    work = op_work(place)
    chosen = np.flatnonzero(work.ops.name.matches(torch_names.GROUPED_PRODUCT) & work.counts)
    shapes = [shapes_of(text)[:2] for text in work.ops.text("input_shapes").take(chosen)]
    return np.array([each[0][0] for each in shapes if tuple(map(len, each)) == (_ROWS, _MATRICES)], np.int64)


def permutation(run: Run) -> tuple[Measure, ...]:
    """What sorting tokens by expert, gathering them and scattering them back costs, as evidence; () without experts."""
    if not has_experts(run):
        return ()
    ns = run.mean(lambda place: int(place.kernel_ns[_permutes(place)].sum()))
    return (Measure("sorting tokens by expert, gathering and scattering them", ns, "ns"),) if ns else ()


def _permutes(place: Place) -> Mask:
    rows = named(place.timeline, "ops", torch_names.PERMUTES_ROWS)
    return launches_of(place, "kernels").inside_of("ops", rows) | place.kernels.name.matches(PERMUTES_TOKENS)

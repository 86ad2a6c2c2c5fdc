"""Which kernels cost most, all places together? The table of kernels of a diagnosis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.time_split import KernelRow
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names import kernels as kernel_names

#: Fewer rows hide the tail.
_ROWS = 30


def kernel_table(run: Run) -> tuple[KernelRow, ...]:
    """The kernels that cost most, all places together; times are inside the windows."""
    return kernel_rows(run.places, _ROWS)


def kernel_rows(places: Sequence[Place], most: int | None = None) -> tuple[KernelRow, ...]:
    """The same of these places: all kernels and collectives, or the costliest."""
    counts: dict[str, int] = {}
    totals: dict[str, int] = {}
    for place in places:
        for frame in (place.kernels, place.collectives):
            ns = place.window.overlap_ns(frame.start_ns, frame.end_ns)
            codes, values = frame.name.codes, frame.name.values
            per_code = np.bincount(codes, minlength=len(values)), np.bincount(codes, weights=ns, minlength=len(values))
            for name, count, total in zip(values, *per_code, strict=True):
                if count:
                    counts[name] = counts.get(name, 0) + int(count)
                    totals[name] = totals.get(name, 0) + int(total)
    top = sorted(totals, key=lambda name: (-totals[name], name))[:most]
    return tuple(_kernel_row(name, counts[name], totals[name]) for name in top)


def _kernel_row(name: str, count: int, total_ns: int) -> KernelRow:
    family = kernel_names.family_or_communication(name)
    path = kernel_names.math_path(name) if family in MATMUL_FAMILIES else ""
    return KernelRow(name, family, path, count, total_ns, total_ns // max(count, 1))

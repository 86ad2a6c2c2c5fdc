"""Which notes describe the kernels of Nsight Compute without a timeline? The longest ones, with their utilisation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfdoctor.model.timeline import Floats, Frame, Mask
from perfdoctor.vocabulary.names.base_names import base_name

#: How many kernels are named at most, the longest first, and how long a name may be.
_NAMED, _LONGEST_NAME = 3, 60
#: The columns that are shown, each a share of its peak.
_SHARES = {"sm_share": "SMs", "tensor_share": "tensor cores", "memory_share": "memory", "occupancy_share": "warps"}


def alone(file: str, profiles: Frame) -> Iterator[str]:
    """How many launches of which GPU are in the file, and how busy the longest kernels keep it."""
    names, weight = profiles.name, np.nan_to_num(profiles.floats("gpu_time_ns"))
    if not len(profiles):
        return
    gpus = sorted({gpu for gpu in profiles.text("gpu") if gpu})
    on = f" on {', '.join(gpus)}" if gpus else ""
    yield f"{file}: {_counted(len(profiles), 'launch', 'es')} of {_counted(len(set(names)), 'kernel', 's')}{on}."
    total = np.bincount(names.codes, weights=weight, minlength=len(names.values))
    for code in np.argsort(-total, kind="stable")[:_NAMED].tolist():
        if total[code]:
            yield _kernel_note(base_name(names.values[code])[:_LONGEST_NAME], profiles, names.codes == code, weight)


def _kernel_note(name: str, profiles: Frame, rows: Mask, weight: Floats) -> str:
    """`silu: 40.1 µs, 25 % of the measured time; SMs 28 %, memory 88 % of their peak; waits for long scoreboard.`"""
    own = float(weight[rows].sum())
    shares = []
    for column, label in _SHARES.items():
        known = rows & ~np.isnan(profiles.floats(column))
        if known.any():
            share = np.average(profiles.floats(column)[known], weights=np.maximum(weight[known], 1))
            shares.append(f"{label} {100 * share:.0f} %")
    busy = f"; {', '.join(shares)} of their peak" if shares else ""
    longest = int(np.flatnonzero(rows)[np.argmax(weight[rows])])
    stall = profiles.text("stall")[longest]
    waits = f"; its warps wait for {stall}" if stall else ""
    return f"{name}: {own / 1e3:,.1f} µs, {100 * own / weight.sum():.0f} % of the measured time{busy}{waits}."


def _counted(number: int, noun: str, plural: str) -> str:
    return f"{number:,} {noun}{plural if number != 1 else ''}"

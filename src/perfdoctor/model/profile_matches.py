"""Which launches that Nsight Compute measured stand for which kernels of the timeline? By name, grid and order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.model.timeline import UNKNOWN, Device, Frame, Ints, Mask
from perfdoctor.vocabulary.names.base_names import are_alike, base_name, plain_name

_Size = tuple[int, int]


def on_same_gpu(profiles: Frame, device: Device) -> Mask:
    """One bool a row of `profiles`: was it measured on a GPU like `device`?

    By name where both have it, else by compute capability; what neither has is taken for the same.
    """
    major, minor = device.compute_capability
    capability = profiles["compute_capability"]
    alike: Mask = (capability == UNKNOWN) | (major == 0) | (capability == 10 * major + minor)
    if device.name:
        alike = alike & profiles.text("gpu").where(lambda gpu: not gpu or is_same_gpu(gpu, device.name))
    return alike


def is_same_gpu(one: str, other: str) -> bool:
    """Are `one` and `other` names of the same kind of GPU, as two tools write them?"""
    first, second = ("".join(name.lower().replace("nvidia", "").replace("tesla", "").split()) for name in (one, other))
    return first == second


def matched(kernels: Frame, profiles: Frame, steps: int = 0) -> tuple[list[Ints], Ints]:
    """Sets of launches (their numbers), and for each kernel the set that stands for it, UNKNOWN for none.

    With `steps`, the number of steps that the kernels are of, as many launches as a step has kernels of that name and
    size stand for them one by one.
    """
    sets: list[Ints] = []
    of_kernel = np.full(len(kernels), UNKNOWN, dtype=np.int64)
    if not len(profiles) or not len(kernels):
        return sets, of_kernel
    wanted = set(profiles.name.classified(base_name))
    is_profiled = kernels.name.has(base_name, *wanted)
    rows = np.flatnonzero(is_profiled & (kernels["is_graph"] == 0))
    for own, launches in _pairs(_by_size(kernels, rows), _by_size(profiles, np.arange(len(profiles)))):
        numbers = profiles["launch"][launches]
        in_order = own[np.argsort(kernels.start_ns[own], kind="stable")]
        if numbers.size > 1 and numbers.size * steps == own.size:
            of_kernel[in_order] = len(sets) + np.arange(own.size) % numbers.size
            sets += list(numbers[:, None])
        else:
            of_kernel[own] = len(sets)
            sets.append(numbers)
    return sets, of_kernel


def _by_size(frame: Frame, rows: Ints) -> Mapping[tuple[str, _Size], Ints]:
    """Group `rows` of the frame by plain name, and by blocks and threads."""
    if not rows.size:
        return {}
    names, key = frame.name, frame.name.codes[rows].astype(np.int64)
    for column in ("blocks", "threads_per_block"):  # one number a kind: sorting rows of three is ten times slower
        different, which = np.unique(frame[column][rows], return_inverse=True)
        key = key * different.size + which
    order = np.argsort(key, kind="stable")
    parts = np.split(rows[order], np.flatnonzero(np.diff(key[order])) + 1)
    found: dict[tuple[str, _Size], list[Ints]] = defaultdict(list)
    for part in parts:
        row = part[0]
        size = int(frame["blocks"][row]), int(frame["threads_per_block"][row])
        found[plain_name(names[row]), size].append(part)
    return {kind: np.sort(np.concatenate(parts)) for kind, parts in found.items()}


def _pairs(
    kernels: Mapping[tuple[str, _Size], Ints], profiles: Mapping[tuple[str, _Size], Ints]
) -> Iterator[tuple[Ints, Ints]]:
    """Rows of kernels and of profiles that belong together: by the whole name, else where only two are left.

    Where a tool does not record the size, the name alone decides.
    """
    unmatched, taken = defaultdict(list), set()
    for key, own in kernels.items():
        fitting = [other for other in profiles if key[0] == other[0] and _fit(key[1], other[1])]
        if fitting:
            taken.update(fitting)
            yield own, np.sort(np.concatenate([profiles[other] for other in fitting]))
        else:
            unmatched[base_name(key[0]), key[1]].append(key)
    for (base, size), keys in unmatched.items():
        others = [key for key in profiles if key not in taken and base_name(key[0]) == base and _fit(size, key[1])]
        if len(keys) == len(others) == 1 and are_alike(keys[0][0], others[0][0]):
            yield kernels[keys[0]], profiles[others[0]]


def _fit(one: _Size, other: _Size) -> bool:
    return all(a in (b, UNKNOWN) or b == UNKNOWN for a, b in zip(one, other, strict=True))

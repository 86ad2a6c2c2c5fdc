"""Which kernels of the timeline do the launches that Nsight Compute measured stand for, and what was measured of them?

ncu plays single launches, in an execution of its own. A launch stands for the kernels with its name and size (blocks
and threads), on a GPU of its kind: several of one size by their mean, or one by one where a step has as many of them.
Times are always the timeline's: ncu runs a kernel alone, with cold caches. What was not measured is NaN.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from perfdoctor.findings import Measure
from perfdoctor.metrics.breakdown import Place
from perfdoctor.timeline.base_names import are_alike, base_name, plain_name
from perfdoctor.timeline.model import UNKNOWN, Device, Frame, Ints, Mask, Timeline

Floats = npt.NDArray[np.float64]

#: On Hopper an element-wise kernel shows 1 %, since other arithmetic shares the pipe; products show tens of them.
_TENSOR_CORES_AT_WORK = 0.05
_Size = tuple[int, int]


@dataclass(frozen=True)
class Measured:
    """Kernels, or measured launches, and for each what ncu measured of it.

    `rows` are the place's kernels, or the launches themselves where there is no timeline; `time_ns` one for each.
    `stands_in` is the number of a set of launches in `sets`, UNKNOWN where none stands for it.
    """

    rows: Frame
    time_ns: Floats
    stands_in: Ints
    sets: Sequence[Ints]
    profiles: Frame
    advice: Frame

    @property
    def known(self) -> Mask:
        """One bool a row: did ncu measure what it is?"""
        known: Mask = self.stands_in != UNKNOWN
        return known

    def number(self, column: str) -> Floats:
        """One of PROFILE_NUMBERS for each row: the mean over its launches, each counting as long as it ran."""
        values, weight = self.profiles.floats(column), self._weight
        return self._spread([_mean(values[launches], weight[launches]) for launches in self.sets])

    def word(self, column: str, row: int) -> str:
        """A text column for one row: of the longest of its launches."""
        launches = self.sets[int(self.stands_in[row])]
        return self.profiles.text(column)[int(launches[np.argmax(self._weight[launches])])]

    @cached_property
    def busiest_share(self) -> Floats:
        """How near to its limit is the busiest of processors, memory and caches? NaN unless both were measured."""
        memory = np.fmax(self.number("memory_share"), self.number("dram_share"))
        return np.minimum(np.maximum(self.number("sm_share"), memory), 1.0)

    @cached_property
    def estimated_share(self) -> Floats:
        """The most that one of NVIDIA's rules hopes to win of the kernel's whole time; NaN where none says."""
        most = np.full(len(self.profiles), np.nan)
        told = (self.advice["is_global"] != 0) & ~np.isnan(self.advice.floats("speedup_share"))
        np.fmax.at(most, self._of_advice[told], self.advice.floats("speedup_share")[told])
        return self._spread([_mean(most[launches], self._weight[launches]) for launches in self.sets])

    def estimated_by(self, rule: str) -> Floats:
        """What the named rule of NVIDIA hopes to win of the kernel's whole time; NaN where it does not say."""
        told = self.advice.name.equals(rule) & (self.advice["is_global"] != 0)
        return replace(self, advice=self.advice.take(told)).estimated_share

    @property
    def _weight(self) -> Floats:
        ran = self.profiles.floats("gpu_time_ns")
        return np.where(np.isnan(ran), 1.0, np.maximum(ran, 1.0))

    @property
    def _of_advice(self) -> Ints:
        return np.searchsorted(self.profiles["launch"], self.advice["launch"]).astype(np.int64)

    def _spread(self, of_sets: Sequence[float]) -> Floats:
        table = np.array([*of_sets, np.nan], dtype=np.float64)
        return table[np.where(self.known, self.stands_in, len(of_sets))]


def _mean(values: Floats, weight: Floats) -> float:
    known = ~np.isnan(values)
    return float(np.average(values[known], weights=weight[known])) if known.any() else float("nan")


def measured(place: Place) -> Measured:
    """What ncu measured of each kernel of a place."""
    timeline, kernels = place.timeline, place.kernels
    profiles = timeline["kernel_profiles"]
    sets, of_kernel = matched(kernels, profiles.take(on_same_gpu(profiles, place.info)), place.units)
    return Measured(
        kernels, place.kernel_ns.astype(np.float64), of_kernel, _as_rows(sets, profiles), profiles,
        timeline["kernel_advice"],
    )  # fmt: skip


def tensor_share(place: Place) -> Floats:
    """For each kernel of a place how busy ncu saw the tensor cores in it; NaN where it was not measured."""
    if not len(place.timeline["kernel_profiles"]):
        return np.full(len(place.kernels), np.nan)
    return measured(place).number("tensor_share")


def on_tensor_cores(place: Place) -> Mask:
    """One bool a kernel: has ncu seen tensor cores at work in it? That little was seen proves nothing."""
    at_work: Mask = np.nan_to_num(tensor_share(place)) >= _TENSOR_CORES_AT_WORK
    return at_work


def tensor_evidence(place: Place, rows: Mask) -> tuple[Measure, ...]:
    """How busy tensor cores are in these kernels, each counting as long as it runs; () where none was measured."""
    share = tensor_share(place)
    known = rows & ~np.isnan(share) & (place.kernel_ns > 0)
    if not known.any():
        return ()
    mean = float(np.average(share[known], weights=place.kernel_ns[known]))
    return (Measure("tensor cores at work in them, by Nsight Compute", mean, "share"),)


def launches_alone(timeline: Timeline) -> Measured:
    """The measured launches themselves, each standing for itself: where there is no timeline that they belong to."""
    profiles = timeline["kernel_profiles"]
    each = np.arange(len(profiles), dtype=np.int64)
    time_ns = np.nan_to_num(profiles.floats("gpu_time_ns"))
    return Measured(profiles, time_ns, each, list(each[:, None]), profiles, timeline["kernel_advice"])


def _as_rows(sets: Sequence[Ints], profiles: Frame) -> list[Ints]:
    return [np.searchsorted(profiles["launch"], launches).astype(np.int64) for launches in sets]


def on_same_gpu(profiles: Frame, device: Device) -> Mask:
    """One bool a launch: was it measured on such a GPU?

    By name where both tell it, else by compute capability; what neither tells is taken for the same.
    """
    major, minor = device.compute_capability
    capability = profiles["compute_capability"]
    alike: Mask = (capability == UNKNOWN) | (major == 0) | (capability == 10 * major + minor)
    if device.name:
        alike = alike & profiles.text("gpu").where(lambda gpu: not gpu or is_same_gpu(gpu, device.name))
    return alike


def is_same_gpu(one: str, other: str) -> bool:
    """Do two tools mean the same kind of GPU by these names?"""
    return _short_gpu(one) == _short_gpu(other)


def _short_gpu(name: str) -> str:
    return "".join(name.lower().replace("nvidia", "").replace("tesla", "").split())


# --- which launch stands for which kernel ---


def matched(kernels: Frame, profiles: Frame, steps: int = 0) -> tuple[list[Ints], Ints]:
    """Sets of launches (their numbers), and for each kernel the set that stands for it, UNKNOWN for none.

    With `steps`, the number of steps that the kernels are of, as many launches as a step has kernels of that name and
    size stand for them one by one.
    """
    sets: list[Ints] = []
    of_kernel = np.full(len(kernels), UNKNOWN, dtype=np.int64)
    if not len(profiles) or not len(kernels):
        return sets, of_kernel
    wanted = {base_name(name) for name in profiles.name.values}
    rows = np.flatnonzero(kernels.name.where(lambda name: base_name(name) in wanted) & (kernels["is_graph"] == 0))
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
    """Rows by plain name, and by blocks and threads."""
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

    Where a tool does not tell the size, the name alone decides.
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

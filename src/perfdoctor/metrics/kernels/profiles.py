"""Which kernels of the timeline do the launches that Nsight Compute measured stand for, and what was measured of them?

ncu replays single launches, in an execution of its own. A launch stands for the kernels with its name and size (blocks
and threads), on a GPU of its kind: several of one size by their mean, or one by one where a step has as many of them.
Times are always the timeline's: ncu runs a kernel alone, with cold caches. What was not measured is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.metrics.counters.kinds import of_names
from perfdoctor.metrics.grouping import ratio, sums, weighted_mean
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.profile_matches import matched, on_same_gpu
from perfdoctor.model.timeline import UNKNOWN, Floats, Frame, Ints, Mask, Timeline
from perfdoctor.records.findings import Measure

#: The compute capability of the first GPU that has tensor cores.
TENSOR_CORES_SINCE = (7, 0)
#: On Hopper an element-wise kernel shows 1 %, since other arithmetic shares the pipe; products show tens of them.
TENSOR_CORES_AT_WORK = 0.05
#: The same by the GPU's counters: kernels of 5 µs without tensor cores came out at up to 4 % beside products, those of
#: more than 50 µs at up to 0.3 %; products on tensor cores at 34 % and more (an A100).
_COUNTED_AT_WORK, _COUNTED_OFF = 0.1, 0.03


class Measured(Struct, frozen=True, dict=True):
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
        return self._spread(self._means(self.profiles.floats(column)))

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
    def used_sms_share(self) -> Floats:
        """The share of the SMs that get a block at all: 1 where the grid has as many, or its size is not known."""
        blocks, sms = self.rows["blocks"], self.number("sm_count")
        is_known = (blocks > 0) & (sms > 0)
        return np.where(is_known, np.fmin(blocks / np.where(is_known, sms, 1.0), 1.0), 1.0)

    @cached_property
    def estimated_share(self) -> Floats:
        """The largest saving that a rule of NVIDIA estimates, as a share of the kernel's time; NaN where none does."""
        most = np.full(len(self.profiles), np.nan)
        whole = (self.advice["is_global"] != 0) & ~np.isnan(self.advice.floats("speedup_share"))
        launch = np.searchsorted(self.profiles["launch"], self.advice["launch"])
        np.fmax.at(most, launch[whole], self.advice.floats("speedup_share")[whole])
        return self._spread(self._means(most))

    def estimated_by(self, rule: str) -> Floats:
        """The saving that this rule of NVIDIA estimates, as a share of the kernel's time; NaN where it does not."""
        chosen = self.advice.name.equals(rule) & (self.advice["is_global"] != 0)
        return replace(self, advice=self.advice.take(chosen)).estimated_share

    @property
    def _weight(self) -> Floats:
        ran = self.profiles.floats("gpu_time_ns")
        return np.where(np.isnan(ran), 1.0, np.maximum(ran, 1.0))

    def _means(self, values: Floats) -> Floats:
        """For each set the mean of its launches' values that are known; NaN without any."""
        own = np.repeat(np.arange(len(self.sets)), [launches.size for launches in self.sets])
        launches = np.concatenate([*self.sets, np.empty(0, np.int64)])
        weight = np.where(np.isnan(values), 0.0, self._weight)[launches]
        weighed = np.nan_to_num(values)[launches] * weight
        return ratio(sums(own, weighed, len(self.sets)), sums(own, weight, len(self.sets)))

    def _spread(self, of_sets: Floats) -> Floats:
        """For each row the number of its set; NaN without one."""
        return np.append(of_sets, np.nan)[np.where(self.known, self.stands_in, of_sets.size)]


@once_per_place
def measured(place: Place) -> Measured:
    """What ncu measured of each kernel of a place."""
    timeline, kernels = place.timeline, place.kernels
    profiles = timeline["kernel_profiles"]
    launches, of_kernel = matched(kernels, profiles.take(on_same_gpu(profiles, place.info)), place.units)
    sets = [np.searchsorted(profiles["launch"], each).astype(np.int64) for each in launches]
    return Measured(kernels, place.kernel_ns.astype(np.float64), of_kernel, sets, profiles, timeline["kernel_advice"])


def tensor_share(place: Place) -> Floats:
    """For each kernel of a place how busy ncu saw the tensor cores in it; NaN where it was not measured."""
    if not len(place.timeline["kernel_profiles"]):
        return np.full(len(place.kernels), np.nan)
    return measured(place).number("tensor_share")


def on_tensor_cores(place: Place) -> Mask:
    """One bool a kernel: were tensor cores seen at work in it, by ncu or by the GPU's counters?

    That ncu saw little proves nothing; what the counters saw of a name counts for all kernels of that name.
    """
    by_counters = np.nan_to_num(of_names(place, place.kernels.name, "tensor_active_share")) >= _COUNTED_AT_WORK
    return by_counters | (np.nan_to_num(tensor_share(place)) >= TENSOR_CORES_AT_WORK)


def off_tensor_cores(place: Place) -> Mask:
    """One bool a kernel: did the GPU's counters see next to nothing on tensor cores while kernels of its name ran?"""
    return np.nan_to_num(of_names(place, place.kernels.name, "tensor_active_share"), nan=1.0) <= _COUNTED_OFF


def tensor_evidence(place: Place, rows: Mask) -> tuple[Measure, ...]:
    """How busy tensor cores are in these kernels, by ncu and by the counters, weighted by how long each runs."""
    by = {
        "Nsight Compute": tensor_share(place),
        "the GPU's counters": of_names(place, place.kernels.name, "tensor_active_share"),
    }
    means = {tool: weighted_mean(share[rows], place.kernel_ns[rows]) for tool, share in by.items()}
    return tuple(
        Measure(f"tensor cores at work in them, by {tool}", mean, "share")
        for tool, mean in means.items()
        if not np.isnan(mean)
    )


def launches_alone(timeline: Timeline) -> Measured:
    """The measured launches themselves, each standing for itself: where there is no timeline that they belong to."""
    profiles = timeline["kernel_profiles"]
    each = np.arange(len(profiles), dtype=np.int64)
    time_ns = np.nan_to_num(profiles.floats("gpu_time_ns"))
    return Measured(profiles, time_ns, each, list(each[:, None]), profiles, timeline["kernel_advice"])

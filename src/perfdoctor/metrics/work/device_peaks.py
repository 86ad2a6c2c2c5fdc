"""What can the GPU of a place do at most, and what did it reach when it was measured?

Shares of a peak (MFU, rooflines, what is near a limit) are of the data sheet's rates, as everybody's are. Predicted
savings rest on what the machine reached, where that was measured: a step comes no nearer to the data sheet than that.
"""

from __future__ import annotations

from msgspec import Struct

from perfdoctor.hardware.generations import NVIDIA, Generation, generation, vendor
from perfdoctor.hardware.links import link_of, nvlink_source
from perfdoctor.hardware.measured import MeasuredRates
from perfdoctor.hardware.peaks import Peaks, named, peaks_of, with_rates
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Device, UserValues
from perfdoctor.vocabulary.names import cuda as cuda_names

#: What a kernel takes that has next to nothing to do, where this machine was not measured: 2 to 3 µs on V100, A100 and
#: H100 under a profiler (element-wise kernels over a few numbers in public recordings).
KERNEL_FLOOR_NS = 2_000
#: Tools that record GPUs of NVIDIA alone.
_TOOLS_OF_NVIDIA = frozenset({"nsys", "ncu"})


def peaks(place: Place) -> Peaks | None:
    """The peaks of the place's GPU, where what the user gave counts more; None where neither is known."""
    return peaks_of_device(place.info, place.timeline.user_values)


def peaks_of_device(info: Device, user_values: UserValues) -> Peaks | None:
    """The peaks of a GPU, where what the user gave counts more; None where neither is known."""
    return with_rates(_of_the_table(info, user_values), user_values.peaks)


def generation_of(place: Place) -> Generation | None:
    """The generation of the place's GPU, or of the one that the user names; None where neither is known."""
    name = place.timeline.user_values.gpu
    if name or vendor_of(place) not in ("", NVIDIA):  # whose capability says nothing
        return generation(name or place.info.name)
    return generation(place.info.name, place.info.compute_capability)


@once_per_place
def vendor_of(place: Place) -> str:
    """Whose GPU it is, by its name, by the calls that launch its work, or by the tool; "" where nothing says it."""
    named = vendor(place.timeline.user_values.gpu or place.info.name)
    if named or place.device is None:
        return named
    calls = place.timeline.calls.of(rank=place.rank).name
    by_calls = next((each for each, pattern in cuda_names.CALLS_OF.items() if calls.matches(pattern).any()), "")
    return by_calls or (NVIDIA if any(source.kind in _TOOLS_OF_NVIDIA for source in place.timeline.sources) else "")


def attained(place: Place) -> Peaks | None:
    """The peaks with measured rates in place of the data sheet's, for predicted savings. The user's count more."""
    rates = measured(place)
    known = with_rates(_of_the_table(place.info, place.timeline.user_values), rates.as_peaks() if rates else {})
    return with_rates(known, place.timeline.user_values.peaks)


def measured(place: Place) -> MeasuredRates | None:
    """What was measured of this place's GPU, by its name; None where the user says that it is another one."""
    if place.timeline.user_values.gpu or place.device is None:
        return None
    name = place.info.name.strip().casefold()
    return next((each for each in place.timeline.measured if each.machine.device.strip().casefold() == name), None)


def kernel_floor_ns(place: Place, unless_measured: float = KERNEL_FLOOR_NS) -> float:
    """Ns that a kernel takes which has next to nothing to do: as measured on this machine, or the given number."""
    rates = measured(place)
    return (rates.one("kernel_floor") if rates else 0.0) or unless_measured


def _of_the_table(info: Device, user_values: UserValues) -> Peaks | None:
    return named(user_values.gpu)[0] if user_values.gpu else peaks_of(info.name, info.sm_count, info.memory_bytes)


class RateOrigin(Struct, frozen=True):
    """Where a rate comes from. `source`: a key of `derivations.SOURCES`; `document`: of which GPU, and which paper."""

    source: str
    document: str = ""


def origin(place: Place, rate: str, *, attained: bool) -> RateOrigin:
    """The origin of a rate: one of `hardware.peaks.SETTABLE`, or `link` and `nvlink`, between GPUs.

    `attained`: measured rates come first.
    """
    if rate in place.timeline.user_values.peaks:
        return RateOrigin("option", f"--peak {rate}")
    rates = measured(place) if attained else None
    if rates and rate in rates.as_peaks():
        return RateOrigin("measured", f"{rates.machine.device}, on {rates.measured_on}")
    if rate == "nvlink":
        return RateOrigin("data-sheet", nvlink_source(place.info.name))
    if rate == "link":
        link = link_of(place.info.name)
        return RateOrigin("data-sheet", f"{link.name}: {link.source}" if link else "")
    known = _of_the_table(place.info, place.timeline.user_values)
    return RateOrigin("data-sheet", f"{known.name}: {known.source}" if known else "")

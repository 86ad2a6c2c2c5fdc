"""Is there what a fix needs: in the GPU, in the installed torch, in the steps of the program? Yes, no, or not known.

A condition is one of `vocabulary.needs`, a fact of the program (`frameworks.FACTS`), `gpu A40` (a GPU of that name),
or one of these behind `not `. What is not known stays so behind `not `.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from perfdoctor.hardware.generations import AMPERE, NVIDIA, Generation, abilities
from perfdoctor.metrics.accounting.host_place import host_places, launches_gpu_work
from perfdoctor.metrics.accounting.queued import blocking_rows
from perfdoctor.metrics.grouping import combined
from perfdoctor.metrics.host import feeding
from perfdoctor.metrics.host.same_work import MOST_OF_IT
from perfdoctor.metrics.memory.growth import reserved_peaks
from perfdoctor.metrics.program import facts
from perfdoctor.metrics.work.device_peaks import generation_of, vendor_of
from perfdoctor.metrics.work.half_precision import half_products, wide_products
from perfdoctor.model.cache import once_per_place, once_per_run
from perfdoctor.model.host_rows import named
from perfdoctor.model.launches import first_kernels, launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Ints
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.names import torch as torch_names
from perfdoctor.vocabulary.names.frameworks import FACTS, NOT
from perfdoctor.vocabulary.names.kernels import built_for
from perfdoctor.vocabulary.needs import NO_VERSION, TORCH, version_of

GPU = "gpu "
#: Two steps that differ may be any two: three show whether each has shapes of its own.
_FEWEST_STEPS = 3
#: The replay of a graph, with the call of compiled code around it, costs the host some ten launches of 5 µs: of twenty,
#: half are saved.
_FEWEST_OF_A_GRAPH = 20
#: A step is captured as a whole if so many of its kernels lie in one piece: what stands before and behind stays eager.
_IN_ONE_PIECE = 0.9
#: Of the GPU's memory: PyTorch's own allocator calls the driver in vain before it is all reserved.
_FULL_SHARE = 0.9
#: What a processor has. Whether it computes in bfloat16 no recording says; code for it torch.compile writes in C++.
_OF_PROCESSORS: Mapping[str, bool | None] = {"compile": True, "nvidia": True, "bf16": None}


@once_per_run
def state(run: Run, condition: str) -> bool | None:
    """Does the condition hold? None where the recording does not say."""
    if condition.startswith(NOT):
        known = state(run, condition.removeprefix(NOT))
        return None if known is None else not known
    if condition in FACTS:
        return condition in facts(run)
    if condition.startswith(TORCH):
        return _has_torch(run, version_of(condition))
    if condition.startswith(GPU):
        return _is_named(run, condition.removeprefix(GPU))
    if condition in abilities() or condition == "nvidia":
        return _of_gpus(run, condition)
    return _OF_STEPS[condition](run)


def every(states: Iterable[bool | None]) -> bool | None:
    """False if one is, else None if one is, else True."""
    found = set(states)
    return False if False in found else None if None in found else True


# --- the machine ---


def _of_gpus(run: Run, ability: str) -> bool | None:
    places = [place for place in run.places if place.device is not None]
    if not places:
        is_processor = bool(host_places(run)) and not launches_gpu_work(run)
        return _OF_PROCESSORS.get(ability, False) if is_processor else None
    return every(_of_gpu(place, ability) for place in places)


def _of_gpu(place: Place, ability: str) -> bool | None:
    if ability == "nvidia":
        whose = vendor_of(place)
        return whose == NVIDIA if whose else None
    built = generation_of(place)
    if built is not None:
        return built.has(ability)
    if _at_least(place).has(ability):
        return True
    # Graphs are replayed by all GPUs whose calls were recorded, but for those of vendors that have none.
    return {"": None, NVIDIA: True, "AMD": True}.get(vendor_of(place), False) if ability == "graphs" else None


@once_per_place
def _at_least(place: Place) -> Generation:
    """The oldest generation that runs the place's kernels, as far as libraries built them for one."""
    least = max(place.kernels.name.classified(built_for), default=NO_VERSION)
    return Generation(least, tensor_cores=least >= AMPERE)


def _is_named(run: Run, name: str) -> bool | None:
    """Is any of the GPUs one of this name? None where one has none."""
    given = run.timeline.user_values.gpu
    names = [given or place.info.name for place in run.places if place.device is not None]
    wanted = regex(rf"\b{re.escape(name)}\b")
    return True if any(wanted.search(each) for each in names) else None if "" in names else False


def _has_torch(run: Run, wanted: tuple[int, int]) -> bool | None:
    """Is the recorded torch that version or a later one? Code that torch.compile made shows 2.0 at least."""
    recorded = version_of(run.timeline.torch)
    if recorded != NO_VERSION:
        return recorded >= wanted
    return True if wanted <= (2, 0) and "compiled" in facts(run) else None


# --- the program ---


def _no_data_syncs(run: Run) -> bool | None:
    return every(_is_launched_at_once(place) for place in run.places)


def _is_launched_at_once(place: Place) -> bool | None:
    """Can graphs hold most kernels: are they launched many at a time, between two waits of the host for a value?

    None where neither calls nor ops show what the host waits for.
    """
    piece = _pieces(place)
    if piece is None:
        return None
    together = np.bincount(piece)[piece]
    return bool(np.unique(piece).size == 1 or (together >= _FEWEST_OF_A_GRAPH).mean() > MOST_OF_IT)


def _one_piece(run: Run) -> bool | None:
    return every(_has_one_piece(place) for place in run.places)


def _has_one_piece(place: Place) -> bool | None:
    """Are nearly all kernels of a step launched between two waits for a value? None where the waits are not known."""
    piece = _pieces(place)
    if piece is None:
        return None
    largest = np.sort(np.bincount(piece))[-place.units :]
    return bool(largest.sum() >= _IN_ONE_PIECE * piece.size)


@once_per_place
def _pieces(place: Place) -> Ints | None:
    """A number for each kernel whose launch is known: one for those between two waits of the host for a value."""
    launched = launches_of(place, "kernels")
    if place.device is None or not launched.known.any():
        return None
    waits = place.timeline.calls.start_ns[blocking_rows(place.host, place.work)]
    reads = place.timeline.ops.of(rank=place.rank).named(torch_names.READS_VALUE).start_ns
    found: Ints = np.searchsorted(np.sort(np.concatenate((waits, reads))), launched.at_ns[launched.known])
    return found


def _steady_shapes(run: Run) -> bool | None:
    return every(_has_steady_shapes(place) for place in run.places)


def _has_steady_shapes(place: Place) -> bool | None:
    """Are most steps ones whose shapes occurred before? By the shapes of products, else by the grids of kernels."""
    bounds = place.steps.used_bounds if place.steps.used else np.empty(0, np.int64)
    if len(bounds) <= _FEWEST_STEPS:
        return None
    signatures = _shapes_of_steps(place, bounds) or _grids_of_steps(place, bounds)
    if not signatures:
        return None
    seen, new = {signatures[0]}, 0
    for each in signatures[1:]:
        new += each not in seen
        seen.add(each)
    return new <= MOST_OF_IT * (len(signatures) - 1)


def _shapes_of_steps(place: Place, bounds: Ints) -> list[bytes]:
    """Return the shapes that products and convolutions of each step read; [] where shapes were not recorded."""
    if place.device is None:
        products = place.timeline.ops.of(rank=place.rank).named(torch_names.MATMUL)
        at = products.start_ns
    else:
        _, products, at = first_kernels(place, named(place.timeline, "ops", torch_names.MATMUL))
    shapes = products.text("input_shapes")
    if not len(products) or shapes.equals("").any():
        return []
    step = np.searchsorted(bounds, at, side="right") - 1
    return [np.unique(shapes.codes[step == number]).tobytes() for number in range(len(bounds) - 1)]


def _grids_of_steps(place: Place, bounds: Ints) -> list[bytes]:
    """Return the kernels of each step, by name and number of blocks; [] where no kernels were recorded."""
    kernels = place.kernels
    if not len(kernels):
        return []
    kind, _ = combined(kernels.name.codes.astype(np.int64), kernels["blocks"])
    step = np.searchsorted(bounds, kernels.start_ns, side="right") - 1
    return [np.unique(kind[step == number]).tobytes() for number in range(len(bounds) - 1)]


def _wide_products(run: Run) -> bool | None:
    """Do most products and convolutions read 32 or 64 bits, by their time? None where no kernel says what it reads."""
    wide, half = (
        sum(int(place.kernel_ns[rows(place)].sum()) for place in run.places) for rows in (wide_products, half_products)
    )
    return wide > MOST_OF_IT * (wide + half) if wide + half else None


def _memory_is_full(run: Run) -> bool | None:
    known = [each for each in reserved_peaks(run.timeline) if each.capacity_bytes]
    return any(each.peak_bytes > _FULL_SHARE * each.capacity_bytes for each in known) if known else None


def _files(run: Run) -> bool | None:
    """Could files be read faster? Nobody knows where the loader mostly waits for them; else they are not the limit."""
    return None if feeding.waits_for_files(run) else True


_OF_STEPS: Mapping[str, Callable[[Run], bool | None]] = {
    "fused": lambda run: _has_torch(run, (2, 0) if "gpu" in facts(run) else (2, 4)),
    "no-data-syncs": _no_data_syncs,
    "one-piece": _one_piece,
    "steady-shapes": _steady_shapes,
    "files": _files,
    "wide-products": _wide_products,
    "full-memory": _memory_is_full,
}

"""What is the recorded program: in which framework, training or serving, how compiled and distributed?

The one place that decides it: words, rules, fixes and hints ask here.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.metrics.communication.collectives import is_full_precision
from perfdoctor.model.cache import once_per_run, once_per_timeline
from perfdoctor.model.host_rows import outermost
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launches
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Timeline
from perfdoctor.vocabulary.basis import EXECUTION, ITERATION, RECORDING, STEP, Basis
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import frameworks as names
from perfdoctor.vocabulary.names import nccl as nccl_names
from perfdoctor.vocabulary.names import serving
from perfdoctor.vocabulary.names import torch as torch_names
from perfdoctor.vocabulary.names import xla as xla_names

#: `triton` and `cuda`: kernels of the program's own, of Triton's or of CUDA's libraries, and no framework around them.
Framework = Literal["torch", "jax", "triton", "cuda", "unknown"]
Kind = Literal["training", "inference", "unknown"]

#: Sources that name every kernel of a process, whatever framework launched it.
_TOOLS_OF_ANY = frozenset({"nsys", "ncu"})
#: Sources of PyTorch itself.
_TORCH_TOOLS = frozenset({"kineto", "memory"})
#: Messages below are small: as in the rule exposed-communication, their number costs, and not their bytes.
SMALL_BYTES = 131_072
_NAMED_ON_HOST = ("ops", "ranges", "functions")


def _has(timeline: Timeline, pattern: re.Pattern[str], *signals: str) -> bool:
    """Does any row of these signals have such a name?"""
    return any(timeline[signal].name.matches(pattern).any() for signal in signals)


# --- framework ---


@once_per_timeline
def framework(timeline: Timeline) -> Framework:
    """What computed, going by the names of kernels, then of ranges and functions.

    JAX programs often load batches with torch's DataLoader: kernels and ops of PyTorch count, its Python does not
    where XLA names itself. A recording of nsys or ncu in which no kernel is PyTorch's is of another program: eager
    PyTorch fills, copies and adds with kernels of its own in every step, compiled PyTorch runs Inductor's. That holds
    only where kernels are named one by one; CUDA graphs that were recorded as a whole may hide any.
    """
    of_kernels, of_python = ("kernels", "kernel_profiles"), ("ranges", "functions")
    if len(timeline.ops) or _has(timeline, names.TORCH_KERNEL, *of_kernels):
        return "torch"
    if _has(timeline, xla_names.KERNEL, *of_kernels) or any(
        _has(timeline, pattern, *of_python) for pattern in (xla_names.RANGE, xla_names.FUNCTION)
    ):
        return "jax"
    tools = {source.kind for source in timeline.sources}
    # PyTorch's own tools wrote it, or perfdoctor's recorder inside of PyTorch.
    by_torch = bool(tools & _TORCH_TOOLS or timeline.steps_marked_by or timeline.loaders)
    if by_torch or _has(timeline, names.TORCH, *of_python):
        return "torch"
    some_kernels = len(timeline.kernels) or len(timeline["kernel_profiles"])
    if not (tools & _TOOLS_OF_ANY and some_kernels) or timeline.kernels["is_graph"].any():
        return "unknown"
    is_triton = _has(timeline, names.TRITON_KERNEL, *of_kernels) or _has(timeline, names.TRITON_FUNCTION, *of_python)
    return "triton" if is_triton else "cuda"


def may_be_torch(timeline: Timeline) -> bool:
    """Is it PyTorch, or nothing that is known to be another program? PyTorch is what most people record."""
    return framework(timeline) in ("torch", "unknown")


# --- training or serving ---


class KindOfWork(Struct, frozen=True):
    """`server`: whose server it is, "" where it is none or has no name."""

    kind: Kind
    server: str = ""


@once_per_timeline
def kind_of_work(timeline: Timeline) -> KindOfWork:
    """Training where anything of a backward pass or an optimizer was recorded, on whatever rank.

    Inference where a server, a KV cache or an iteration of a server names itself; else where layers ran on the host
    (ops were recorded) with neither a backward pass nor a loss. Anything else is unknown: kernels alone look alike.
    """
    if _has(timeline, serving.TRAINS, *_NAMED_ON_HOST) or _has(timeline, serving.TRAINING_KERNEL, "kernels"):
        return KindOfWork("training")
    servers = (
        server for server, pattern in serving.SERVERS.items() if _has(timeline, pattern, *_NAMED_ON_HOST, "kernels")
    )
    server = next(servers, "")
    names_itself = _has(timeline, serving.CACHE_KERNEL, "kernels") or _has(timeline, serving.ITERATION, *_NAMED_ON_HOST)
    if server or names_itself or _only_forward(timeline):
        return KindOfWork("inference", server)
    return KindOfWork("unknown")


def _only_forward(timeline: Timeline) -> bool:
    """Are there layers with weights and others, no loss at their end, and nothing around them that people wrap to
    train?
    """
    if _has(timeline, serving.WRAPPED, *_NAMED_ON_HOST):
        return False
    has_layers = _has(timeline, serving.PRODUCT, "ops") and _has(timeline, torch_names.FORWARD_ONLY, "ops")
    return has_layers and not _has(timeline, serving.LOSS, "ops")


class Phase(Struct, frozen=True):
    """`name`: prefill, decode or mixed. `share`: of the busy time of which the phase is known, mean over all places."""

    name: str
    iterations: int
    share: float


def phases(run: Run) -> tuple[Phase, ...]:
    """The phases of a server's iterations that their ranges name, the largest share first; () where none is named.

    An iteration's time is that of the work that was launched in its range, on whatever thread of the rank.
    """
    every = [known for place in run.places if place.device is not None and (known := _phases_of(place))]
    whole_ns = sum(ns for known in every for _, ns in known.values())
    found = []
    for name in dict.fromkeys(name for known in every for name in known):
        own = [known.get(name, (0, 0)) for known in every]
        found.append(Phase(name, max(count for count, _ in own), sum(ns for _, ns in own) / max(whole_ns, 1)))
    return tuple(sorted(found, key=lambda each: -each.share))


def _phases_of(place: Place) -> dict[str, tuple[int, int]]:
    """By phase: how many iterations, and the busy time of what was launched in them, in ns."""
    ranges = place.timeline.ranges.of(rank=place.rank)
    named = np.array(ranges.name.classified(serving.phase), dtype=object)[ranges.name.codes]
    launched, work, found = launches(place), place.work, {}
    for name in dict.fromkeys(each for each in named.tolist() if each):
        rows = outermost(ranges.take(named == name))
        inside = launched.within(rows.intervals)
        busy = Intervals.of(work.start_ns[inside], work.end_ns[inside])
        if busy:
            found[name] = (len(rows), busy.total_ns)
    return found


# --- facts ---


@once_per_run
def facts(run: Run) -> frozenset[str]:
    """The facts of `names.FACTS` that hold: how the model was compiled and distributed, and what it runs on.

    DDP, FSDP and the others name themselves among the framework's ops and ranges, and in its stacks. Where neither ops
    nor stacks were recorded their absence shows nothing: then training that only all-reduces is taken for DDP, and one
    that also gathers and scatters for FSDP, which most of them are.
    """
    timeline = run.timeline

    def is_named(pattern: re.Pattern[str]) -> bool:
        return _has(timeline, pattern, *_NAMED_ON_HOST)

    kinds = {kind for place in run.places for kind in place.collectives.text("kind")}
    is_torch, work = may_be_torch(timeline), kind_of_work(timeline)
    unnamed = is_torch and not len(timeline.ops) and not len(timeline["functions"])
    sharded = {"all_gather", "reduce_scatter"} <= kinds
    deepspeed, megatron = is_named(names.DEEPSPEED), is_named(names.MEGATRON)
    other = deepspeed or megatron
    found = {
        "torch": is_torch,
        "jax": framework(timeline) == "jax",
        "compiled": is_named(names.COMPILED) or _has(timeline, names.COMPILED_KERNEL, "kernels"),
        "cuda-graphs": _has(timeline, cuda_names.GRAPH_LAUNCH, "calls"),
        "ddp": not other and (is_named(names.DDP) or (unnamed and "all_reduce" in kinds and not sharded)),
        "fsdp": is_named(names.FSDP) or (unnamed and sharded and not other),
        "fsdp1": is_named(names.FSDP1),
        "deepspeed": deepspeed,
        "megatron": megatron,
        "tensor-parallel": is_named(names.TENSOR_PARALLEL),
        "gloo": _has(timeline, nccl_names.GLOO, "ranges"),
        "sends-16-bit": _sends_16_bit(run),
        "exchanges": _exchanges(run),
        "embeddings": "all_to_all" in kinds and exchanged(timeline) == "embeddings",
        "experts": "all_to_all" in kinds and exchanged(timeline) == "expert",
        "gradients": _may_sum_gradients(run),
        "gpu": any(place.device is not None for place in run.places),
        "inference": work.kind == "inference",
        "forward": bool(len(timeline.ops)) and work.kind != "training",
        "vllm": work.server == "vLLM",
        "sglang": work.server == "SGLang",
    }
    return frozenset(fact for fact, is_true in found.items() if is_true)


@once_per_timeline
def exchanged(timeline: Timeline) -> str:
    """Whose all-to-alls are they, by the names around them: a key of `nccl.EXCHANGED`, or an "exchange" of no more."""
    named = (kind for kind, names in nccl_names.EXCHANGED.items() if _has(timeline, names, *_NAMED_ON_HOST, "kernels"))
    return next(named, "exchange")


def _exchanges(run: Run) -> bool:
    """Is most of the exposed communication sent from rank to rank: experts' tokens, embeddings, pipelines?

    What is known to be small is not counted: however it is sent, its time is latency, or waiting for another rank.
    """
    of_all = of_these = 0
    for place in run.places:
        rows = place.collectives
        rows = rows.take((rows["bytes"] == UNKNOWN) | (rows["bytes"] >= SMALL_BYTES))
        exposed_ns = place.exposed_communication.overlap_ns(rows.start_ns, rows.end_ns)
        of_all += int(exposed_ns.sum())
        of_these += int(exposed_ns[rows.text("kind").equals("all_to_all", "send_recv")].sum())
    return of_these > of_all - of_these


def _may_sum_gradients(run: Run) -> bool:
    """Are there sums over ranks of numbers that may be gradients?

    Where nothing shows a training, small ones are a metric's or a loss's: a forward pass sums no gradients.
    """
    kind = kind_of_work(run.timeline).kind
    if kind == "inference":
        return False
    for place in run.places:
        rows = place.collectives
        sums = rows.take(rows.text("kind").equals("all_reduce", "reduce_scatter"))
        counted = ~sums.text("data_type").matches(nccl_names.WHOLE_NUMBERS)
        if kind != "training":
            counted &= (sums["bytes"] == UNKNOWN) | (sums["bytes"] >= SMALL_BYTES)
        if counted.any():
            return True
    return False


def _sends_16_bit(run: Run) -> bool:
    """Are the types of all gradients known, and none of them fp32? fp64 and integers are no gradients."""
    frames = [place.collectives for place in run.places if len(place.collectives)]
    carried = [frame.take(frame.text("kind").equals("all_reduce", "reduce_scatter")) for frame in frames]
    typed = [frame for frame in carried if len(frame)]
    return bool(typed) and all(
        not is_full_precision(frame).any() and not frame.text("data_type").equals("").any() for frame in typed
    )


# --- the unit of its numbers ---


def basis_of(run: Run) -> Basis:
    """The unit by which quantities are divided, what it is called, and whether the program answers requests."""
    serves = kind_of_work(run.timeline).kind == "inference"
    unit = _unit_of(run.places[0]) if run.per_step else RECORDING
    return replace(unit, serves=serves, computes=not (serves or may_be_torch(run.timeline)))


def _unit_of(place: Place) -> Basis:
    """The unit of a place's steps. A server's iteration is called so, unless the user called it a step."""
    if place.steps.lengths_ns is not None:
        return EXECUTION
    serves = kind_of_work(place.timeline).kind == "inference"
    return ITERATION if serves and place.steps.found_by != "profiler-step" else STEP


def noun_of(place: Place) -> str:
    """What one of the place's steps is called: `step`, `iteration` or `execution`."""
    return _unit_of(place).noun

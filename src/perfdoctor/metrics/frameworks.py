"""How was the recorded model compiled and distributed, as far as the recording names it?"""

from __future__ import annotations

import re

from perfdoctor.metrics.communication.collectives import is_full_precision
from perfdoctor.metrics.framework import framework, may_be_torch
from perfdoctor.metrics.kind_of_work import kind_of_work
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.run import Run
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import frameworks as names
from perfdoctor.vocabulary.names import nccl as nccl_names

#: Collectives that carry gradients.
_GRADIENTS = ("all_reduce", "reduce_scatter")


@once_per_run
def facts(run: Run) -> frozenset[str]:
    """Those of `names.FACTS` that hold.

    DDP, FSDP and the others name themselves among the framework's ops and ranges, and in its stacks. Where neither ops
    nor stacks were recorded their absence shows nothing: then training that only all-reduces is taken for DDP, and one
    that also gathers and scatters for FSDP, which most of them are.
    """
    kinds = {kind for place in run.places for kind in place.collectives.text("kind")}
    program, is_torch = framework(run.timeline), may_be_torch(run.timeline)
    unnamed = is_torch and not len(run.timeline.ops) and not len(run.timeline["functions"])
    sharded = {"all_gather", "reduce_scatter"} <= kinds
    deepspeed, megatron = _is_named(run, names.DEEPSPEED), _is_named(run, names.MEGATRON)
    other = deepspeed or megatron
    work = kind_of_work(run.timeline)
    found = {
        "torch": is_torch,
        "jax": program == "jax",
        "compiled": _is_compiled(run),
        "cuda-graphs": bool(run.timeline.calls.name.matches(cuda_names.GRAPH_LAUNCH).any()),
        "ddp": not other and (_is_named(run, names.DDP) or (unnamed and "all_reduce" in kinds and not sharded)),
        "fsdp": _is_named(run, names.FSDP) or (unnamed and sharded and not other),
        "fsdp1": _is_named(run, names.FSDP1),
        "deepspeed": deepspeed,
        "megatron": megatron,
        "tensor-parallel": _is_named(run, names.TENSOR_PARALLEL),
        "gloo": bool(run.timeline.ranges.name.matches(nccl_names.GLOO).any()),
        "sends-16-bit": _sends_16_bit(run),
        "gpu": any(place.device is not None for place in run.places),
        "inference": work.kind == "inference",
        "vllm": work.server == "vLLM",
        "sglang": work.server == "SGLang",
    }
    return frozenset(fact for fact, is_true in found.items() if is_true)


def _is_named(run: Run, pattern: re.Pattern[str]) -> bool:
    timeline = run.timeline
    return any(frame.name.matches(pattern).any() for frame in (timeline.ops, timeline.ranges, timeline["functions"]))


def _is_compiled(run: Run) -> bool:
    return _is_named(run, names.COMPILED) or bool(run.timeline.kernels.name.matches(names.COMPILED_KERNEL).any())


def _sends_16_bit(run: Run) -> bool:
    """Are the types of all gradients known, and none of them fp32? fp64 and integers are no gradients."""
    frames = [place.collectives for place in run.places if len(place.collectives)]
    carried = [frame.take(frame.text("kind").equals(*_GRADIENTS)) for frame in frames]
    typed = [frame for frame in carried if len(frame)]
    return bool(typed) and all(
        not is_full_precision(frame).any() and not frame.text("data_type").equals("").any() for frame in typed
    )

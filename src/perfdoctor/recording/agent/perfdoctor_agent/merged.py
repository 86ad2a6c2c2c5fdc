"""How do gradients that a program sends one by one travel in one message? Of one treatment.

The first update shows which tensors a program adds up over all ranks behind its backward pass: where gradients are
among them, each once, in one series that nothing interrupts, the first call of the next series sends all of them, and
the others find their sums ready. A gradient is known by its memory, as `weight.grad.data` is another object each time.
Ranks decide alike, as they make the same calls.
"""

from __future__ import annotations

import sys
from typing import Any

from perfdoctor_agent import private


class _Series:
    """The calls between two updates. `learned`: the parameters whose gradients are sent, in their order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []  # (tensor, is it plainly added up?), which keeps memory from being another tensor's
        self.learned: list[Any] = []
        self.done: set[Any] = set()


def _memory(tensor: Any) -> Any:
    """By what a gradient is known among others; None where it is sparse, or no tensor."""
    try:
        return (tensor.data_ptr(), tensor.numel(), tensor.dtype) if tensor.numel() else None
    except (AttributeError, RuntimeError):
        return None


def _one_series(found: Any) -> Any:
    """The parameters from the first to the last one; none where others, or one twice, are between them.

    `found`: the parameter of each call, None: of another tensor, and whether it is plainly added up.
    """
    places = [place for place, (each, _) in enumerate(found) if each is not None]
    series = found[places[0] : places[-1] + 1] if places else []
    parameters = [each for each, is_plain in series if each is not None and is_plain]
    is_one = len(parameters) == len(series) == len({id(each) for each in parameters}) > 1
    return parameters if is_one and len({(each.grad.dtype, each.grad.device) for each in parameters}) == 1 else []


def install(torch: Any, given: Any) -> None:
    distributed = torch.distributed
    if not distributed.is_available():
        return
    original, series = distributed.all_reduce, _Series()
    flatten = private.find(torch, "_utils._flatten_dense_tensors")
    unflatten = private.find(torch, "_utils._unflatten_dense_tensors")
    if flatten is None or unflatten is None:
        return

    def call(tensor: Any, op: Any = distributed.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
        is_plain = op == distributed.ReduceOp.SUM and group is None and not async_op
        if not series.learned or not is_plain:
            if not series.learned:
                series.seen.append((tensor, is_plain))
            return original(tensor, op, group, async_op)
        memory = _memory(tensor)
        if memory in series.done:
            series.done.discard(memory)
            return None
        grads = [each.grad for each in series.learned]
        known = {_memory(each) for each in grads}
        if None in known or len(known) < len(grads) or memory not in known:
            return original(tensor, op, group, async_op)
        flat = flatten(grads)
        original(flat)
        for grad, summed in zip(grads, unflatten(flat, grads)):
            grad.copy_(summed)
        given.touch()
        series.done = known - {memory}
        return None

    def learn(optimizer: Any, *_: Any) -> None:
        if not series.learned and series.seen:
            parameters = {
                _memory(each.grad): each
                for group in optimizer.param_groups
                for each in group["params"]
                if _memory(each.grad) is not None
            }
            series.learned = _one_series([(parameters.get(_memory(each)), plain) for each, plain in series.seen])
        series.seen = []
        series.done = set()

    sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(learn)
    distributed.all_reduce = call
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is not None:
        module.all_reduce = call  # type: ignore[attr-defined]

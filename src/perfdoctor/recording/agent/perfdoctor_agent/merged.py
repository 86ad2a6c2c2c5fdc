"""How do gradients that a program sends one by one travel in one message? Of one treatment.

The first update shows which tensors a program adds up over all ranks behind its backward pass: where these are
gradients, each once, all in one series, the first call of the next series sends all of them, and the others find their
sums ready.
Ranks decide alike, as they make the same calls.
"""

from __future__ import annotations

import sys
from typing import Any

from perfdoctor_agent import private


class _Series:
    """The calls between two updates. `learned`: the parameters whose gradients are sent, in their order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.learned: list[Any] = []
        self.is_plain = True
        self.done: set[int] = set()


def install(torch: Any, given: Any) -> None:
    distributed = torch.distributed
    if not distributed.is_available():
        return
    original, series, parameters = distributed.all_reduce, _Series(), {}
    flatten = private.find(torch, "_utils._flatten_dense_tensors")
    unflatten = private.find(torch, "_utils._unflatten_dense_tensors")
    if flatten is None or unflatten is None:
        return

    def call(tensor: Any, op: Any = distributed.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
        is_plain = op == distributed.ReduceOp.SUM and group is None and not async_op
        if not series.learned or not is_plain:
            series.is_plain &= is_plain
            series.seen.append(tensor)
            return original(tensor, op, group, async_op)
        if id(tensor) in series.done:
            series.done.discard(id(tensor))
            return None
        grads = [each.grad for each in series.learned]
        if any(each is None for each in grads) or not any(each is tensor for each in grads):
            return original(tensor, op, group, async_op)
        flat = flatten(grads)
        original(flat)
        for grad, summed in zip(grads, unflatten(flat, grads)):
            grad.copy_(summed)
        given.touch()
        series.done = {id(each) for each in grads if each is not tensor}
        return None

    def learn(optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    parameters[id(each.grad)] = each
        if not series.learned:
            found = [parameters.get(id(each)) for each in series.seen]
            dense = [each for each in found if each is not None and not each.grad.is_sparse]
            kinds = {(each.grad.dtype, each.grad.device) for each in dense}
            if len(dense) == len(found) > 1 and series.is_plain and len(kinds) == 1:
                series.learned = dense
        series.seen, series.is_plain = [], True
        series.done.clear()
        parameters.clear()

    sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(learn)
    distributed.all_reduce = call
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is not None:
        module.all_reduce = call  # type: ignore[attr-defined]

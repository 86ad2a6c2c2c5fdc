"""How is a loss scaled for gradients in float16, from outside? Of one treatment.

The backward pass begins with the scale instead of one, and each gradient is divided by it before it is added up: what
the program sees (its loss, the gradients that it clips, the sums of several passes) is not scaled. An update is left
out where a gradient is not finite; then the scale is halved, and doubled after 2,000 updates without, as
torch.amp.GradScaler does (P. Micikevicius et al., Mixed Precision Training, ICLR 2018).
"""

from __future__ import annotations

import inspect
import types
from typing import Any

_FIRST, _AFTER = 2.0**16, 2000
#: A closure is called again with half the scale; with a scale of 1 it is as the program has it.
_MOST_CALLS = 17


class _Scale:
    def __init__(self) -> None:
        self.value, self.fine = _FIRST, 0
        self.is_on = False

    def update(self, *, is_finite: bool) -> None:
        self.fine = self.fine + 1 if is_finite else 0
        if not is_finite:
            self.value /= 2
        elif self.fine % _AFTER == 0:
            self.value *= 2


def install(torch: Any, given: Any) -> None:
    """Compute forward passes in float16 from the second step on, when the models are known."""
    scale = _Scale()

    def scaled(original: Any) -> Any:
        def backward(tensor: Any, gradient: Any = None, *args: Any, **kwargs: Any) -> Any:
            if scale.is_on and gradient is None and tensor.numel() == 1:
                gradient = torch.full_like(tensor, scale.value)
            return original(tensor, gradient, *args, **kwargs)

        return backward

    def begin() -> bool:
        scale.is_on = given.touched > 0  # at the update at which the models were treated
        return scale.is_on

    def made(original: Any) -> Any:
        def constructed(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            parameters = [each for group in optimizer.param_groups for each in group["params"]]
            for each in parameters:
                if each.requires_grad:
                    each.register_hook(lambda grad: grad / scale.value if scale.is_on else grad)
            update, calls_often = optimizer.step, _needs_closure(optimizer.step)

            def is_good() -> bool:
                """Are the gradients finite? The scale follows."""
                is_finite = not scale.is_on or _are_finite(torch, [each.grad for each in parameters])
                scale.update(is_finite=is_finite)
                return is_finite

            def step(_: Any, closure: Any = None, *args: Any, **kwargs: Any) -> Any:
                if closure is None:
                    return update(*args, **kwargs) if is_good() else None

                def good() -> Any:
                    for _ in range(_MOST_CALLS):
                        loss = closure()
                        if is_good():
                            break
                    return loss

                if calls_often:  # LBFGS: its closure may be called as often as one likes
                    return update(good, *args, **kwargs)
                with torch.enable_grad():  # the gradients are known before the update begins, which may be left out
                    loss = closure()
                if is_good():
                    update(*args, **kwargs)
                return loss

            optimizer.step = types.MethodType(step, optimizer)  # schedulers ask for a method

        return constructed

    given.replace(torch.Tensor, "backward", scaled)
    given.replace(torch.optim.Optimizer, "__init__", made)
    given.autocast(torch.float16)
    given.at_first_update(begin)


def _needs_closure(step: Any) -> bool:
    """Has its closure no default?"""
    try:
        closure = inspect.signature(step).parameters.get("closure")
    except (TypeError, ValueError):
        return False
    return closure is not None and closure.default is inspect.Parameter.empty


def _are_finite(torch: Any, grads: Any) -> bool:
    """Are all of them that there are? One waits once for each device."""
    found: dict[Any, list[Any]] = {}
    for grad in grads:
        if grad is not None:
            found.setdefault(grad.device, []).append(grad.isfinite().all())
    return all(bool(torch.stack(each).all()) for each in found.values())

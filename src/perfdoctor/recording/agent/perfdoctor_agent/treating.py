"""How does a treatment change a program from outside? What the files in `treatments/`, and those of users, are made of.

A treatment is one Python file: constants in capitals, which perfdoctor reads without running it (its own
`treatments/catalogue.py` says which), and a function `apply(torch, given)`, which runs in the program's process right
behind its import of torch. `given.values` are facts of the machine and of the diagnosis. `given.touch()` says that
something of the program was really changed: a treatment that never does so found nothing to change, and is no more
measured.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

#: A program with more models than these (an ensemble of hundreds) has its first ones treated.
_MOST_MODELS = 16


class Given:
    """What one treatment is given. `values`: `cores`, `ranks`, `threads`, `workers`; more where a finding has them."""

    def __init__(self, torch: Any, values: dict[str, Any], *, is_dry: bool = False) -> None:
        self.torch, self.values, self.touched = torch, values, 0
        self.is_dry = is_dry  # arguments are left as they are, and what would be changed is counted

    def touch(self) -> None:
        """Say that something of the program is another one now."""
        self.touched += 1

    def takes(self, owner: Any, name: str) -> bool:
        """Has the constructor of this class an argument of this name?"""
        try:
            return name in inspect.signature(owner.__init__).parameters
        except (TypeError, ValueError):
            return False

    def construct(self, owner: Any, change: Callable[[dict[str, Any]], bool], *, falls_back: bool = False) -> None:
        """Let `change(arguments)` correct the arguments of each `owner(…)`, by name; it returns whether it did.

        `falls_back`: a constructor that refuses the new arguments is called with its own, and nothing was touched.
        """
        original = owner.__init__
        signature = inspect.signature(original)

        @functools.wraps(original)
        def made(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                bound = signature.bind(self, *args, **kwargs)
                bound.apply_defaults()
                is_changed = change(bound.arguments)
                if is_changed and given.is_dry:
                    given.touch()
                    is_changed = False
            except TypeError:  # the program's own mistake, which the constructor reports
                is_changed = False
            if is_changed:
                try:
                    original(*bound.args, **bound.kwargs)
                except Exception:
                    if not falls_back:
                        raise
                else:
                    given.touch()
                    return
            original(self, *args, **kwargs)

        given = self
        owner.__init__ = made

    def keep_workers(self, change: Callable[[dict[str, Any]], bool]) -> None:
        """Let `change(arguments)` correct the arguments of each loader, which keeps its workers where it returns True.

        A loader draws a seed for the workers of each epoch, from the program's own random numbers, and one that keeps
        them does so only once. Here it goes on to, or the program would shuffle its next epochs otherwise.
        """
        torch, loaders = self.torch, self.torch.utils.data.DataLoader

        def kept(arguments: dict[str, Any]) -> bool:
            is_changed = change(arguments)
            if is_changed and not self.is_dry:
                arguments["persistent_workers"] = True
                arguments["self"].epochs_with_kept_workers = 0
            return is_changed

        def drawing(original: Callable[..., Any]) -> Callable[..., Any]:
            def begin(loader: Any) -> Any:
                epochs = getattr(loader, "epochs_with_kept_workers", None)
                if epochs is not None:
                    loader.epochs_with_kept_workers = epochs + 1
                    if epochs:  # behind the first one the loader draws no seed itself
                        torch.empty((), dtype=torch.int64).random_(generator=getattr(loader, "generator", None))
                return original(loader)

            begin.keeps_workers = True  # type: ignore[attr-defined]
            return begin

        self.construct(loaders, kept)
        if not getattr(loaders.__iter__, "keeps_workers", False):  # another treatment keeps workers, too
            self.replace(loaders, "__iter__", drawing)

    def models(self, treat: Callable[[Any], Any]) -> None:
        """Call `treat(module)` once for each outermost module with parameters that is called before the first update.

        It returns False where there was nothing to change.
        Hooks on all modules would slow a program and change what is compiled: they are removed at the first update, or
        the second one where models are called by the closure of the first.
        """
        modules = self.torch.nn.modules.module
        depth, seen = [0], []

        def is_part(module: Any) -> bool:
            """Is it one, or a part of one? Parts are called by themselves where activations are computed again."""
            return any(part is module for each in seen for part in each.modules())

        def before(module: Any, _args: Any) -> None:
            depth[0] += 1
            is_new = depth[0] == 1 and len(seen) < _MOST_MODELS and not is_part(module)
            if is_new and module.training and any(each.requires_grad for each in module.parameters()):
                seen.append(module)

        def after(_module: Any, _args: Any, _result: Any) -> None:
            depth[0] = max(depth[0] - 1, 0)

        def updated() -> bool:
            if not seen:  # `optimizer.step(closure)` calls them later
                return False
            for hook in hooks:
                hook.remove()
            while seen:
                if treat(seen.pop(0)) is not False:
                    self.touch()
            return True

        hooks = [
            modules.register_module_forward_pre_hook(before),
            modules.register_module_forward_hook(after, always_call=True),
        ]
        self.at_first_update(updated)

    def autocast(self, dtype: Any) -> None:
        """Compute the forward passes of models in a precision; what they return becomes fp32 again."""
        torch = self.torch

        def widened(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return value.float() if value.dtype is dtype else value
            if type(value) in (list, tuple):
                return type(value)(map(widened, value))
            if isinstance(value, dict):
                for key in value:
                    value[key] = widened(value[key])
            return value

        def treat(module: Any) -> None:
            forward = module.forward
            kind = next(module.parameters()).device.type

            def call(*args: Any, **kwargs: Any) -> Any:
                with torch.autocast(kind, dtype=dtype):
                    result = forward(*args, **kwargs)
                return widened(result)

            module.forward = call

        self.models(treat)

    def communication_hook(self, name: str) -> None:
        """Give each DistributedDataParallel one of torch's own hooks, with which it sends gradients."""

        def hooked(original: Callable[..., None]) -> Callable[..., None]:
            def made(module: Any, *args: Any, **kwargs: Any) -> None:
                hooks = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
                default_hooks = importlib.import_module(hooks)
                original(module, *args, **kwargs)
                module.register_comm_hook(None, getattr(default_hooks, name))
                self.touch()

            return made

        self.replace(self.torch.nn.parallel.DistributedDataParallel, "__init__", hooked)

    def at_first_update(self, act: Callable[[], Any]) -> None:
        """Call `act()` where the first optimizer begins its first update; if it returns False, at the next too."""
        is_over = []

        def before(*_: Any) -> None:
            if not is_over and act() is not False:
                is_over.append(True)

        # It stays: torch goes through its hooks, and none may be removed meanwhile. torch.optim hides the module.
        sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(before)

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put `make(original)` in the place of a function."""
        original = getattr(owner, name)
        made = make(original)
        functools.update_wrapper(made, original)
        setattr(owner, name, made)

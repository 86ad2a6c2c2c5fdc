"""How does a program run while a treatment is tried: what is put into it, when does it end, and what did it compute?

The treatments are applied right behind the import of torch. The loss is the tensor on which the program calls
`backward()`: a number at once on a CPU, a copy on the device on a GPU, which is read when the trial ends, so that
nothing waits. The program ends with a step, as if its training had ended there.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from array import array
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import private
from perfdoctor_agent.treating import Given
from perfdoctor_agent.turns import Turns, descendants

#: More losses than these are not needed to see that two trainings are one.
_MOST_LOSSES = 10_000
#: A sum of a thousand products is rounded so many times worse than one of them, at most, where its order is another
#: (N. Higham, Accuracy and Stability of Numerical Algorithms, 2002, 3.1: the square root of the number of terms).
_ROUNDINGS = 32


class Treated:
    """The treatments of this process.

    `settings`: `treatments` (file, values), `end_after`, `nudge`, `bitwise`, `turns` (see turns.py).
    """

    def __init__(self, torch: Any, settings: Any) -> None:
        self.torch, self.settings = torch, settings
        self.turns = Turns(torch, settings.get("turns"))
        self.errors: dict[str, str] = {}
        self.given: dict[str, Given] = {}
        self._losses = array("d")
        self._on_device: list[Any] = []
        self._optimizers: list[Any] = []
        self._parameter_bytes = 0
        self._nudged = 0
        self._is_inside = False
        for each in settings["treatments"]:
            self._apply(each["name"], each["file"], Given(torch, each["values"], is_dry=each.get("is_dry", False)))
        self._watch_losses()
        sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(self._updates)

    def _apply(self, name: str, file: str, given: Given) -> None:
        self.given[name] = given
        try:
            with open(file, encoding="utf-8") as source:
                code = compile(source.read(), file, "exec", dont_inherit=True)
            module: dict[str, Any] = {"__name__": "perfdoctor_treatment_" + name, "__file__": file}
            exec(code, module)  # noqa: S102 a treatment of ours, or one that the user gave
            module["apply"](self.torch, given)
        except Exception as error:
            self.errors[name] = f"{type(error).__name__}: {error}"

    # --- the loss ---

    def _watch_losses(self) -> None:
        original = private.find(self.torch, private.RUN_BACKWARD)
        if original is None:
            return

        @functools.wraps(original)
        def call(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            is_outermost = not self._is_inside
            if is_outermost:
                self._is_inside = True
                self._note(outputs)
            try:
                return original(outputs, *args, **kwargs)
            finally:
                if is_outermost:
                    self._is_inside = False

        private.replace(self.torch.autograd, private.RUN_BACKWARD.rpartition(".")[2], call)

    def _note(self, outputs: Any) -> None:
        """Keep the sum of the tensor whose backward pass begins."""
        try:
            loss = (outputs if isinstance(outputs, self.torch.Tensor) else outputs[0]).detach()
            if len(self._losses) + len(self._on_device) >= _MOST_LOSSES or self.torch.compiler.is_compiling():
                return
            if loss.device.type == "cpu":
                self._losses.append(float(loss.sum()))
            elif not self.torch.cuda.is_current_stream_capturing():
                self._on_device.append(loss.sum() if loss.numel() > 1 else loss.clone())
        except Exception:  # a tensor of another kind: the loss is not known
            pass

    # --- parameters ---

    def _updates(self, optimizer: Any, *_: Any) -> None:
        """Before an update: know the optimizer, and move its parameters by some roundings if that is asked for."""
        if any(each is optimizer for each in self._optimizers):
            return
        try:
            self._know(optimizer)
        except Exception:  # a class of the program's own
            pass

    def _know(self, optimizer: Any) -> None:
        self._optimizers.append(optimizer)
        sizes = [each.numel() * each.element_size() for each in self._parameters(optimizer)]
        self._parameter_bytes += sum(sizes)
        if not self.settings["nudge"]:
            return
        torch = self.torch
        with torch.no_grad():
            for each in map(_here, self._parameters(optimizer)):
                if each.is_floating_point():
                    signs = torch.arange(each.numel(), device=each.device).remainder(2).mul(2).sub(1).view(each.shape)
                    roundings = _ROUNDINGS if each.element_size() > 2 else 1  # sums of 16 bits are kept in 32
                    each.mul_(1 + roundings * torch.finfo(each.dtype).eps * signs.to(each.dtype))
                    self._nudged += 1

    def _parameters(self, *optimizers: Any) -> list[Any]:
        return [each for one in optimizers for group in one.param_groups for each in group["params"]]

    def _checksum(self) -> str:
        if not self.settings["bitwise"]:
            return ""
        found = hashlib.sha256()
        for each in map(_here, self._parameters(*self._optimizers)):
            found.update(each.detach().cpu().contiguous().view(-1).view(self.torch.uint8).numpy().tobytes())
        return found.hexdigest()

    # --- the end ---

    def is_last(self, steps: int) -> bool:
        """Does the program end with this step?"""
        return 0 < self.settings["end_after"] <= steps

    def facts(self) -> dict[str, Any]:
        """What the trial's report says: losses in their order, bytes that were held at most, what was touched."""
        cuda = self.torch.cuda
        on_gpu = cuda.is_available() and cuda.is_initialized()
        return {
            "touched": {name: each.touched for name, each in self.given.items()}, "errors": self.errors,
            "losses": _quietly(self._read, []), "nudged": self._nudged, "checksum": _quietly(self._checksum, ""),
            "host_bytes": _quietly(_held_bytes, 0), "threads": _quietly(self.torch.get_num_threads, 0),
            "parameter_bytes": self._parameter_bytes, "handed": self.turns.handed,
            "gpu_bytes": _quietly(cuda.max_memory_allocated, 0) if on_gpu else 0,
        }  # fmt: skip

    def _read(self) -> list[float]:
        while self._on_device:
            self._losses.append(float(self._on_device.pop(0)))
        return list(self._losses)


def _here(parameter: Any) -> Any:
    """What this rank holds of a parameter: FSDP2 and tensor parallelism share them out, as DTensors."""
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def _held_bytes() -> int:
    """What this process held at most, and what its children (a loader's workers) hold beside it."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        held = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:"))
    return held + sum(_quietly(lambda pid=pid: _shared_out_bytes(pid), 0) for pid in descendants(os.getpid()))


def _shared_out_bytes(pid: int) -> int:
    """The memory of a process; pages that it shares count in part (Pss)."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))


def _quietly(read: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return read()
    except Exception:
        return otherwise

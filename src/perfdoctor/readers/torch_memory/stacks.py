"""Which line of code allocated, and for what purpose? A line of the user's code and a category for each stack.

The category follows from the frames alone, where they prove it; otherwise it is `unknown`. The rules, in this order:

* `workspace`: a C++ frame that asks for the workspace of cuBLAS, cuBLASLt or cuDNN.
* `gradients`: the C++ node AccumulateGrad, which makes each parameter's `.grad`.
* `optimizer_state`: `_init_group` (torch) or `init_state` (others) in a file below a folder `optim`.
* `optimizer_work`: any other frame of a file below `optim`: temporaries of an update.
* `communication`: library code of torch.distributed or DistributedDataParallel between the allocation and the
  innermost line that is not torch's: gathered parameters, buckets.
* `backward`: the autograd engine (C++ `Engine::`, or Python's `_engine_run_backward`).
* `parameters`: making or moving a module: `__init__`, `reset_parameters`, `_apply` of torch/nn/modules, torch/nn/init.
* `activations`: inside a module's `forward`, or an op of torch/nn/functional.
* `no_stack`: recorded without any frame: a thread without Python, which most often is that of the backward pass.
* `before_recording`: it was there when the recording began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from perfdoctor.vocabulary.names.python_code import (
    ALLOCATES,
    COMMUNICATION_FILE,
    LIBRARY_FILE,
    OPTIMIZER_FILE,
    PYTHON_FILE,
    RECORDER_FILE,
    RECORDER_FUNCTION,
    TORCH_FILE,
    WORKSPACE_FUNCTION,
)

CATEGORIES = (
    "parameters", "gradients", "optimizer_state", "activations", "backward", "optimizer_work", "communication",
    "workspace", "no_stack", "before_recording", "unknown",
)  # fmt: skip

_SHOWN_FRAMES = 4
_TEXT_LIMIT = 120
_MODULE_MAKING = {"__init__", "reset_parameters", "_apply", "convert", "to_empty", "_reset_parameters"}

_IS_WORKSPACE, _IS_ACCUMULATE, _IS_STATE, _IS_OPTIMIZER, _IS_BACKWARD, _IS_MODULE, _IS_FORWARD = (
    1 << bit for bit in range(7)
)


class StackFrame(Struct, frozen=True):
    """`whose`: own, library, torch, cpp or recorder. `marks`: bits of what the frame proves."""

    text: str
    whose: str
    marks: int
    communicates: bool


class Stack(Struct, frozen=True):
    """`line`: the innermost one of own code, else of a library, else of torch, else C++; "" without frames."""

    line: str
    stack: str
    category: str


NO_STACK = Stack("", "", "no_stack")
BEFORE = Stack("", "", "before_recording")


def stack_of(frames: Sequence[StackFrame]) -> Stack:
    """The stack of these frames, which are innermost first. Those of whoever recorded it are no place."""
    if not frames:
        return NO_STACK
    frames = [frame for frame in frames if frame.whose != "recorder"]
    python = [frame for frame in frames if frame.whose != "cpp"]
    for whose in ("own", "library", "torch"):
        shown = [frame for frame in python if frame.whose == whose]
        if shown:
            break
    else:
        shown = [frame for frame in frames if not ALLOCATES.search(frame.text)] or list(frames)
    texts = list(dict.fromkeys(frame.text for frame in shown))[:_SHOWN_FRAMES]
    return Stack(texts[0] if texts else "", " < ".join(texts), _category(frames, python))


def _category(frames: Sequence[StackFrame], python: Sequence[StackFrame]) -> str:
    marks, communicates = 0, False
    for frame in frames:
        marks |= frame.marks
    called, is_called = 0, True
    for frame in python:
        # Frames called by own code, without its callers: a closure runs forward and backward inside optimizer.step.
        if frame.whose == "own":
            break
        called |= frame.marks
        is_called = is_called and (frame.whose == "torch" or frame.communicates)
        communicates = communicates or (is_called and frame.communicates)
    rules = (
        ("workspace", marks & _IS_WORKSPACE), ("gradients", marks & _IS_ACCUMULATE),
        ("optimizer_state", called & _IS_STATE), ("optimizer_work", called & _IS_OPTIMIZER),
        ("communication", communicates), ("backward", marks & _IS_BACKWARD), ("parameters", called & _IS_MODULE),
        ("activations", marks & _IS_FORWARD),
    )  # fmt: skip
    return next((category for category, holds in rules if holds), "unknown")


@lru_cache(maxsize=65536)
def frame_of(file: str, line: int, function: str) -> StackFrame:
    """The frame of a function. Folders of its file are left out: they may name users and projects."""
    path = file.replace("\\", "/")
    if not PYTHON_FILE.search(path):
        whose = "recorder" if RECORDER_FUNCTION.search(function) else "cpp"
        return StackFrame(function[:_TEXT_LIMIT], whose, _cpp_marks(function), communicates=False)
    if RECORDER_FILE.search(path):
        return StackFrame(function[:_TEXT_LIMIT], "recorder", 0, communicates=False)
    whose = "torch" if TORCH_FILE.search(path) else "library" if LIBRARY_FILE.search(path) else "own"
    short = "/".join(path.rsplit("/", 2)[-2:]) if whose != "own" or path.count("/") > 1 else path
    text = f"{short}:{line} {function}"[:_TEXT_LIMIT]
    return StackFrame(text, whose, _python_marks(path, function), COMMUNICATION_FILE.search(path) is not None)


def _cpp_marks(function: str) -> int:
    marks = {
        _IS_ACCUMULATE: "AccumulateGrad" in function,
        _IS_BACKWARD: "autograd::Engine" in function,
        _IS_WORKSPACE: WORKSPACE_FUNCTION.search(function),
    }
    return sum(mark for mark, holds in marks.items() if holds)


def _python_marks(path: str, function: str) -> int:
    is_optimizer = OPTIMIZER_FILE.search(path) and (TORCH_FILE.search(path) or LIBRARY_FILE.search(path))
    of_optimizer = _IS_STATE if function in ("_init_group", "init_state", "_init_state") else _IS_OPTIMIZER
    is_making = "torch/nn/modules/" in path and function in _MODULE_MAKING
    marks = {
        of_optimizer: is_optimizer,
        _IS_BACKWARD: function == "_engine_run_backward",
        _IS_MODULE: is_making or path.endswith("torch/nn/init.py"),
        _IS_FORWARD: function == "forward" or path.endswith("torch/nn/functional.py"),
    }
    return sum(mark for mark, holds in marks.items() if holds)


def frame_of_row(row: object) -> StackFrame:
    """The frame of a snapshot's row; a row of any other shape becomes a frame that proves nothing."""
    if not isinstance(row, Mapping):
        return frame_of("", 0, "?")
    file, line, function = row.get("filename"), row.get("line"), row.get("name")
    return frame_of(
        file if isinstance(file, str) else "",
        line if isinstance(line, int) else 0,
        function if isinstance(function, str) else "?",
    )

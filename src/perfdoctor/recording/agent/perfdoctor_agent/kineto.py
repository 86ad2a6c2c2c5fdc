"""How are Kineto's lines about our recording kept off the program's output, and the program's own lines left there?

Its level is a variable of torch's library. The variable KINETO_LOG_LEVEL of the
environment would do for the whole process, and for its children: for the program's own profiler too.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import private

_NOTHING = 99
_IF_LOADED = 4  # RTLD_NOLOAD


def silence(torch: Any) -> Callable[[], None]:
    """Switch its lines off; returns what switches them on again."""
    level = _level(os.path.dirname(torch.__file__))
    if level is None:
        return lambda: None
    before, level.value = level.value, _NOTHING

    def restore() -> None:
        if level.value == _NOTHING:  # else the first profiler of the process has just set its default
            level.value = before

    return restore


@functools.lru_cache(maxsize=1)  # it is asked for in each recorded step
def _level(torch_folder: str) -> Any | None:
    try:
        library = os.path.join(torch_folder, "lib", "libtorch_cpu.so")
        return ctypes.c_int.in_dll(ctypes.CDLL(library, mode=_IF_LOADED), private.KINETO_LEVEL)
    except (OSError, ValueError, TypeError):  # built without Kineto, or into another library
        return None

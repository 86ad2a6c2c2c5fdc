"""How are readers that work in a process of their own tried ten thousand times? Forked, where a user's are started.

To start Python and to load a library takes half a second, to fork this process some milliseconds. What such a process
does is the same, with its limits of memory; that it is started is tried by the others.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from perfdoctor.system import tool_process

#: What those processes load late, or only where it is installed.
_LIBRARIES = ("adbc_driver_manager", "adbc_driver_sqlite", "arro3.io", "nanoarrow", "ncu_report")


def loaded() -> None:
    """Load what a forked process would load, each time."""
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError, OSError):
            importlib.import_module(name)


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """Within this context, modules of ours that are run as programs are run by a fork of this process."""
    started = tool_process.run

    def run(command: Sequence[str], *, merged: bool = False, **given: Any) -> tuple[int, bytes, bytes]:
        return _run(*command[1:], merged=merged) if command[0] == _OWN else started(command, merged=merged, **given)

    with (
        mock.patch.object(tool_process, "own_command", lambda module: (_OWN, module)),
        mock.patch.object(tool_process, "run", run),
    ):
        yield


_OWN = "a module of ours"


def _run(module: str, *arguments: str, merged: bool) -> tuple[int, bytes, bytes]:
    """The exit code of `main` of the module, and what it printed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            os.dup2(writing, 1)
            os.dup2(writing if merged else os.open(os.devnull, os.O_WRONLY), 2)
            sys.argv[:] = [module, *arguments]
            with open(1, "w", closefd=False) as sys.stdout:
                importlib.import_module(module).main()
            code = 0
        except BaseException:  # noqa: BLE001 as Python itself would show it
            os.write(2, traceback.format_exc().encode("utf-8", "replace"))
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        printed = stream.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), printed, b""

"""How are readers that work in a process of their own tried ten thousand times? Forked, where a user's are started.

To start Python and to load a library takes half a second, to fork this process ten milliseconds, to ask a fork that
runs one after the other none. What such a process does is the same, with its limits of memory; that it is started is
tried by the others.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from perfdoctor.readers.kineto import trace as kineto
from perfdoctor.readers.ncu import profiles as ncu
from perfdoctor.readers.nsys import timeline as nsys
from perfdoctor.scrubbing import texts
from perfdoctor.system import tool_process

#: What those processes load late, or only where it is installed.
_LIBRARIES = ("adbc_driver_manager", "adbc_driver_sqlite", "arro3.io", "nanoarrow", "ncu_report")


def loaded() -> None:
    """Load what a forked process would load, each time."""
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError, OSError):
            importlib.import_module(name)


@contextlib.contextmanager
def remembering() -> Iterator[None]:
    """Within this context a file of a folder that was read before, under this name, is not read again, nor a text masked.

    Of a folder most files are as they were: only the one that was changed is read, and what follows is done with all.
    """
    with contextlib.ExitStack() as stack:
        for module, read in _READS:
            stack.enter_context(mock.patch.object(module, "read", read))
        stack.enter_context(mock.patch.object(texts, "masked_text", _masked_text))
        yield


class _Remembered:
    """A reader that knows what it made of the last files, as long as they could be read."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read, self._known = read, dict[Any, Any]()

    def __call__(self, file: Path, *given: Any, **named: Any) -> Any:
        if not file.is_file() or file.is_symlink():
            return self._read(file, *given, **named)
        # what hears of the progress is another each time
        words = [each for each in given if not callable(each)]
        key = (file.name, file.read_bytes(), repr(words), repr(named))
        if key not in self._known:
            found = self._read(file, *given, **named)
            while len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        return self._known[key]


#: Files whose content is remembered, of each reader: those of the seeds are read a thousand times.
_REMEMBERED = 100
_masked_text = functools.lru_cache(10_000)(texts.masked_text)
_READS = [(module, _Remembered(module.read)) for module in (kineto, nsys, ncu)]


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
#: Then it is replaced: libraries may keep something of each file.
_RUNS_OF_A_HELPER = 200


def _run(module: str, *arguments: str, merged: bool) -> tuple[int, bytes, bytes]:
    """The exit code of `main` of the module, and what it printed."""
    global _helper  # noqa: PLW0603 of this process
    if _helper is None or _helper.process != os.getpid() or _helper.runs == _RUNS_OF_A_HELPER:
        _helper = None  # ends, as nothing holds its socket
        _helper = _Helper()
    code, printed = _helper.run([module, *arguments], merged=merged)
    if code < 0:
        _helper = None
    return code, printed, b""


class _Helper:
    """A fork of this process that runs one module after the other, and ends with it."""

    def __init__(self) -> None:
        self.process, self.runs = os.getpid(), 0
        self._ours, theirs = socket.socketpair()
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 open as long as it
        self._child = os.fork()
        if self._child == 0:
            try:
                _close_others(theirs.fileno(), self._printed.fileno())
                self._serve(theirs)
            finally:
                os._exit(0)
        theirs.close()

    def run(self, command: Sequence[str], *, merged: bool) -> tuple[int, bytes]:
        """The exit code, below 0 for a signal, and what was printed."""
        self.runs += 1
        self._printed.seek(0)
        self._printed.truncate()
        self._ours.send(json.dumps([*command, merged]).encode())
        answer = self._ours.recv(1)
        code = answer[0] if answer else os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        self._printed.seek(0)
        return code, self._printed.read()

    def _serve(self, commands: socket.socket) -> None:
        os.dup2(self._printed.fileno(), 1)
        nothing = os.open(os.devnull, os.O_WRONLY)
        while command := commands.recv(1 << 16):
            *sys.argv[:], merged = json.loads(command)
            os.dup2(1 if merged else nothing, 2)
            code = 0
            try:
                with open(1, "w", closefd=False) as sys.stdout:
                    importlib.import_module(sys.argv[0]).main()
            except BaseException:  # noqa: BLE001 as Python itself would show it
                os.write(2, traceback.format_exc().encode("utf-8", "replace"))
                code = 1
            commands.send(bytes([code]))


def _close_others(*kept: int) -> None:
    """Close all descriptors but these and 0 to 2: whoever waits for the end of a pipe would wait for this process, too."""
    begin = 3
    for descriptor in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(begin, descriptor)
        begin = descriptor + 1


_helper: _Helper | None = None

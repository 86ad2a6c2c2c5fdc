"""How is a module of ours run as a program of its own that answers messages, on any system and from any program?

Unlike those of multiprocessing, such a process imports nothing of the program that started it, sees no Ctrl-C of its
terminal, and ends when its input ends, however that program ended. A message is its length in eight bytes, then bytes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, BinaryIO, cast

from perfdoctor.system.tool_process import isolated

_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from perfdoctor.system import own_process; own_process.take(); "
    "from {module} import main; main()"
)
_LENGTH_BYTES = 8
#: A process that is killed is gone within this time.
_KILLED_S = 10.0


def send(stream: BinaryIO, message: bytes) -> None:
    stream.write(len(message).to_bytes(_LENGTH_BYTES, "little"))
    stream.write(message)
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """The next message; None where the stream has ended."""
    head = stream.read(_LENGTH_BYTES)
    length = int.from_bytes(head, "little")
    message = stream.read(length) if len(head) == _LENGTH_BYTES else b""
    return message if len(head) == _LENGTH_BYTES and len(message) == length else None


def own_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output of this process, for messages alone: all else reads nothing and prints to errors."""
    questions, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return os.fdopen(questions, "rb"), os.fdopen(answers, "wb")


class Spawned:
    """A Python process that runs `main` of `module` in `folder`, and imports from where this process does.

    It reads messages from `questions` and writes them to `answers`. `environment`: its further variables; `quiet`: what
    it prints is lost. OSError if it cannot be started.
    """

    def __init__(
        self, module: str, arguments: Sequence[str] = (), *, folder: str | None = None,
        environment: Mapping[str, str] | None = None, quiet: bool = False,
    ) -> None:  # fmt: skip
        path = [str(Path(each).absolute()) for each in sys.path if each]
        self._process = subprocess.Popen(
            [sys.executable, *isolated(), "-c", _PROGRAM.format(path=path, module=module), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # Ctrl-C is for us
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
        )
        self._is_ended = False
        self.pid = self._process.pid
        self.questions = cast("BinaryIO", self._process.stdin)
        self.answers = cast("BinaryIO", self._process.stdout)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def exit_code(self) -> int:
        """Wait for the end; the exit code, or minus the signal that ended it."""
        return self._process.wait()

    def end(self, within_s: float = 0.0) -> None:
        """End the process and all that it has started; within `within_s` after its input has ended, by itself."""
        if self._is_ended:
            return
        self._is_ended = True
        self.end_input()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self.pid, signal.SIGKILL)
            else:
                self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a file system that does not answer keeps it
            self._process.wait(_KILLED_S)
        _close(self.answers)

    def end_input(self) -> None:
        _close(self.questions)


def _close(stream: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # what was on its way
        stream.close()

"""How does the server ask its worker, and what if that takes too long, or dies?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Any, cast

import msgspec

from perfdoctor.assistant.worker import Reply, Request, Setting, read_frame, write_frame
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from typing import BinaryIO

_SMALLER = "Name fewer ranks or a part of them, or start the server with larger limits: --timeout, --memory."


class Worker:
    """One process at a time, started when it is needed and again when it died. One question at a time."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._process: subprocess.Popen[bytes] | None = None
        self._one = threading.Lock()

    def ask(self, tool: str, arguments: Any) -> Reply:
        """Its reply. Raises PerfdoctorError where there is none within the time."""
        with self._one:
            process = self._running()
            is_late = threading.Event()

            def end() -> None:
                is_late.set()
                _end(process)

            late = threading.Timer(self._setting.seconds, end)
            late.daemon = True
            late.start()
            try:
                write_frame(_pipe(process.stdin), Request(tool, arguments))
                content = read_frame(_pipe(process.stdout))
            except (OSError, ValueError):
                content = None
            finally:
                late.cancel()
            if content is None:
                _end(process)
                self._process = None
                raise self._without_answer(is_late=is_late.is_set())
            return msgspec.json.decode(content, type=Reply)

    def end(self) -> None:
        """Of the server, or of a question that nobody waits for."""
        if self._process is not None:
            _end(self._process)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "perfdoctor.assistant.worker", msgspec.json.encode(self._setting).decode()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=os.name == "posix",
            )  # fmt: skip
        return self._process

    def _without_answer(self, *, is_late: bool) -> PerfdoctorError:
        if is_late:
            return PerfdoctorError(f"there was no answer within {self._setting.seconds:g} s", do=_SMALLER)
        return PerfdoctorError("the process that read the recording ended: it may have lacked memory", do=_SMALLER)


def _pipe(stream: IO[bytes] | None) -> BinaryIO:
    return cast("BinaryIO", stream)


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started."""
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        process.wait(timeout=10)

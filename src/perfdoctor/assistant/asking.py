"""How does the server ask its worker, and what if that takes too long, or dies?"""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import msgspec

from perfdoctor.assistant.worker import Reply, ToolRequest, WorkerSetup
from perfdoctor.errors import PerfdoctorError
from perfdoctor.system.spawned import Spawned, receive, send

_SMALLER = "Name fewer ranks or a part of them, or start the server with larger limits: --timeout, --memory."


class Call:
    """One question of a client, which may be given up while it waits for its turn or for its answer."""

    def __init__(self, tool: str, arguments: Any) -> None:
        self.request = ToolRequest(tool, arguments)
        self.is_given_up = False


class WorkerProcess:
    """One process at a time, started when it is needed and again when it died. One call at a time."""

    def __init__(self, setting: WorkerSetup) -> None:
        self._setting = setting
        self._process: Spawned | None = None
        #: A process that is killed cleans up nothing.
        self._scratch = tempfile.TemporaryDirectory(prefix="perfdoctor-mcp-", ignore_cleanup_errors=True)
        self._one = threading.Lock()
        self._current: Call | None = None

    def ask(self, call: Call) -> Reply:
        """The worker's reply. Raises PerfdoctorError if there is none within the time."""
        with self._one:
            self._current = call
            try:
                return self._asked(call)
            finally:
                self._current = None

    def give_up(self, call: Call) -> None:
        """Give the call up, and end the worker if it is answering it: nobody waits for the reply any more."""
        call.is_given_up = True
        if self._current is call:
            self.end()

    def end(self) -> None:
        if self._process is not None:
            self._process.end()

    def close(self) -> None:
        """End the worker and remove its scratch folder; called when the server ends."""
        self.end()
        self._scratch.cleanup()

    def _asked(self, call: Call) -> Reply:
        if call.is_given_up:
            raise self._without_answer(is_late=False)
        process = self._running()
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            process.end()

        late = threading.Timer(self._setting.seconds, end)
        late.daemon = True
        late.start()
        try:
            send(process.questions, msgspec.json.encode(call.request))
            content = receive(process.answers)
        except (OSError, ValueError):
            content = None
        finally:
            late.cancel()
        if content is None:
            process.end()
            self._process = None
            raise self._without_answer(is_late=is_late.is_set())
        reply = msgspec.json.decode(content, type=Reply)
        if reply.is_last:
            process.end()
        return reply

    def _running(self) -> Spawned:
        if self._process is None or not self._process.is_running():
            scratch = Path(self._scratch.name)
            for left in scratch.iterdir():  # of an earlier process
                shutil.rmtree(left, ignore_errors=True)
            folder = tempfile.mkdtemp(dir=scratch)
            self._process = Spawned(
                "perfdoctor.assistant.worker", [msgspec.json.encode(self._setting).decode()],
                folder=folder, environment=dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder),
            )  # fmt: skip
        return self._process

    def _without_answer(self, *, is_late: bool) -> PerfdoctorError:
        if is_late:
            return PerfdoctorError(f"there was no answer within {self._setting.seconds:g} s", do=_SMALLER)
        return PerfdoctorError("the process that read the recording ended: it may have lacked memory", do=_SMALLER)

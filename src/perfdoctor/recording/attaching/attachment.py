"""How is one window recorded in processes that run already, all of them in the same steps?

    words to each interpreter ── agents there, steps counted ── go, to all ── steps recorded ── some more timed ── left
       └─ in a thread of its own, where the main thread waits and another one works

What the agents need lies in a folder for temporary files: the file that starts them, and a FIFO each. When that is
gone, and with it whoever reads this, no agent begins any more, and those that have begun leave.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.attaching import interpreter_calls, waiting
from perfdoctor.recording.attaching.alignment import first_steps
from perfdoctor.recording.attaching.interpreter_calls import Injection
from perfdoctor.recording.attaching.target import Target
from perfdoctor.recording.launch.processes import is_alive
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.system.run_folder import RunFolder, json_object

PASS = "torch"  # noqa: S105 a pass of the run
_START = "attached_start.py"
_LOOK_EVERY_S = 0.1
#: An interpreter that runs Python comes to our words in milliseconds. After so long its threads are asked what they do.
_BESIDE_S, _WORKS_S = 3.0, 1.0
#: Its window is over: it has a trace, or will have none.
_BEHIND = ("written", "failed", "worker")
#: Then it times steps without the profiler, at least twenty: of long steps not all are awaited.
_BEHIND_S = 20.0
#: An agent that was ordered to leave does so with its next step, of which nobody knows the length.
_LEAVING_S = 5.0
#: One that has made no step when the others have made so many, so long after the first, is a parent that only waits.
_ALONE_S, _ALONE_STEPS = 10.0, 20
_ASK_EVERY_S = 1.0


def is_without_step(facts: dict[str, Any]) -> bool:
    """Has this process ended nothing that may be a step? `facts`: its agent's, which counts them in them only later."""
    return not any(facts.get(each) for each in ("waited", "steps_seen", "step_found_by"))


class Attached(Struct):
    """One process with an agent of ours, or on the way to it."""

    target: Target
    injection: Injection
    start: Path
    started: Path
    orders: int
    reports: Path
    is_left_out: bool = False

    @property
    def has_started(self) -> bool:
        return self.started.exists()

    @property
    def is_alive(self) -> bool:
        return is_alive(self.target.pid)

    def facts(self) -> dict[str, Any]:
        """What its agent reports; empty before it does."""
        return json_object(self.reports / f"{PASS}-{self.target.inner_pid}.json") or {}

    @property
    def is_over(self) -> bool:
        return bool(self.facts().get("ended")) or not self.is_alive

    def order(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self.orders, f"{line}\n".encode("ascii"))

    def release(self) -> None:
        """Let its agent leave."""
        if self.orders >= 0:
            os.close(self.orders)
            self.orders = -1


class Attachment:
    """All processes of one `perfdoctor attach`. `settings`: of their agents (tools/torch_profiler.py)."""

    def __init__(self, folder: RunFolder, settings: dict[str, object]) -> None:
        self.folder, self.settings = folder, settings
        self.attached: list[Attached] = []
        self.files = Path(tempfile.mkdtemp(prefix="perfdoctor-attach-"))
        self._code = torch_profiler.AGENT
        self._first_waited = self._asked = -math.inf
        self._source = source_of(self._code)

    # --- begin ---

    def attach(self, target: Target) -> Attached:
        """Bring the words to a process. PerfdoctorError where that fails; the process runs on."""
        self._make_usable(target.user)
        own = self.files / str(target.pid)
        own.mkdir(0o700)
        orders, started, start = own / "orders", own / "started", own / f"{target.pid}.py"
        os.mkfifo(orders, 0o600)
        made_for_it = [str(each) for each in (orders, started, start, start.with_suffix(interpreter_calls.WORDS))]
        given = {
            "agent": self.settings, "orders": str(orders), "started": str(started), "folder": str(self._code),
            "files": made_for_it, "source": self._source,
        }  # fmt: skip
        start.write_text(_start_text(self._code / _START, json.dumps(given)), "utf-8")
        interpreter_calls.prepare(target, start)
        # Open for both: it does not wait for a reader, and has one until the agent comes.
        held = os.open(orders, os.O_RDWR | os.O_NONBLOCK)
        # The folder last: from then on another user may put links there, and nothing more is made or opened by name.
        self._give(target.user, *sorted(own.iterdir()), own)
        try:
            injection = interpreter_calls.inject(target, start)
        except BaseException:
            start.unlink()  # whatever was done already, does nothing
            os.close(held)
            raise
        made = Attached(target, injection, start, started, held, self.folder.path / "agents")
        self.attached.append(made)
        return made

    def _make_usable(self, user: int) -> None:
        """Let another user's program, to which root attaches, read the agent and write into the run folder."""
        if user == os.geteuid():
            return
        if self._code == torch_profiler.AGENT:
            self._code = self.files / "agent"
            shutil.copytree(torch_profiler.AGENT, self._code, ignore=shutil.ignore_patterns("__pycache__"))
            for path in (self._code, *self._code.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
            self.files.chmod(0o711)
        self._give(user, *(self.folder.make(name) for name in ("agents", PASS)))

    def _give(self, user: int, *paths: Path) -> None:
        if user != os.geteuid():
            for path in paths:
                os.chown(path, user, -1, follow_symlinks=False)

    def await_begin(self, limit_s: float, notify: Callable[[Attached, str], None] = lambda *_: None) -> list[Attached]:
        """Wait until all interpreters have come to our words; those that have not in time, which are withdrawn.

        `notify` gets what is said of one of them meanwhile.
        """
        begun = time.monotonic()
        has_asked = False
        while (late := self._late()) and time.monotonic() < begun + limit_s:
            if not has_asked and time.monotonic() > begun + _BESIDE_S:
                has_asked = True
                self._enter_beside(late, notify)
            time.sleep(_LOOK_EVERY_S)
        late = [each for each in self.attached if not each.has_started]
        for each in self.attached:
            if each in late:
                self._withdraw(each)
            else:
                each.injection.clear()
        self.attached = [each for each in self.attached if each not in late]
        return late

    def _late(self) -> list[Attached]:
        return [each for each in self.attached if not each.has_started and each.is_alive]

    def _enter_beside(self, late: list[Attached], notify: Callable[[Attached, str], None]) -> None:
        """Where the main thread waits and another one works, that one may train: start a thread beside them."""
        working = waiting.work_beside([each.target.pid for each in late], _WORKS_S)
        for each in late:
            if each.target.pid not in working or each.has_started:
                continue
            try:
                each.injection = interpreter_calls.in_own_thread(each.injection, each.start)
            except PerfdoctorError as error:
                notify(each, f"its main thread waits, and no other one could be started: {error.what}. {error.do}")
            else:
                stopped_ms = 1e3 * each.injection.stopped_s
                notify(each, f"its main thread waits: attached by {each.injection.way}, in {stopped_ms:.1f} ms")

    def _withdraw(self, late: Attached) -> None:
        late.start.unlink(missing_ok=True)
        with contextlib.suppress(PerfdoctorError):
            late.injection.withdraw()
        late.release()

    # --- the window ---

    def wait(self, until: float, notice: Callable[[Attached, dict[str, Any]], None] = lambda *_: None) -> None:
        """Let all record as soon as all are ready, and wait for their end, at most until that time (monotonic)."""
        asked_ns, has_gone, written_by = 0, False, math.inf
        while not all(each.is_over or each.is_left_out for each in self.attached) and time.monotonic() < until:
            facts = [(each, each.facts()) for each in self.attached]
            for each, known in facts:
                notice(each, known)
            if all(known.get("state") in _BEHIND or each.is_left_out for each, known in facts):
                written_by = min(written_by, time.monotonic() + _BEHIND_S)
                until = min(until, written_by)
            training = {
                each.target.pid: known
                for each, known in facts
                if known.get("state") not in ("worker", "failed") and each.is_alive and not each.is_left_out
            }
            if not has_gone:
                self._leave_out(training)
            if not has_gone and training and all(known.get("waited") for known in training.values()):
                if len(training) == 1:
                    has_gone = self._go(dict.fromkeys(training, 0))
                elif not asked_ns:
                    asked_ns = time.monotonic_ns()
                    self._order("ends")
                elif all(known["waited_ends_ns"][-1] > asked_ns for known in training.values()):
                    ends = {pid: (known["waited"], known["waited_ends_ns"]) for pid, known in training.items()}
                    has_gone = self._go(first_steps(ends, time.monotonic_ns()))
            time.sleep(_LOOK_EVERY_S)

    def _leave_out(self, training: Mapping[int, dict[str, Any]]) -> None:
        """Release those without a step, once the others have made many: all would wait for them for good."""
        counts = [known["waited"] for known in training.values() if known.get("waited")]
        idle = [pid for pid, known in training.items() if is_without_step(known)]
        now = time.monotonic()
        if not counts or not idle:
            return
        if self._first_waited < 0:
            self._first_waited = now
        if now - self._first_waited < _ALONE_S:
            return
        if len(counts) + len(idle) == len(training) and min(counts) >= _ALONE_STEPS:
            for each in self.attached:
                if each.target.pid in idle:
                    each.is_left_out = True
                    each.release()
        elif now - self._asked > _ASK_EVERY_S:  # agents count for themselves until they are asked
            self._asked = now
            self._order("ends")

    def _order(self, line: str) -> None:
        for each in self.attached:
            each.order(line)

    def _go(self, begin: Mapping[int, int]) -> bool:
        """Order the begin behind these steps, by process, and no other to begin."""
        for each in self.attached:
            if each.target.pid in begin:
                each.order(f"go {begin[each.target.pid]}")
        return True

    # --- end ---

    def close(self) -> None:
        """Let all agents leave, and wait a little until they have. May be called again."""
        for each in self.attached:
            each.release()
        until = time.monotonic() + _LEAVING_S
        while any(not each.is_over for each in self.attached) and time.monotonic() < until:
            time.sleep(_LOOK_EVERY_S)
        shutil.rmtree(self.files, ignore_errors=True)


def _start_text(start: Path, given: str) -> str:
    """The file that the words name: the settings, and the agent's own beginning."""
    code = f"exec(compile(file.read(), file.name, 'exec'), {{'GIVEN': {given!r}}})"
    return f"with open({str(start)!r}) as file:\n    {code}\n"


def source_of(agent: Path) -> str:
    """A hash of the agent's code: the same for the same version, in whatever folder a copy of it lies."""
    files = sorted((path.relative_to(agent).as_posix(), path.read_bytes()) for path in agent.rglob("*.py"))
    return hashlib.sha256(repr(files).encode()).hexdigest()

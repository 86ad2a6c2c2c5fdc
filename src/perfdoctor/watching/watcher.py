"""What happens beside a training that is watched? Rows are read and judged, windows opened, and what is known written.

Everything of it is in a process of its own: what fails here, is killed, or finds no space changes nothing in the
program, whose agents go on writing their few bytes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from perfdoctor.recording.inside.report_process import takes_more_than_its_share
from perfdoctor.recording.launch import processes
from perfdoctor.recording.tools.py_spy import PySpy
from perfdoctor.recording.tools.torch_profiler import StepWindow
from perfdoctor.system.run_folder import ProcessReport, RunFolder
from perfdoctor.watching import document, hangs, windows
from perfdoctor.watching.anomalies import RECORDED, Anomaly
from perfdoctor.watching.document import WatchDocument
from perfdoctor.watching.hangs import Hang
from perfdoctor.watching.judge import JUMP_NS, Judge
from perfdoctor.watching.rows import RankSteps, ranks_of
from perfdoctor.watching.throttling import GpuSamples, visible
from perfdoctor.watching.windows import Window, WindowState

#: watch.json is written when something happened, and else so often: also where no rank writes anything, as its time
#: says that somebody watches.
_WRITTEN_EVERY_NS = 5_000_000_000
#: The first steps of a run are no window's: what is recorded is to stand for the run.
_LEAST_STRETCHES = 4
#: At the end, a window that is recorded is diagnosed for so long.
_AT_END_S = 60.0
_POLL_S = 0.2
#: Another change of level has another cause; memory that goes on growing has the same one.
_AGAIN = ("level", "drift")
#: Trouble that was found while no window could be opened gets one for so long: a window takes a minute or two, and what
#: is worth one lasts, as a rule; later than that it may be over.
_DUE_NS = 300_000_000_000
#: Of `hang_after_s`: after so long without a first step the ranks' stacks are read. To import, load and compile takes
#: minutes; ranks that wait for each other at the start wait for half an hour, and say nothing.
_FIRST_STEP = 5
_NS = 1_000_000_000
#: The end of a diagnosis that goes on.
_NOT_YET = 1 << 63


class Policy(Struct, frozen=True):
    """`windows`: opened by itself at most, `apart_s` after another one at the earliest. `first_s`: after so long a
    first one, to compare with; 0 for none. `hang_after_s`: no shorter pause is a hang.
    """

    windows: int = 3
    apart_s: float = 600.0
    first_s: float = 120.0
    hang_after_s: float = 60.0
    steps: StepWindow = StepWindow()
    log: tuple[str, ...] = ()


class Watcher:
    """`tick` as often as the clock says; `happened` gets what is new: an anomaly, a hang's place, a window's state.

    `passed_ns`: a clock that nobody sets, by which jumps of `now_ns` are known.
    """

    def __init__(
        self, run: RunFolder, policy: Policy, py_spy: PySpy, happened: Callable[[Anomaly | Hang | WindowState], None],
        *, now_ns: Callable[[], int] = time.time_ns, passed_ns: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        self.run, self.policy, self.py_spy, self.happened, self.now_ns = run, policy, py_spy, happened, now_ns
        self._passed_ns = passed_ns or (time.monotonic_ns if now_ns is time.time_ns else now_ns)
        self._clocks = now_ns(), self._passed_ns()
        self.begun_ns, self.written_ns = now_ns(), 0
        self._counted_ns = self.begun_ns  # from which the time of the run is counted: a clock may be set
        self._files: dict[Path, RankSteps] = {}
        # The command of each process that was seen to run here; "" of others: they may be another machine's.
        self._commands: dict[tuple[Path, int], str] = {}
        self.ranks: dict[int, RankSteps] = {}
        self._judge = Judge(policy.hang_after_s)
        self._gpus = GpuSamples(run.path / windows.SAMPLES, visible(os.environ))
        self.anomalies: list[Anomaly] = []
        self.hang: Hang | None = None
        self._window: Window | None = None
        self._windows: dict[int, WindowState] = {}
        self._opened: list[int] = []  # when, for an anomaly
        self._recorded: set[tuple[str, int | None]] = set()
        self._due: list[tuple[int, Anomaly]] = []  # when it was found, of what no window was opened for
        self._ours_ns = (0, 0)  # when the last window was diagnosed, at the cost of the training
        self._has_first = not policy.first_s
        self._has_no_step = False  # and it was said
        self.trouble = ""
        self.exit_code: int | None = None

    # --- while it runs ---

    def tick(self, *, has_ended: bool = False) -> None:
        """Read on, judge, go on with a window, and write what is known."""
        now = self._now()
        self._read()
        found: list[Anomaly] = []
        if not has_ended:
            found += self._judge.update(self.ranks, now, self._gpus.throttled(), self._ours_ns)
            found += self._no_first_step(now)
            goes_on = any(not each.ended_ns for each in self.ranks.values())
            if goes_on and not (self._judge.hangs_since or self._has_no_step):
                self.hang = None  # of a job that was ended while it hung it stays known
        for rank in self.ranks.values():
            rank.thin()
        for each in found:
            self._add(each)
        self._poll_window(has_ended=has_ended)
        if not has_ended:
            self._open_what_is_due(found, now)
        if found or has_ended or now - self.written_ns > _WRITTEN_EVERY_NS:
            self.write(now, has_ended=has_ended)

    def _now(self) -> int:
        """The time. Where the clock has jumped, what was noted by it moves along."""
        now, passed = self.now_ns(), self._passed_ns()
        by = (now - self._clocks[0]) - (passed - self._clocks[1])
        self._clocks = now, passed
        if abs(by) > JUMP_NS:
            self._judge.jumped(by, now)
            self.written_ns += by
            self._counted_ns += by
            self._opened = [each + by for each in self._opened]
            self._due = [(at + by, each) for at, each in self._due]
        return now

    def _no_first_step(self, now: int) -> list[Anomaly]:
        """Has the program made no step although it has had the time to, or none since it was started again? Said once
        of each start.
        """
        if any(not each.ended_ns for each in self.ranks.values()):
            if self._has_no_step:
                self._has_no_step, self.hang = False, None
            return []
        if self._has_no_step:
            return []
        since = self._started_again_ns() if self.ranks else self._counted_ns
        is_late = bool(since) and now - since >= _FIRST_STEP * self.policy.hang_after_s * _NS
        if not is_late or not self._without_steps():
            return []
        self._has_no_step = True
        return [Anomaly("no-step", 0, 0, now, values={"silent_ns": now - since})]

    def _without_steps(self) -> list[ProcessReport]:
        """The processes in which torch was imported, but no step was made yet; of those behind ranks that have ended
        only such as do in their place what they did. What follows a training need not make any step.
        """
        reports = self.run.reports(windows.PASS)
        if not self.ranks:
            return reports
        ended_ns = max(each.ended_ns for each in self.ranks.values())
        known = {command for command in self._commands.values() if command}
        return [
            each
            for each in reports
            if each.started_unix_ns > ended_ns and processes.is_alive(each.pid) and processes.command(each.pid) in known
        ]

    def _started_again_ns(self) -> int:
        return min((each.started_unix_ns for each in self._without_steps()), default=0)

    def _read(self) -> None:
        folder = windows.rows_folder(self.run.path)
        with contextlib.suppress(OSError):
            for file in folder.glob("*.jsonl"):
                self._files.setdefault(file, RankSteps(file))
        for each in self._files.values():
            self._read_on(each)
        self.ranks = ranks_of(list(self._files.values()))

    def _read_on(self, rank: RankSteps) -> None:
        """Read what a process has written. One that ran here, and is gone, writes no more."""
        pid = rank.process.pid if rank.process and not rank.ended_ns else 0
        is_gone = bool(pid and self._commands.get((rank.path, pid))) and not processes.is_alive(pid)
        rank.read()
        if rank.process is not None:
            key = rank.path, rank.process.pid
            if key not in self._commands:
                self._commands[key] = processes.command(rank.process.pid)
        if is_gone:
            rank.is_gone()

    def _add(self, anomaly: Anomaly) -> None:
        self.anomalies.append(anomaly)
        self.happened(anomaly)
        if anomaly.kind == "hang":
            self.hang = hangs.find(self.py_spy, self.ranks)
            hangs.ask_flight_recorders(self.run.path / "nccl")
            self.happened(self.hang)
        elif anomaly.kind == "no-step":
            self.hang = hangs.find_before_steps(self.py_spy, {each.pid for each in self._without_steps()})
            self.happened(self.hang)
        elif anomaly.kind == "goes-on":
            self.hang = None

    # --- windows ---

    def _open_what_is_due(self, found: list[Anomaly], now: int) -> None:
        self._due += [(now, each) for each in found if each.kind in RECORDED]
        self._due = [(at, each) for at, each in self._due if now - at <= _DUE_NS and not self._is_recorded(each)]
        if self._window is not None or not self._is_steady():
            return
        is_apart = not self._opened or now - self._opened[-1] >= self.policy.apart_s * _NS
        is_due = bool(self._due) and is_apart and len(self._opened) < self.policy.windows
        is_first = not self._has_first and now - self._counted_ns >= self.policy.first_s * _NS
        if not (is_due or is_first) or windows.is_recording(self.run.path, self.ranks):
            return
        if is_due:
            _, worth = self._due[0]
            self._due.clear()  # it shows all of it
            self._opened.append(now)
            if worth.kind not in _AGAIN:
                self._recorded.add((worth.kind, worth.rank))
            self.open(worth.kind, worth)
        else:
            self._has_first = True
            self.open("first")

    def _is_recorded(self, anomaly: Anomaly) -> bool:
        return (anomaly.kind, anomaly.rank) in self._recorded

    def _is_steady(self) -> bool:
        alive = [each for each in self.ranks.values() if not each.ended_ns]
        return bool(alive) and all(len(each.stretches) >= _LEAST_STRETCHES for each in alive)

    def open(self, why: str, anomaly: Anomaly | None = None) -> None:
        """Open a window now, if the disk permits. `anomaly`: around which it is."""
        number = max([0, *windows.numbers(self.run.path)]) + 1
        try:
            made = Window(
                self.run, number, why, self.ranks, self.policy.steps, self.py_spy, log=self.policy.log, anomaly=anomaly
            )
        except OSError as error:
            self.trouble = f"a window could not be opened: {error.strerror or error}"
            return
        self._window = made
        self._note(made.state)

    def _poll_window(self, *, has_ended: bool) -> None:
        if self._window is not None:
            if self._window.poll(has_ended=has_ended):
                self._note(self._window.state)
            if self._window.is_over:
                self._window = None
        self._time_diagnosis()

    def _time_diagnosis(self) -> None:
        """From when to when is a window diagnosed, here or by `record-now`, on cores that the training may want?"""
        is_here = self._window is not None and self._window.state.state == "recorded"
        goes_on = is_here or windows.is_diagnosed_elsewhere(self.run.path, self.ranks, set(self._windows))
        since_ns, until_ns = self._ours_ns
        if goes_on and until_ns != _NOT_YET and takes_more_than_its_share():
            self._ours_ns = (self.now_ns(), _NOT_YET)
        elif not goes_on and until_ns == _NOT_YET:
            self._ours_ns = (since_ns, self.now_ns())

    def _note(self, state: WindowState) -> None:
        self._windows[state.number] = state
        if state.state == "recorded":
            with contextlib.suppress(OSError):
                folder = self.run.path / windows.WINDOWS / str(state.number)
                document.write_curve(folder, self.document(self.now_ns()))
        self.happened(state)
        self.write(self.now_ns())

    # --- what is known ---

    def document(self, now: int, *, has_ended: bool = False) -> WatchDocument:
        """All of it."""
        first = next(iter(self.ranks.values()), None)
        return WatchDocument(
            document.FORMAT,
            document.state_of(self.ranks, hangs=bool(self._judge.hangs_since), has_ended=has_ended),
            self.begun_ns, now, tuple(self.run.manifest.command),
            step_ns=document.rank_now(0, first).step_ns if first else 0,
            ranks=tuple(document.rank_now(number, each) for number, each in self.ranks.items()),
            curve=document.curve(first) if first else (),
            anomalies=tuple(self.anomalies), windows=self._all_windows(), hang=self.hang,
            exit_code=self.exit_code, notes=(self.trouble,) if self.trouble else (),
        )  # fmt: skip

    def _all_windows(self) -> tuple[WindowState, ...]:
        """Return those that were opened here, and by `record-now`."""
        others = {number: windows.found(self.run.path, number) for number in windows.numbers(self.run.path)}
        return tuple(dict(sorted({**others, **self._windows}.items())).values())

    def write(self, now: int, *, has_ended: bool = False) -> None:
        """Store it; a full disk is for later."""
        self.written_ns = now
        with contextlib.suppress(OSError):
            document.write(self.run.path, self.document(now, has_ended=has_ended))

    def end(self, exit_code: int | None = None) -> None:
        """The program has ended: read its last steps, and let a window that was recorded be diagnosed."""
        self.exit_code = exit_code
        self.tick(has_ended=True)
        until = time.monotonic() + _AT_END_S
        while self._window is not None and time.monotonic() < until:
            time.sleep(_POLL_S)
            self._poll_window(has_ended=True)
        if self._window is not None:
            self._window.end()
        self.write(self.now_ns(), has_ended=True)

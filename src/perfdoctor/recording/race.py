"""How do several trials of a program run at once, and still never beside each other?

What else goes on on a machine changes from second to second, and makes runs that follow each other differ by more than
most fixes save. Here all of them are started, and take turns of some steps each: at the end of a step one hands over
(agent's turns.py), its processes are stopped (SIGSTOP), and those of the next one go on. In each block of turns every
trial makes the same steps, in random order, within a second or so.

Each trial is run by a process of ours, as `run_trial` is for the main thread and for one program.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.launch import processes
from perfdoctor.recording.launch.program_run import ENDING_GRACE_S
from perfdoctor.recording.treated_run import Load, TrialOrder, TrialProgram, TrialReport, run_trial
from perfdoctor.system import spawned
from perfdoctor.system.spawned import Spawned

#: After the program was requested to end it may be killed, and what it left behind be ended, until its report comes.
_REPORTED_S = 2 * ENDING_GRACE_S
#: Whose program was killed removes the copy of its working folder in this time.
_CLEANED_S = ENDING_GRACE_S
#: Where torchrun takes the port from on which its ranks meet, if its command does not say: two jobs need two.
_PORT = "PET_MASTER_PORT"
_MOST_READINGS = 8
#: After so many turns it is known of what takes so many times as long as the first trial: single ones differ by 20 %.
_ENOUGH_TURNS, _SLOWER = 8, 4.0


class Entry(Struct, frozen=True):
    """One trial, as `run_trial` has it."""

    program: TrialProgram
    order: TrialOrder
    into: Path


def run_race(entries: Sequence[Entry], *, steps: int, seed: int) -> list[TrialReport]:
    """Make these trials at once, in turns of so many steps, and return their reports in the same order.

    One that is far slower than the first one is ended early. The limit of each is of the time in which it runs, as is
    `wall_s` of its report. Raises PerfdoctorError where a process cannot be started, KeyboardInterrupt after Ctrl-C.
    """
    chosen = random.Random(seed)  # noqa: S311 an order of turns
    load = Load()
    racers: list[_Racer] = []
    with contextlib.ExitStack() as stack:
        stack.callback(_end_all, racers)
        for number in chosen.sample(range(len(entries)), len(entries)):
            racers.append(_Racer(entries[number], steps, number))
            racers[-1].run_on()
        first = next(each for each in racers if not each.number)
        while running := [each for each in racers if each.report is None]:
            for each in chosen.sample(running, len(running)):
                each.take_turn()
                if each.number and each.is_slower_than(first):
                    each.cut()
    others = load.of_others(sum(each.used_s for each in racers))
    made = sorted(racers, key=lambda each: each.number)
    return [each.final(others) for each in made]


class _Racer:
    """One trial. It is stopped except within `run_on` and `take_turn`."""

    def __init__(self, entry: Entry, steps: int, number: int) -> None:
        self.number, self.limit_s = number, entry.order.limit_s
        self.report: TrialReport | None = None
        self.used_s = 0.0
        self.turns_s: list[float] = []  # how long it ran in each, the first of which is its start
        self.stopped: list[int] = []
        entry.into.mkdir(parents=True)
        self.folder = entry.into / "turns"
        self.folder.mkdir()
        # Open for both ways, an end neither blocks nor ends before the agent has opened its own.
        self.ends, self.turns = (self._pipe(name) for name in ("ends", "turns"))
        turns = {"folder": str(self.folder.absolute()), "steps": steps}
        environment = {_PORT: entry.program.environment.get(_PORT, str(_free_port())), **entry.order.environment}
        order = msgspec.structs.replace(entry.order, limit_s=None, turns=turns, environment=environment)
        try:
            self.child = Spawned(__name__)
            entry = Entry(entry.program, order, entry.into.absolute())
            spawned.send(self.child.questions, msgspec.msgpack.encode(entry, enc_hook=str))
        except OSError as error:
            raise PerfdoctorError(f"a trial cannot be started: {error}", do="Run it with --in-turn.") from error

    def _pipe(self, name: str) -> int:
        os.mkfifo(self.folder / name, 0o600)
        return os.open(self.folder / name, os.O_RDWR | os.O_CLOEXEC)

    def take_turn(self) -> None:
        """Let it go on until it hands over or ends."""
        processes.send(self.stopped, signal.SIGCONT)
        self.stopped = []
        os.write(self.turns, b".")
        self.run_on()

    def run_on(self) -> None:
        """Wait until it hands over or ends, and stop it then."""
        begun = time.monotonic()
        poll = select.poll()
        for pipe in (self.ends, self.child.answers.fileno()):
            poll.register(pipe, select.POLLIN)
        left_s = None if self.limit_s is None else max(self.limit_s - self.ran_s, 0.0)
        ready = [pipe for pipe, _ in poll.poll(None if left_s is None else left_s * 1e3)]
        if self.ends in ready:
            os.read(self.ends, 1)
            self._stop()
        elif not ready:
            self.cut()
        else:
            self._over()
        self.turns_s.append(time.monotonic() - begun)

    @property
    def ran_s(self) -> float:
        return sum(self.turns_s)

    def is_slower_than(self, other: _Racer) -> bool:
        """Does it take so much longer for the same turns that the rest of them would say nothing more?

        A single long turn says nothing of the rest: a recompilation takes as long as a hundred steps.
        """
        both = min(len(self.turns_s), len(other.turns_s))
        if self.report is not None or both <= _ENOUGH_TURNS:
            return False
        mine, theirs = (median(each.turns_s[1:both]) for each in (self, other))
        return mine > _SLOWER * theirs

    def cut(self) -> None:
        """Request its end, and take what it reports."""
        self.request_end()
        if not select.select([self.child.answers], [], [], _REPORTED_S)[0]:
            self._kill()
        self._over()

    def _over(self) -> None:
        answer = spawned.receive(self.child.answers)
        if answer is None:
            self.report = TrialReport(why="the process that ran it ended", code=1, is_cut=True)
        else:
            self.report, self.used_s = msgspec.msgpack.decode(answer, type=tuple[TrialReport, float])
        self.end()

    def final(self, others: float) -> TrialReport:
        """The report, by the time in which it ran. `others`: cores that were busy with other programs meanwhile."""
        assert self.report is not None
        return msgspec.structs.replace(self.report, wall_s=self.ran_s, others=others)

    def _stop(self) -> None:
        """Stop all processes of the program: also those that are started meanwhile."""
        for _ in range(_MOST_READINGS):
            found = [pid for pid in processes.descendants(self.child.pid) if pid not in self.stopped]
            if not found:
                return
            processes.send(found, signal.SIGSTOP)
            self.stopped += found

    def _kill(self) -> None:
        """Kill all processes of the program, but not the one that runs it at once: it removes the copied folder."""
        processes.send(processes.descendants(self.child.pid), signal.SIGKILL)
        with contextlib.suppress(OSError, KeyboardInterrupt):
            select.select([self.child.answers], [], [], _CLEANED_S)
        self.child.end()

    def request_end(self) -> None:
        processes.send(self.stopped, signal.SIGCONT)
        self.stopped = []
        self.child.end_input()

    def end(self) -> None:
        self.request_end()
        if self.report is None:  # what does not end is killed
            with contextlib.suppress(OSError, KeyboardInterrupt):
                select.select([self.child.answers], [], [], ENDING_GRACE_S / 4)
            self._kill()
        self.child.end()
        for pipe in (self.ends, self.turns):
            with contextlib.suppress(OSError):
                os.close(pipe)
        shutil.rmtree(self.folder, ignore_errors=True)  # who reads a pipe that was left among results waits for ever


def _end_all(racers: Sequence[_Racer]) -> None:
    left = [each for each in racers if each.report is None]
    for each in left:  # they end at the same time
        each.request_end()
    for each in left:
        each.end()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main() -> None:
    """The process that runs one trial: an order comes, a report goes. The end of its input is the end of the trial."""
    questions, answers = spawned.own_streams()
    message = spawned.receive(questions)
    if message is None:
        return
    given = msgspec.msgpack.decode(message, type=Entry, dec_hook=lambda kind, value: kind(value))
    load = Load()
    report = run_trial(given.program, given.order, given.into, lambda: bool(select.select([questions], [], [], 0)[0]))
    spawned.send(answers, msgspec.msgpack.encode((report, load.used_s())))

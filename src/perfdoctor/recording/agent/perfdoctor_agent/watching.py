"""How does an agent stay in a program from its first step to its last, and record a window whenever it is asked?

    steps found ── light: one tuple a step ──┬── asked ── a few steps timed ── window ── a few steps timed ──┐
                          └──────────────────┴──────────────── light again ─────────────────────────────────┘

Whoever asks writes a request beside the files of steps: which step begins the window, so that all ranks begin with the
same, and where its recordings go. Each window has a folder of its own, like that of a run.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import identity, inside, private, sampling
from perfdoctor_agent.agent import Agent, guarded
from perfdoctor_agent.light import LightSteps, RowWriter
from perfdoctor_agent.loaders import LoaderWatch
from perfdoctor_agent.memory import MemorySamples
from perfdoctor_agent.pace import StepEnds
from perfdoctor_agent.processor import ProcessorUse
from perfdoctor_agent.sampling import Sampling
from perfdoctor_agent.whole_run import WholeRun
from perfdoctor_agent.window_end import WindowEnd

#: In the folder of the steps' files.
REQUEST = "window.json"
#: So many updates by others since the last one of the optimizer that was taken for the steps': it is no longer used.
_MOST_OTHERS = 50
#: What a report says of the process, whatever window it is about.
_OF_PROCESS = ("command", "process_name", "job", "rank", "world_size", "step_found_by", "steps_seen")


class WatchingAgent(Agent):
    """`settings["watch"]`: `rows` is the folder for files of steps, and for requests; `watcher` the process that may
    read this one's stacks, 0 for none. With `settings["steps"]` a first window is opened as by any agent.

    `record_again` opens a window at once. It is the only way to do so, and works as often as it is called.
    """

    def _renew(self) -> None:
        self.light = LightSteps(self.torch)
        self.writer: RowWriter | None = None
        self.is_light = False
        self._wanted: dict[str, Any] | None = None
        self._answered = -1  # the number of the last window
        self._begun_ns = 0  # since 1970: when the steps of this process began to be noted
        self._optimizer: Callable[[], Any] = lambda: None  # whose updates are the steps
        self._others = (-1, 0)  # updates by other optimizers since this step
        self._is_ending = False
        super()._renew()
        self._of_run = self.report

    @guarded
    def watch(self) -> None:
        sampling.permit(self.settings["watch"]["watcher"])  # also where no step ever comes
        super().watch()

    def _new_whole_run(self) -> WholeRun | None:
        return super()._new_whole_run() if self.settings["steps"] else None

    # --- steps ---

    def _optimizer_hook(self) -> Callable[[Any, Any, Any], None]:
        return self.light.hook(self._optimizer_stepped, lambda error: self.give_up(f"{type(error).__name__}: {error}"))

    def _optimizer_stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.is_light and self._optimizer() is optimizer:
            if not self._is_compiling():
                self._light_step()
            return
        super()._optimizer_stepped(optimizer, args, kwargs)
        if self.step_finder.chosen is not None and not self.marks_steps and not self._is_compiling():
            self._know(optimizer)

    @guarded
    def _know(self, optimizer: Any) -> None:
        """Is it the one whose updates are the steps, or does one in its place make them now?"""
        if self.numbers.of(optimizer) == self.step_finder.chosen:
            light = self.light
            with contextlib.suppress(TypeError):
                self._optimizer = weakref.ref(optimizer, lambda _: light.alone(None))
            return
        count, others = self._others
        self._others = self.light.count, others + 1 if count == self.light.count else 1
        if others > _MOST_OTHERS and self.is_light:
            self._begin_anew()

    @guarded
    def _event(self, kind: Any, found_by: str) -> None:
        if self.is_light:
            if kind == self.step_finder.chosen and os.getpid() == self.pid:
                self._light_step()
            return
        is_counted, self.light.is_recorded = self.writer is not None, self.window >= 0
        super()._event(kind, found_by)
        if is_counted and kind == self.step_finder.chosen:
            self.light.end()
            self.light.is_recorded = self.window >= 0

    @guarded
    def _light_step(self) -> None:
        count = self.light.end()
        self.light.is_recorded = False  # a window may have ended in the middle of this step
        if self.whole_run is not None:
            self._noted(self.step_finder.chosen)
        wanted = self._wanted
        if wanted is not None:
            self._in_front().add(time.monotonic_ns())
            if count >= wanted["first_step"]:
                if self._wanted is wanted:  # the writer's thread may have found a later one
                    self._wanted = None
                self.record_again(wanted)
        self._leave_to_light()

    def _leave_to_light(self) -> None:
        """While nothing more is wanted of a step, `light` notes the updates by itself. On the thread that trains."""
        is_enough = self.is_light and self.whole_run is None
        self.light.alone(self._optimizer() if is_enough else None)
        if self._wanted is not None:  # asked behind it: the writer's thread may find a request meanwhile
            self.light.alone(None)

    def _begin_anew(self) -> None:
        self.is_light = False
        self.light.alone(None)
        self._optimizer, self._others = lambda: None, (-1, 0)  # marks may make the steps from now on
        super()._begin_anew()

    # --- light ---

    def _open(self) -> None:
        if self.settings["steps"]:
            super()._open()
        else:
            self._go_light()

    def _go_light(self) -> None:
        """From now on nothing is done in a step but to note its end."""
        self.is_light = True
        if self.writer is None:
            self._rank()
            noted = self.whole_run.steps if self.whole_run is not None else 0
            self.light.begin(max(self.report.facts["steps_seen"], noted))
            self.writer = self._new_writer()
            self.writer.start()

    def _new_writer(self) -> RowWriter:
        facts = self.report.facts
        who = {name: facts[name] for name in ("pid", "parent", "rank", "world_size", "job", "process_name", "torch")}
        self._begun_ns = time.time_ns()
        who.update(step_found_by=facts["step_found_by"], started=facts["started_unix_ns"], begun=self._begun_ns)
        who.update(ranks_here=identity.processes_here())
        name = f"rank{facts['rank'] or 0}-{self.pid}.jsonl"
        return RowWriter(os.path.join(self.settings["watch"]["rows"], name), self.light, who, self._look)

    def _look(self) -> None:
        """Is a window wanted? Asked on the writer's thread, which only notes it.

        A request whose time is over is dropped. One from before this process began names a step of another one, which
        may be hours ahead.
        """
        try:
            now_ns, wanted = time.time_ns(), self._wanted
            if wanted is not None and int(wanted["until"]) <= now_ns:
                self._wanted = None
            with open(os.path.join(self.settings["watch"]["rows"], REQUEST), encoding="utf-8") as file:
                found = json.load(file)
            is_valid = int(found["until"]) > now_ns and int(found.get("asked", now_ns)) >= self._begun_ns
            if self.is_light and is_valid and int(found["window"]) > self._answered:
                self._answered = int(found["window"])
                self.before = {self.step_finder.chosen: StepEnds(self.torch)}
                self._wanted = found
                self.light.alone(None)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):  # there is none, or it is half written
            return

    # --- windows ---

    def record_again(self, wanted: dict[str, Any]) -> None:
        """Begin a window with the end of the step that has just ended, on the thread that trains.

        `wanted`: besides what the request itself needs (`window`, `first_step`, `until`) the settings that are this
        window's own: `traces` and `reports` (folders), `steps`, and perhaps `most_steps`, `least_ns`, `sampling`,
        `stacks`, `modules`.
        """
        known = {name: self.report.facts[name] for name in _OF_PROCESS}
        self.settings = {**self.settings, **wanted}
        self.report = self._new_report()
        self.report.facts.update(known, steps_seen=self.light.count)
        self.recorder, self.ranges, self.window, self.ends_ns = None, None, -1, []
        self.window_end = WindowEnd(self.settings)
        self.memory, self.processor = MemorySamples(), ProcessorUse()
        self.loaders = LoaderWatch(self.torch)
        self.sampling = Sampling(self.settings.get("sampling"))
        self.sampling.announce()
        self.behind, self.is_done, self.is_light = None, False, False
        self.light.alone(None)
        self._step_hooks.setdefault("forward", self.forward.remove)
        self._open()

    def _light_again(self) -> None:
        """Leave the window behind: what is reported from now on is about the run."""
        self.settings = {**self.settings, "steps": 0}
        window, self.report = self.report, self._of_run
        if window is not self.report:
            window.write(ended=True)  # of this window there will be no more
            self.report.facts.update({name: window.facts[name] for name in _OF_PROCESS})
        self.report.write()
        self.window, self.recorder, self.ranges = -1, None, None
        # One process at a time may read the stacks: the window's sampler took the place of the one that watches.
        sampling.permit(self.settings["watch"]["watcher"])
        if self._is_ending:
            return
        self.is_done = False
        optimizer = sys.modules["torch.optim.optimizer"].Optimizer
        self.foreign.is_active = bool(private.find(self.torch, private.IS_ENABLED))
        self.foreign.watch()
        self._hooks += [self.foreign.leave, self._watch_new_optimizers(optimizer)]
        self._go_light()

    def _end_window(self, *, keep: bool = True) -> None:
        super()._end_window(keep=keep)
        if self.report is not self._of_run or self.settings["steps"]:
            self._light_again()

    def _write_unrecorded(self) -> None:
        was_behind = self.behind is not None
        super()._write_unrecorded()
        if was_behind:
            self._light_again()

    @property
    def _of_steps(self) -> str:
        return str(self.report.facts["step_found_by"])

    # --- the end ---

    @guarded
    def finish(self, *, is_killed: bool = False) -> None:
        if os.getpid() != self.pid:
            return
        self._is_ending = True
        if self.writer is not None:
            self._of_run.facts["steps_seen"] = self.report.facts["steps_seen"] = self.light.count
        super().finish(is_killed=is_killed)
        self._leave_light()

    def give_up(self, why: str) -> None:
        self.light.alone(None)
        super().give_up(why)
        self.is_light = False
        self._leave_light(why)

    def _leave_light(self, why: str = "") -> None:
        with contextlib.suppress(Exception):
            self.light.leave()
            if self.writer is not None:
                self.writer.end(why)

    def forked(self) -> None:
        self.light.leave()
        super().forked()


class InsideWatchingAgent(WatchingAgent):
    """One that the program itself has begun, and may end; processes that it forks are not watched.

    `left_in_child()` is called in those.
    """

    def __init__(self, torch: Any, settings: dict[str, Any], left_in_child: Callable[[], None]) -> None:
        super().__init__(torch, settings)
        self._left_in_child = left_in_child
        self.foreign.is_active = bool(private.find(torch, private.IS_ENABLED))

    def begin(self) -> None:
        inside.begin(self)

    def at_exit(self) -> None:
        """Whoever watches ends it."""

    def finish(self, *, is_killed: bool = False) -> None:
        super().finish(is_killed=is_killed)
        if self in inside.agents:
            inside.agents.remove(self)

    def forked(self) -> None:
        self.light.leave()
        with contextlib.suppress(Exception):
            self._drop_window()
        self.writer, self.behind, self.is_done, self.is_light = None, None, True, False
        self._left_in_child()

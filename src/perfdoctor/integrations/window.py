"""Which steps of a trainer are recorded, and where does the run folder lie? The same for all trainers."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from perfdoctor.recording.inside.marks import step
from perfdoctor.recording.inside.recording import Recording
from perfdoctor.system.run_folder import RUNS


class WindowCallback:
    """A callback or handler that records one window of steps, once, however often its trainer trains.

    One of them marks the steps of a process: each mark of a second one would be a step more.

    `recording` is the `perfdoctor.Recording`, once the training has begun.

    Args:
        at_step: The first recorded step, counted from 1 since this process began to train; at least 3.
        steps: How many steps are recorded.
        output: The run folder, new or empty; by default a new one in the trainer's output folder.
        report: Are `report.html` and `diagnosis.json` written into it, on rank 0, in a process of its own?
        log: The trackers that get the report: "mlflow" (into the run that is active), "wandb", "tensorboard=FOLDER".
        stacks: Are Python's stacks recorded with each op? That slows the recorded steps down.
        modules: Are the forwards of modules marked?
        time_limit_s: How many seconds the report may take, and the program's end may wait for it.
    """

    recording: Recording | None
    #: The folder of new run folders, in the trainer's output folder.
    _runs_name = RUNS
    #: Whose training goes on in this process, or whose window has not been reached.
    _marker: ClassVar[WindowCallback | None] = None
    _trained: Callable[[], object]  # what trains, or trained last; None where that is gone
    _is_training = False
    #: Does the trainer say when it has made an update? Else the agent finds them.
    _marks = True

    def __init__(
        self, *, at_step: int = 20, steps: int = 10, output: str | os.PathLike[str] | None = None, report: bool = True,
        log: str | Sequence[str] = (), stacks: bool = False, modules: bool = True, time_limit_s: float = 120.0,
    ) -> None:  # fmt: skip
        self.recording = None
        self._trained = _nothing
        self._given: dict[str, Any] = {
            "steps": steps, "skip": at_step - 1, "output": output, "report": report, "log": log,
            "stacks": stacks, "modules": modules, "time_limit_s": time_limit_s, "marked": self._marks,
        }  # fmt: skip

    def __getstate__(self) -> dict[str, object]:
        """Trainers copy callbacks, and send them to other processes: without the recording, which is of this one."""
        return {**vars(self), "recording": None, "_trained": _nothing, "_is_training": False}

    def _begin(self, folder: object, trained: object) -> None:
        """Begin a training; its first one begins the recording.

        `folder`: where the trainer writes, a path or None. `trained`: what trains, the same for all callbacks of it.
        """
        marker = WindowCallback._marker
        if marker is not None and marker is not self and not marker._trains(trained):  # noqa: SLF001 one of us
            marker._end(failed=True)  # noqa: SLF001
        if WindowCallback._marker in (None, self):
            WindowCallback._marker, self._trained, self._is_training = self, weakref.ref(trained), True
        if self.recording is None:
            self.recording = Recording(**self._given, runs=runs_in(folder, self._runs_name))
            self.recording.start()

    def _trains(self, trained: object) -> bool:
        """Does this training go on? One that raised an exception may not have ended, but then another one begins."""
        return self._is_training and self._trained() is trained

    def _step_ended(self) -> None:
        if WindowCallback._marker is self:
            step()

    def _end(self, *, failed: bool = False) -> None:
        """End a training. A window that it has not reached may come in the next one, unless it failed."""
        self._is_training = False
        if self.recording is not None and self.recording.is_waiting and not failed:
            return
        if WindowCallback._marker is self:
            WindowCallback._marker = None
        if self.recording is not None:
            self.recording.finish()


def _nothing() -> None:
    """In place of a reference to what trains."""


def runs_in(folder: object, name: str = RUNS) -> Path | None:
    """Where new run folders are made.

    Args:
        folder: The trainer's output folder, a path or anything else.
        name: The folder in it.

    Returns:
        That folder; None where it is no folder of this machine.
    """
    if not isinstance(folder, (str, os.PathLike)) or "://" in str(folder):
        return None
    return Path(folder) / name

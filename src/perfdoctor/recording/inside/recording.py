"""How does a program record itself, without perfdoctor around it?

    start ── agent watches (perfdoctor_agent/inside.py) ── steps recorded ── a few more timed ── left
                                                                             rank 0 starts finish.py, and goes on

The agent is the one of `perfdoctor run`. Whatever goes wrong is one line of warning, and the program goes on.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from perfdoctor.recording.inside import in_process, shared_folder
from perfdoctor.recording.inside.notices import P, harmless, warn
from perfdoctor.recording.inside.report_process import ReportProcess
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.system.run_folder import RUNS, RunFolder

R = TypeVar("R")
AnyPath: TypeAlias = str | os.PathLike[str]

#: Rank 0 waits so long for the files of other ranks, if nothing else is said.
_WAIT_S = 60.0
_FEWEST_SKIPPED = 2
_harmless = harmless("nothing is recorded")
_begun = 0


class Recording:
    """One window of recorded steps, as `perfdoctor.record` makes it.

    `folder`: the run folder; None before it is known, and where nothing is recorded.
    """

    folder: Path | None

    def __init__(
        self, *, steps: int = 10, skip: int = 5, output: AnyPath | None = None, runs: AnyPath | None = None,
        report: bool = True, log: str | Sequence[str] = (), stacks: bool = False, modules: bool = True,
        time_limit_s: float = 120.0, marked: bool = False,
    ) -> None:  # fmt: skip
        self.folder = None
        self._window = torch_profiler.StepWindow(steps, skip, stacks=stacks, modules=modules)
        self._output = None if output is None else Path(output)
        self._runs = Path(RUNS if runs is None else runs)
        self._wants_report, self._limit_s, self._marked = report, time_limit_s, marked
        self._log = (log,) if isinstance(log, str) else tuple(log)
        self._pid, self._rank, self._world_size = os.getpid(), 0, 1
        self._agent: Any = None
        self._run: RunFolder | None = None
        self._stop_waiting: Callable[[], None] = lambda: None
        self._at_exit: Any = None
        self._process: ReportProcess | None = None
        self._is_started = False

    # --- the three forms ---

    def __enter__(self) -> Recording:  # noqa: PYI034 Self is younger than our oldest Python
        """Begin, as `start` does.

        Returns:
            This recording.
        """
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, as `finish` does."""
        self.finish()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """A decorator.

        Args:
            function: The function whose first call is recorded; of a generator or an `async` function, what it runs
                behind the call.

        Returns:
            The function, which does and returns the same.
        """
        made: Any = function
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def iterated(*args: Any, **kwargs: Any) -> Any:
                with contextlib.nullcontext() if self._is_started else self:
                    return (yield from made(*args, **kwargs))

            return cast("Callable[P, R]", iterated)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with contextlib.nullcontext() if self._is_started else self:
                    return await made(*args, **kwargs)

            return cast("Callable[P, R]", awaited)

        @functools.wraps(function)
        def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._is_started:
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return recorded

    @_harmless
    def start(self) -> None:
        """Begin to watch for steps. A recording starts once."""
        if self._is_started:
            return
        self._is_started, self._pid = True, os.getpid()
        if self._window.steps < 1 or self._window.skip < 0:
            warn("nothing is recorded: steps must be at least 1, and skip at least 0")
            return
        self._stop_waiting = in_process.begin(self, self._begin)

    @_harmless
    def finish(self) -> None:
        """End the recording: keep the steps so far, and let the report be made. The second call does nothing."""
        if self._pid != os.getpid():
            return
        self._stop_waiting()
        if self._agent is not None:
            self._agent.finish()
        elif in_process.has_reserved(self):
            warn("nothing was recorded: torch was not imported")
        in_process.release(self)

    @property
    def is_waiting(self) -> bool:
        """Are there still steps to come before the recorded ones?"""
        return self._agent is not None and self._agent.window <= 0 and not self._agent.is_done

    @property
    def report(self) -> Path | None:
        """The HTML report, once it is there. Only rank 0 makes one."""
        return self._process.page if self._process is not None else None

    def wait(self, timeout_s: float | None = None) -> Path | None:
        """Wait for the report.

        Args:
            timeout_s: The most seconds to wait; None for as long as the report may take.

        Returns:
            The report's path. None where there is none: on other ranks, where it failed, or is not there in time.
        """
        if self._process is None:
            return None
        page = self._process.wait(timeout_s)
        if self._process.is_told:
            self._at_exit.cancel()
        return page

    # --- begin ---

    @_harmless
    def _begin(self, torch: Any) -> None:
        global _begun  # noqa: PLW0603 a count of the process
        try:
            self._rank, self._world_size = in_process.agent_module("identity").rank(torch)
            _begun += 1
            folder = shared_folder.choose(self._output, self._runs, torch, self._world_size, _begun)
            shared_folder.claim(folder, self._rank)
            self.folder = folder
            self._run = in_process.written_manifest(folder, self._rank, str(torch.__version__))
            recording = torch_profiler.PassSettings("torch", folder / "torch", "cpu+cuda")
            settings = torch_profiler.settings(recording, self._window, reports=folder / "agents")
            settings |= {"report": shared_folder.name_of(self._rank), "marked": self._marked}
            agent = in_process.agent_module("inside").InsideAgent(torch, settings, self._left)
            if agent.foreign.is_active:
                warn("a torch.profiler of the program is running: perfdoctor waits until it has ended")
            self._agent = agent
            self._at_exit = in_process.at_exit(self._ended)
            agent.begin()
        except BaseException:
            in_process.release(self)
            raise

    # --- end ---

    @_harmless
    def _left(self) -> None:
        """Note the result and start the report: the agent has ended, by itself or because the recording was ended."""
        in_process.release(self)
        facts, is_killed = self._agent.report.facts, self._agent.is_killed
        nothing = "" if facts["trace"] else self._why_nothing(facts)
        if self._run is not None:
            with contextlib.suppress(OSError):
                in_process.note_done(self._run, [nothing] if nothing else [])
        if nothing:
            warn(f"nothing was recorded: {nothing}")
        elif self._rank == 0 and self._wants_report and not is_killed:
            self._start_report()
        self._agent = None
        if self._process is None:
            self._at_exit.cancel()

    def _why_nothing(self, facts: dict[str, Any]) -> str:
        if facts["notes"] and (
            facts["state"] == "failed" or any("own torch.profiler" in each for each in facts["notes"])
        ):
            return str(facts["notes"][-1])
        seen, skipped = facts["steps_seen"], max(self._window.skip, _FEWEST_SKIPPED)
        if not seen:
            return "no step was seen. Mark where each ends: perfdoctor.step()"
        if seen <= skipped:
            return f"it ended after {seen} step{'s' * (seen > 1)}, and the first {skipped} are skipped. Skip fewer"
        return "no whole step came after those that are skipped"

    @harmless("no report is made")
    def _start_report(self) -> None:
        assert self.folder is not None
        given = {
            "world_size": self._world_size, "steps": self._window.steps, "skip": self._window.skip,
            "wait_s": min(_WAIT_S, self._limit_s / 2), "log": self._log,
        }  # fmt: skip
        self._process = ReportProcess(self.folder, given, self._limit_s)

    @_harmless
    def _ended(self) -> None:
        """Finish and wait for the report at the end of the process."""
        self.finish()
        if self._process is not None:
            self._process.wait_at_exit()


def record(
    *, steps: int = 10, skip: int = 5, output: AnyPath | None = None, runs: AnyPath | None = None, report: bool = True,
    log: str | Sequence[str] = (), stacks: bool = False, modules: bool = True, time_limit_s: float = 120.0,
) -> Recording:  # fmt: skip
    """Record some steps of this program with torch.profiler, as a context or as a decorator.

    Steps are the optimizer's updates, or what `perfdoctor.step()` marks. When they are recorded the training goes on
    at its full speed, and rank 0 lets a process of its own write the report. Nothing that fails here raises: it is one
    line of warning. Under `perfdoctor run`, which records already, nothing more is recorded.

    Args:
        steps: How many steps are recorded.
        skip: How many steps pass before, at least 2: the first ones compile, tune and fill caches.
        output: The run folder, new or empty. All ranks write into one.
        runs: The folder in which a new run folder `<time>-<program>` is made, if `output` is not given:
            `perfdoctor-runs`, if not given.
        report: Are `report.html` and `diagnosis.json` written into the folder? Else `perfdoctor analyze` makes them
            later.
        log: The trackers that get the report, as `perfdoctor analyze --log` names them: "mlflow" (into the run that is
            active, if any), "wandb", "tensorboard=FOLDER".
        stacks: Are Python's stacks recorded with each op? That slows the recorded steps down.
        modules: Are the forwards of modules marked?
        time_limit_s: How many seconds the report may take, and the program's end may wait for it.

    Returns:
        A `Recording`: a context, a decorator (the function's first call is recorded), or `start()` and `finish()`.

    Example:
        >>> import perfdoctor
        >>> @perfdoctor.record(steps=10, skip=20)
        ... def train():
        ...     ...
    """
    return Recording(
        steps=steps, skip=skip, output=output, runs=runs, report=report, log=log, stacks=stacks,
        modules=modules, time_limit_s=time_limit_s,
    )  # fmt: skip

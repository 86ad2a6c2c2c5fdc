"""How does a program let itself be watched for as long as it trains, without perfdoctor around it?

    start ── agent (perfdoctor_agent/watching.py) notes steps, records windows when asked ── end of the program
      └── rank 0 starts the process that watches (cli/watch_process.py), which ends behind the program

Whatever goes wrong is one line of warning, and the program goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perfdoctor.recording.inside import in_process, shared_folder
from perfdoctor.recording.inside.notices import harmless, warn
from perfdoctor.recording.inside.recording import AnyPath
from perfdoctor.recording.inside.report_process import PYTHON
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.system import tool_process
from perfdoctor.system.run_folder import RUNS, RunFolder

_harmless = harmless("this run is not watched")
#: At its end a program waits so long for the process that watches to read its last steps. It goes on by itself, if a
#: window is still diagnosed.
_AT_END_S = 3.0
_begun = 0


class Watch:
    """A training under watch, as `perfdoctor.watch` begins it.

    `folder`: the run folder; None before it is known, and where nothing is watched.
    """

    folder: Path | None

    def __init__(self, output: AnyPath | None, runs: AnyPath | None, steps: int | None, orders: dict[str, Any]) -> None:
        self.folder = None
        self._output = None if output is None else Path(output)
        self._runs, self._orders, self._steps = Path(RUNS if runs is None else runs), orders, steps
        self._pid = os.getpid()
        self._agent: Any = None
        self._run: RunFolder | None = None
        self._at_exit: Any = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stop_waiting: Callable[[], None] = lambda: None
        self._start()

    def __enter__(self) -> Watch:  # noqa: PYI034 Self is younger than our oldest Python
        """Nothing: it has begun.

        Returns:
            This watch.
        """
        return self

    def __exit__(self, *_: object) -> None:
        """End, as `finish` does."""
        self.finish()

    @_harmless
    def _start(self) -> None:
        self._stop_waiting = in_process.begin(self, self._begin)

    @_harmless
    def finish(self) -> None:
        """End the watch: nothing of it stays in the program. The second call does nothing."""
        if self._pid != os.getpid():
            return
        self._stop_waiting()
        if self._agent is not None:
            agent, self._agent = self._agent, None
            agent.finish()
            self._at_exit.cancel()
        if self._run is not None:
            with contextlib.suppress(OSError):
                in_process.note_done(self._run, [])
        self._end_process()
        in_process.release(self)

    @_harmless
    def _begin(self, torch: Any) -> None:
        global _begun  # noqa: PLW0603 a count of the process
        try:
            rank, world_size = in_process.agent_module("identity").rank(torch)
            _begun += 1
            folder = shared_folder.choose(self._output, self._runs, torch, world_size, _begun)
            shared_folder.claim(folder, rank, is_watched=True)
            self.folder = folder
            self._run = in_process.written_manifest(folder, rank, str(torch.__version__))
            if self._run is not None:
                self._start_process(folder)
            recording = torch_profiler.PassSettings("torch", folder / "torch", "cpu+cuda")
            nothing = torch_profiler.StepWindow(steps=0)
            settings = torch_profiler.settings(recording, nothing, reports=folder / "agents")
            watcher = self._process.pid if self._process is not None else 0
            settings["report"] = shared_folder.name_of(rank)
            settings["watch"] = {"rows": str(folder / "steps"), "watcher": watcher}
            agent = in_process.agent_module("watching").InsideWatchingAgent(torch, settings, self._left_in_child)
            self._agent, self._at_exit = agent, in_process.at_exit(self.finish)
            agent.begin()
        except BaseException:
            self._end_process()
            in_process.release(self)
            raise

    def _start_process(self, folder: Path) -> None:
        """Start the process that watches; where that fails, windows can still be asked for: `record-now`."""
        window = torch_profiler.default_window() if self._steps is None else torch_profiler.StepWindow(self._steps)
        window = msgspec.structs.replace(window, skip=1)
        orders = {**self._orders, "folder": str(folder)}
        orders["policy"] = {**orders["policy"], "steps": msgspec.to_builtins(window)}
        command = tool_process.own_command("perfdoctor.cli.watch_process", os.environ.get(PYTHON, ""))
        try:
            self._process = subprocess.Popen(
                [*command, json.dumps(orders)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            warn(f"nothing is watched: {error.strerror or error}")

    def _end_process(self) -> None:
        """Let the process that watches end. It does so as well where this one is killed: its input ends then."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.write(b"\n")  # a process that this one forked may hold the pipe, too
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(_AT_END_S)

    def _left_in_child(self) -> None:
        """In a process that was forked: the pipe is the parent's."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._agent, self._process, self._run = None, None, None


def watch(
    *, output: AnyPath | None = None, runs: AnyPath | None = None, windows: int = 3, apart_minutes: float = 10.0,
    first_window_s: float = 120.0, steps: int | None = None, hang_after_s: float = 60.0, on_anomaly: str = "",
    metrics: AnyPath | None = None, metrics_port: int | None = None, summaries: str = "", log: str | Sequence[str] = (),
    quiet: bool = False,
) -> Watch:  # fmt: skip
    """Watch this training from now on, as `perfdoctor watch` does for a whole command.

    Each rank calls it once; rank 0 starts the process that watches, which prints a line where something changes.
    Nothing that fails here raises: it is one line of warning. Under `perfdoctor run` or `watch`, nothing more is done.

    Args:
        output: The run folder, new or empty. All ranks write into one.
        runs: The folder in which a new run folder `<time>-<program>` is made, if `output` is not given:
            `perfdoctor-runs`, if not given.
        windows: How many windows of full recording are opened by themselves, at most.
        apart_minutes: The fewest minutes between two of them.
        first_window_s: After how many seconds one is opened to compare with; 0 for none.
        steps: How many steps a window records; None for 10 to 100, for a second.
        hang_after_s: No shorter pause is called a hang; nor one below 20 steps or 3 times the longest pause.
        on_anomaly: A shell's command for each anomaly; PERFDOCTOR_TEXT says what.
        metrics: A file for OpenMetrics, for node_exporter's textfile collector.
        metrics_port: A port on which this machine alone gets OpenMetrics: `http://127.0.0.1:PORT/metrics`.
        summaries: Where all nodes leave summaries meanwhile: a folder, or `s3://` and the like.
        log: The trackers that get the report of each window: "mlflow", "wandb", "tensorboard=FOLDER".
        quiet: Are no lines printed?

    Returns:
        A `Watch`, which has begun: `finish()` ends it, as the program's end does. It is a context, too.

    Example:
        >>> import perfdoctor
        >>> watch = perfdoctor.watch(windows=1)
    """
    policy = {
        "windows": windows, "apart_s": apart_minutes * 60, "first_s": first_window_s, "hang_after_s": hang_after_s,
        "log": (log,) if isinstance(log, str) else tuple(log),
    }  # fmt: skip
    orders = {
        "policy": policy, "hook": on_anomaly, "metrics": "" if metrics is None else str(Path(metrics).absolute()),
        "port": metrics_port or 0, "summaries": summaries, "quiet": quiet,
    }  # fmt: skip
    return Watch(output, runs, steps, orders)

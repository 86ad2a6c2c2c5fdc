"""How is the report made while the training goes on? By finish.py in a process that the training's end waits for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from perfdoctor.recording.inside.notices import say, warn
from perfdoctor.system import tool_process
from perfdoctor.system.paths import text_of
from perfdoctor.system.processors import worker_count

#: A Python in which `perfdoctor analyze` runs, where the one of the training lacks what it needs.
PYTHON = "PERFDOCTOR_PYTHON"
#: It ends itself after its limit, and is ended so much later.
_GRACE_S = 5.0
#: Of the training's Python alone: its warnings may be errors there, and its run at Weights & Biases goes on, into which
#: no other process may write. A report is no trial of a sweep either.
_NOT_ITS_OWN = (
    "PYTHONDEVMODE", "PYTHONINSPECT", "PYTHONWARNINGS",
    "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SWEEP_ID", "WANDB_SWEEP_PARAM_PATH",
)  # fmt: skip
#: The training goes on meanwhile.
_SHARE_OF_CORES = 1 / 8


def cores() -> int:
    """How many cores the report may take."""
    return max(1, int(worker_count() * _SHARE_OF_CORES))


def takes_more_than_its_share() -> bool:
    """Are there so few cores that the training may want the one that the report takes?"""
    return worker_count() * _SHARE_OF_CORES < 1


class ReportProcess:
    """The process that makes the report of a run folder. `given`: the other settings of finish.py."""

    def __init__(self, folder: Path, given: Mapping[str, object], limit_s: float) -> None:
        self._folder, self._limit_s, self._pid = folder, limit_s, os.getpid()
        self._log = folder / "report.log"
        self.is_told = False
        command = tool_process.own_command("perfdoctor.recording.inside.finish", os.environ.get(PYTHON, ""))
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_ITS_OWN} | _active_run()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, json.dumps({**given, "folder": str(folder), "limit_s": limit_s})],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip

    @property
    def has_ended(self) -> bool:
        """Is it over, with or without a report?"""
        return self._process.poll() is not None

    @property
    def page(self) -> Path | None:
        """The report, once it is there."""
        page = self._folder / "report.html"
        return page if page.is_file() else None

    def wait(self, timeout_s: float | None = None) -> Path | None:
        """The report; None where there is none by then. Says once how it ended."""
        try:
            code = self._process.wait(self._limit_s + _GRACE_S if timeout_s is None else timeout_s)
        except subprocess.TimeoutExpired:
            return None
        if not self.is_told:
            self.is_told = True
            self._tell(code)
        return self.page if not code else None

    def wait_at_exit(self) -> None:
        if self.is_told or self._pid != os.getpid():
            return
        if self._process.poll() is None:
            say(f"the report is being made, in at most {self._limit_s:.0f} s (Ctrl-C: leave without it)")
        with contextlib.suppress(KeyboardInterrupt):
            self.wait()
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self.wait()

    def _tell(self, code: int) -> None:
        if not code and self.page is not None:
            say(f"report: {self.page}")
            return
        last = text_of(self._log).strip().rpartition("\n")[2]
        why = last or ("it took too long" if code < 0 else f"exit code {code}")
        if code == 1 and self.page is not None:  # a tracker did not take it
            warn(f"{why.removeprefix('perfdoctor: ')} The report: {self.page}")
        else:
            warn(f"no report: {why}. Later: perfdoctor analyze {self._folder}")


def _active_run() -> dict[str, str]:
    """What leads MLflow in another process to the run that is active in this one."""
    mlflow = sys.modules.get("mlflow")
    try:
        run = mlflow.active_run() if mlflow is not None else None
        if mlflow is None or run is None:
            return {}
        return {"MLFLOW_RUN_ID": str(run.info.run_id), "MLFLOW_TRACKING_URI": str(mlflow.get_tracking_uri())}
    except Exception:  # noqa: BLE001 another module of this name, or a version unlike others
        return {}

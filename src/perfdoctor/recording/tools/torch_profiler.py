"""How does the agent get its settings, and how is it loaded into every Python of the command? By the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from perfdoctor.system import masking

AGENT = Path(__file__).absolute().parents[1] / "agent"
VARIABLE = "PERFDOCTOR_AGENT"
#: The program waits so long for a trial at most: 2 s, with what it takes to start and to end a copy of it.
TRIAL_S = 1.8


#: Steps are recorded until so much time has passed, if no number was asked for: at 64 samples a second, as two cores
#: permit, a line that takes a tenth of the time is in six samples, and in five it is named.
LEAST_WINDOW_S = 1.0
#: More steps than this are not recorded for it: of steps of 2 ms, a hundred say how they differ, and their trace has
#: the size of that of ten longer ones.
MOST_STEPS = 100


class StepWindow(Struct, frozen=True):
    """Which steps are recorded, and whether the program ends with them.

    `steps` are recorded; with `least_s` at least so many, until so much time has passed, and at most MOST_STEPS.
    """

    steps: int = 10
    skip: int = 5
    stop: bool = False
    stacks: bool = False
    #: Stacks are sampled from outside; with the text of the lines that they name.
    sampling: bool = True
    source: bool = True
    #: Forwards of modules are marked.
    modules: bool = True
    #: So long a copy of the program may try what workers would do for its loader; 0: nothing is tried.
    trial_s: float = 0.0
    least_s: float = 0.0

    def in_words(self) -> str:
        """How many steps are recorded, and when."""
        until = f"to {MOST_STEPS} steps, for {self.least_s} s," if self.least_s else "steps"
        return f"{self.steps} {until} after the first {self.skip}"


def default_window() -> StepWindow:
    """The window of `perfdoctor run` where no number of steps was asked for."""
    return StepWindow(least_s=LEAST_WINDOW_S)


class PassSettings(Struct, frozen=True):
    """What the agent does in one pass.

    `activities`: what torch.profiler records; CUPTI belongs to one tool at a time, so beside nsys it is "cpu".
    `nvtx`: hand ranges to the tool around. `capture_range`: which ranks open the CUDA range that the tool waits for.
    """

    pass_name: str
    traces: Path
    activities: Literal["", "cpu", "cpu+cuda"]
    nvtx: bool = False
    capture_range: Literal["", "all", "first"] = ""


def environment(
    base: Mapping[str, str], recording: PassSettings, window: StepWindow, *, reports: Path, nccl: Path | None,
    sampling: Mapping[str, object] | None = None, treated: Mapping[str, object] | None = None,
    watch: Mapping[str, object] | None = None,
) -> dict[str, str]:  # fmt: skip
    """The program's environment: the user's own, our agent in front of PYTHONPATH, and its settings.

    `treated`: what the agent tries on the program (agent/perfdoctor_agent/treated.py). `watch`: it stays in the program
    and notes every step (agent/perfdoctor_agent/watching.py).
    """
    given = settings(recording, window, reports=reports, nccl=nccl, sampling=sampling)
    if treated is not None:
        given["treated"] = treated
    if watch is not None:
        given["watch"] = watch
    path = [str(AGENT), *([base["PYTHONPATH"]] if base.get("PYTHONPATH") else [])]
    return {**base, "PYTHONPATH": os.pathsep.join(path), VARIABLE: json.dumps(given)}


@contextmanager
def while_running(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the environment for agents that start in the `with` block alone: daemons of the program keep it."""
    given = json.loads(environment[VARIABLE])
    marker = Path(given["reports"]) / f"{given['pass']}-is-running"
    with suppress(OSError):  # no space: nothing is recorded, and the program runs
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    try:
        yield {**environment, VARIABLE: json.dumps({**given, "while": str(marker)})}
    finally:
        with suppress(OSError):
            marker.unlink()


def settings(
    recording: PassSettings, window: StepWindow, *, reports: Path, nccl: Path | None = None,
    sampling: Mapping[str, object] | None = None,
) -> dict[str, object]:  # fmt: skip
    """The settings of the agent as JSON: `recording` is the pass, `reports` and `nccl` are folders."""
    # ncu replays each kernel some forty times: it measures a few launches, of as few steps as possible.
    least_s = 0.0 if recording.activities == "" else window.least_s
    return {
        "pass": recording.pass_name, "reports": str(reports.absolute()), "traces": str(recording.traces.absolute()),
        "activities": recording.activities, "nvtx": recording.nvtx, "capture_range": recording.capture_range,
        "steps": window.steps, "skip": window.skip, "stop": window.stop, "stacks": window.stacks,
        "most_steps": max(MOST_STEPS, window.steps) if least_s else window.steps, "least_ns": round(least_s * 1e9),
        "modules": window.modules, "trial_s": window.trial_s * bool(recording.activities),
        "nccl": str(nccl.absolute()) if nccl else "", "masking": masking.__file__,
        "sampling": sampling,
    }  # fmt: skip

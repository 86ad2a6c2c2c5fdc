"""How does a training loop with accelerate record a window of its steps?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from perfdoctor.integrations.window import runs_in
from perfdoctor.recording.inside.recording import Recording


def record(
    accelerator: Any, *, at_step: int = 20, steps: int = 10, output: str | os.PathLike[str] | None = None,
    report: bool = True, log: str | Sequence[str] = (), stacks: bool = False, modules: bool = True,
    time_limit_s: float = 120.0,
) -> Recording:  # fmt: skip
    """Record a window, into `perfdoctor-runs` of the accelerator's `project_dir`; else in the working directory.

    Steps are updates, as accelerate's optimizers make them, with gradient accumulation as well; or what
    `perfdoctor.step()` marks.

    Args:
        accelerator: The `Accelerator` of the program.
        at_step: The first recorded step, counted from 1; at least 3.
        steps: How many steps are recorded.
        output: The run folder, new or empty, instead of a new one in `perfdoctor-runs`.
        report: Are `report.html` and `diagnosis.json` written into it, on rank 0, in a process of its own?
        log: The trackers that get the report: "mlflow" (into the run that is active), "wandb", "tensorboard=FOLDER".
        stacks: Are Python's stacks recorded with each op? That slows the recorded steps down.
        modules: Are the forwards of modules marked?
        time_limit_s: How many seconds the report may take, and the program's end may wait for it.

    Returns:
        The recording, a context around the training loop.

    Example:
        with record(accelerator, at_step=50, steps=10):
            for batch in loader:
                ...
    """
    return Recording(
        steps=steps, skip=at_step - 1, output=output, runs=runs_in(getattr(accelerator, "project_dir", None)),
        report=report, log=log, stacks=stacks, modules=modules, time_limit_s=time_limit_s,
    )  # fmt: skip

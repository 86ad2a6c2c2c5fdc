"""How does Weights & Biases get a diagnosis? Numbers and the page as an artifact of the run that WANDB_RUN_ID names.

Without one a new run is made. Of a run that exists only the summary is written: its own steps stay as they are.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfdoctor.export.trackers import TrackerRequest


def log(request: TrackerRequest) -> str:
    """The run's address, or its folder where it was written offline."""
    import wandb

    given = os.environ.get("WANDB_RUN_ID")
    settings = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True)
    run = wandb.init(
        name=None if given else request["name"], job_type=None if given else "perfdoctor", resume="allow",
        settings=settings,
    )  # fmt: skip
    try:
        if given:
            run.summary.update(request["numbers"])
        else:
            run.log(request["numbers"])
        run.config.update(request["tags"], allow_val_change=True)
        artifact = wandb.Artifact(f"perfdoctor-{run.id}", type="report")
        artifact.add_file(request["page"], name="report.html")
        run.log_artifact(artifact)
    finally:
        run.finish()
    return str(run.url or run.dir)

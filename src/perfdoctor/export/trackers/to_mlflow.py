"""How does MLflow get a diagnosis? Metrics, tags and the page as an artifact of the run that MLFLOW_RUN_ID names.

Without one a new run is made. Of a run that exists, neither its state nor its parameters are touched: metrics and tags
have names of their own, and can be written again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from perfdoctor.export.trackers import TrackerRequest

#: The artifact's folder.
_FOLDER = "perfdoctor"


def log(request: TrackerRequest) -> str:
    """The run's id, with its store."""
    import mlflow

    given = os.environ.get("MLFLOW_RUN_ID")
    if given:
        _fill(mlflow.MlflowClient(), given, request)
        return f"run {given} at {mlflow.get_tracking_uri()}"
    with mlflow.start_run(run_name=request["name"]) as run:
        _fill(mlflow.MlflowClient(), run.info.run_id, request)
    return f"run {run.info.run_id} at {mlflow.get_tracking_uri()}"


def _fill(client: MlflowClient, run: str, request: TrackerRequest) -> None:
    from mlflow.entities import Metric, RunTag

    moment = round(request["recorded_unix_s"] * 1000)
    metrics = [Metric(name, value, moment, 0) for name, value in request["numbers"].items()]
    client.log_batch(run, metrics, (), [RunTag(name, value) for name, value in request["tags"].items()])
    client.log_artifact(run, request["page"], _FOLDER)

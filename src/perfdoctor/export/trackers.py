"""How is one diagnosis logged? `python -m perfdoctor.export.trackers REQUEST ANSWER`, two JSON files.

Trackers print, ask for passwords, and keep threads: nothing of that reaches the command that started this.

MLflow and Weights & Biases get it into the run that MLFLOW_RUN_ID or WANDB_RUN_ID names, or else into a new one. What a
run has already stays: metrics and tags have names of their own, and of Weights & Biases only the summary is written.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlflow import MlflowClient
    from tensorboard.compat.proto.summary_pb2 import Summary

#: The artifact's folder in MLflow.
_FOLDER = "perfdoctor"
#: Names under which TensorBoard finds the plugin that draws a value.
_SCALARS, _TEXT = "scalars", "text"


class TrackerRequest(TypedDict):
    """`folder`: for files of TensorBoard. `numbers`: by name. `text`: the report in Markdown; `page`: the HTML file."""

    tracker: str
    name: str
    folder: str
    recorded_unix_s: float
    numbers: dict[str, float]
    tags: dict[str, str]
    text: str
    page: str


def main(request: str, answer: str) -> int:
    """The exit code. The answer says where it was logged, or what went wrong, in one line."""
    if sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109 (as Python writes it) -m puts the user's folder first
        del sys.path[0]
    asked: TrackerRequest = json.loads(Path(request).read_text("utf-8"))
    said: dict[str, str] = {}
    try:
        said["where"] = {"mlflow": _mlflow, "tensorboard": _tensorboard, "wandb": _wandb}[asked["tracker"]](asked)
    except Exception as error:  # noqa: BLE001 whatever a tracker raises becomes one line
        said["error"] = f"{type(error).__name__}: {error}"
    Path(answer).write_text(json.dumps(said), "utf-8")
    return 0 if "where" in said else 1


def _mlflow(request: TrackerRequest) -> str:
    """Log metrics, tags and the page as an artifact; the run's id, with its store."""
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


def _tensorboard(request: TrackerRequest) -> str:
    """Write an event file with scalars and the report as text, and the page beside it; the folder.

    TensorBoard's own writer is used, as in torch's SummaryWriter: that would import torch.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder = Path(request["folder"])
    writer = EventFileWriter(str(folder))
    summary = Summary(value=list(_values(request)))
    writer.add_event(Event(wall_time=request["recorded_unix_s"], step=0, summary=summary))
    writer.close()
    shutil.copyfile(request["page"], folder / "report.html")
    return str(folder)


def _values(request: TrackerRequest) -> Iterator[Summary.Value]:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

    def about(plugin: str) -> SummaryMetadata:
        return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin))

    for name, value in request["numbers"].items():
        yield Summary.Value(tag=name, simple_value=value, metadata=about(_SCALARS))
    text = TensorProto(
        dtype="DT_STRING", string_val=[request["text"].encode()],
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
    )  # fmt: skip
    yield Summary.Value(tag="perfdoctor/report/text_summary", tensor=text, metadata=about(_TEXT))


def _wandb(request: TrackerRequest) -> str:
    """Log numbers and the page as an artifact; the run's address, or its folder where it was written offline."""
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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

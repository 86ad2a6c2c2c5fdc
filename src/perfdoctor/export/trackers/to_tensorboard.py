"""How does TensorBoard get a diagnosis? An event file with scalars and the report as text; the page lies beside it.

Written with TensorBoard's own writer, as torch's SummaryWriter does: that would import torch.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary

    from perfdoctor.export.trackers import TrackerRequest

#: Names under which TensorBoard finds the plugin that draws a value.
_SCALARS, _TEXT = "scalars", "text"


def log(request: TrackerRequest) -> str:
    """The folder."""
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

"""Which stream waits for an event? Rows of the synchronization table that a StreamWaitEvent made."""

from __future__ import annotations

import numpy as np

from perfdoctor.model.device_work import launch_rows
from perfdoctor.model.timeline import UNKNOWN, Frame, Text
from perfdoctor.readers.nsys.frames import Ranks
from perfdoctor.readers.nsys.tables import NONE, UNREADABLE, ExportTables
from perfdoctor.vocabulary.names import cuda as cuda_names

TABLE = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
COLUMNS = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId")
_LARGEST_STREAM = 1 << 31


def stream_waits(tables: ExportTables, ranks: Ranks, calls: Frame) -> Frame:
    """Rows of the signal `stream_waits`, of processes that are ranks.

    The numbers of their kinds differ between versions, so the calls that made them say which they are. On which stream
    the event was recorded is not in the table.
    """
    try:
        rows = tables.database.integers(TABLE, COLUMNS)
    except UNREADABLE:
        return Frame.empty("stream_waits")
    process = np.where(rows["globalPid"] == NONE, UNKNOWN, (rows["globalPid"] >> 24) & 0xFFFFFF)
    known = (rows["start"] != NONE) & (rows["end"] >= rows["start"]) & (rows["correlationId"] != NONE)
    known &= (rows["streamId"] >= 0) & (rows["streamId"] < _LARGEST_STREAM)
    unknown = np.full(process.size, UNKNOWN, np.int64)
    found = Frame({
        "rank": ranks.ranks(process), "process": process, "device": np.maximum(rows["deviceId"], 0),
        "stream": rows["streamId"], "start_ns": rows["start"], "end_ns": rows["end"],
        "correlation": rows["correlationId"], "awaited_stream": unknown, "name": Text.constant("wait", process.size),
    }).take(known & (ranks.ranks(process) != UNKNOWN)).sorted()  # fmt: skip
    call = launch_rows(found, calls)
    is_wait = calls.name.matches(cuda_names.STREAM_WAIT)
    return found.take((call != UNKNOWN) & np.append(is_wait, False)[call])

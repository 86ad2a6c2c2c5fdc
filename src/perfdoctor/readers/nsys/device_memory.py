"""How much device memory had CUDA allocated after each change? Recorded with nsys --cuda-memory-usage=true.

This includes what torch's allocator reserves and what cuBLAS, cuDNN and NCCL allocate themselves. Allocations made
before the recording are not included; if they are freed during it, the total begins at so much more.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask, Text
from perfdoctor.readers.nsys.frames import Ranks
from perfdoctor.readers.nsys.tables import NONE, UNREADABLE, ExportTables

TABLE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
#: nsys's enumeration: device, array, static. Pageable and pinned memory is on the host, managed memory on either.
_ON_DEVICE = (2, 3, 5)
_FREED = 1
COLUMNS = ("start", "globalPid", "deviceId", "memKind", "memoryOperationType", "bytes")


def device_memory(tables: ExportTables, ranks: Ranks) -> Frame:
    """Rows of the signal `device_memory`, of processes that are ranks."""
    try:
        rows = tables.database.integers(TABLE, COLUMNS)
    except UNREADABLE:
        return Frame.empty("device_memory")
    process = np.where(rows["globalPid"] == NONE, UNKNOWN, (rows["globalPid"] >> 24) & 0xFFFFFF)
    rank = ranks.ranks(process)
    keep: Mask = (
        (rank != UNKNOWN) & (rows["start"] != NONE) & np.isin(rows["memKind"], _ON_DEVICE) & (rows["bytes"] >= 0)
    )
    order = np.flatnonzero(keep)[np.argsort(rows["start"][keep], kind="stable")]
    device = np.maximum(rows["deviceId"][order], 0)
    changes = np.where(rows["memoryOperationType"][order] == _FREED, -1, 1) * rows["bytes"][order]
    return Frame({
        "rank": rank[order], "process": process[order], "device": device,
        "start_ns": rows["start"][order], "end_ns": rows["start"][order],
        "bytes": _running(changes, rank[order], device), "name": Text.constant("handed out", order.size),
    })  # fmt: skip


def _running(changes: Ints, rank: Ints, device: Ints) -> Ints:
    """The running sum of each rank and device; never below 0."""
    total = np.zeros(changes.size, np.int64)
    for place in set(zip(rank.tolist(), device.tolist(), strict=True)):
        own = (rank == place[0]) & (device == place[1])
        held = changes[own].cumsum()
        total[own] = held - min(int(held.min()), 0)
    return total

"""How much memory had each purpose, as torch.profiler counts it? Reads `export_memory_timeline("….raw.json.gz")`.

Format: torch/profiler/_memory_profiler.py (`export_memory_timeline_raw`): a list of [ns, action, bytes, purpose],
one row a change on one device, in order; the time is -1 for memory that was there before. A tensor that changes its
category has two rows: less of the old one, more of the new one. The file does not contain the device's number.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Frame, Ints, Source, Text, Timeline
from perfdoctor.patterns import regex
from perfdoctor.readers.kineto.inflate import decompressed
from perfdoctor.readers.torch_memory.snapshot_rows import MOST_BYTES, rank_in_name

_HEAD = regex(rb"\s*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]\s*[,\]]")
#: Categories in the order of their numbers. torch calls tensors of unproven purpose temporary.
CATEGORIES = (
    "parameters", "optimizer_state", "inputs", "temporaries", "activations", "gradients", "backward", "unknown",
)  # fmt: skip


def looks_like(head: bytes) -> bool:
    """Do the first bytes, decompressed, begin a list of such rows?"""
    return _HEAD.match(head) is not None


def read(path: Path) -> Timeline:
    """The Timeline of one file: one device of one rank, 0 where the file's name has none.

    Raises PerfdoctorError where it breaks off, or holds other rows.
    """
    text, is_complete = decompressed(path.read_bytes())
    try:
        rows = msgspec.json.decode(text, type=list[tuple[int, int, int, int]])
        columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
        frame = _frame(*columns)
    except (ValueError, OverflowError, TypeError) as error:
        what = "holds rows of another kind" if is_complete else "breaks off"
        raise PerfdoctorError(
            f"`{path.name}` begins like a memory timeline of torch.profiler, but {what}",
            do="Write it again with profiler.export_memory_timeline(), or take a snapshot of torch.cuda.memory",
        ) from error
    rank = rank_in_name(path.name)
    return Timeline.build(
        {"memory_changes": frame.with_columns(rank=np.full(len(frame), rank or 0, np.int64))},
        {"memory_changes"},
        sources=[Source("memory", path.name, "", () if rank is None else (rank,))],
    )


def _frame(times: Ints, actions: Ints, sizes: Ints, categories: Ints) -> Frame:
    if ((actions < 1) | (actions > 4) | (categories < 0) | (categories >= len(CATEGORIES))).any():
        raise ValueError("an unknown action or category")
    if (np.abs(sizes) > MOST_BYTES).any():
        raise ValueError("an impossible size")
    known = times[times > 0]
    at = np.maximum.accumulate(np.where(times > 0, times, known[0] if known.size else 0))
    none = np.zeros(times.size, np.int64)
    return Frame({
        "rank": none, "process": none, "device": none, "start_ns": at, "end_ns": at, "bytes": sizes,
        "name": Text(categories.astype(np.int32), CATEGORIES),
    })  # fmt: skip

"""How is the memory of each device described in words and small tables? The same in every report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean_name
from perfdoctor.vocabulary.kinds import MEMORY_KINDS, memory_label

if TYPE_CHECKING:
    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.memory import MemoryUse

#: Devices shown, highest peak first: the other devices of a large job are similar.
SHOWN_DEVICES = 4
SHOWN_HOLDERS = 5
_LINE_LIMIT = 72
#: More callers seldom help; JSON has all.
_SHOWN_LINES = 2


class MemoryRow(Struct, frozen=True):
    """One row of a table: what, size and share of the peak in words, and how many tensors ("" if not counted)."""

    what: str
    size: str
    share: str
    count: str = ""


def heading(diagnosis: Diagnosis) -> str:
    hidden = len(diagnosis.memory) - SHOWN_DEVICES
    return "Memory" + (f", the {SHOWN_DEVICES} fullest of {len(diagnosis.memory)} devices" if hidden > 0 else "")


def shown(diagnosis: Diagnosis) -> Sequence[MemoryUse]:
    return sorted(diagnosis.memory, key=lambda use: (-use.peak_bytes, use.rank, use.device))[:SHOWN_DEVICES]


def peak(use: MemoryUse) -> str:
    """`rank 0: peak 13.0 GiB in use, 13.2 GiB reserved; 241 MiB free in 60 blocks, the largest 39.4 MiB`."""
    if use.source == "driver":
        peak_size = wording.size(use.peak_bytes)
        return f"{place(use)}: peak {peak_size} allocated from CUDA since the recording began, by torch and libraries."
    free = ""
    if use.free_pieces > 0:
        blocks = wording.counted(use.free_pieces, "block")
        largest = f", the largest {wording.size(use.largest_free_bytes)}" if use.free_pieces > 1 else ""
        free = f"; {wording.size(use.free_bytes)} free in {blocks}{largest}"
    return f"{place(use)}: peak {wording.size(use.peak_bytes)} in use{_reserved(use.peak_reserved_bytes)}{free}."


def now(use: MemoryUse) -> str:
    """What is allocated and reserved at the end of the recording, in torch's terms."""
    if use.source == "driver":
        at_end = f"{wording.size(use.reserved_bytes)} allocated"
    else:
        at_end = f"{wording.size(use.allocated_bytes)} allocated{_reserved(use.reserved_bytes)}"
    at_start = ""
    if use.source == "snapshot" and use.first_reserved_bytes > use.peak_reserved_bytes:
        at_start = f"{wording.size(use.first_reserved_bytes)} reserved at the start of the snapshot. "
    return f"{at_start}At the end: {at_end}; {wording.counted(use.events, 'allocator event')} recorded."


def _reserved(number: int) -> str:
    return f", {wording.size(number)} reserved" if number >= 0 else ""


def place(use: MemoryUse) -> str:
    return f"rank {use.rank}" + (f", device {use.device}" if use.device else "")


def categories(use: MemoryUse) -> list[MemoryRow]:
    """The peak by purpose, largest first."""
    labels = {name: memory_label(name) if name in MEMORY_KINDS else clean_name(name, 32) for name in use.by_category}
    return [
        MemoryRow(labels[name], wording.size(part), wording.share_of(part, use.peak_bytes))
        for name, part in use.by_category.items()
    ]


def holders(use: MemoryUse) -> list[MemoryRow]:
    """The largest allocations at the peak, by source line and callers; those without a line are in the categories."""
    named = [holder for holder in use.holders if holder.line][:SHOWN_HOLDERS]
    return [
        MemoryRow(
            clean_name(" < ".join(holder.stack.split(" < ")[:_SHOWN_LINES]), _LINE_LIMIT),
            wording.size(holder.bytes),
            wording.share_of(holder.bytes, use.peak_bytes),
            wording.counted(holder.count, "tensor"),
        )
        for holder in named
    ]

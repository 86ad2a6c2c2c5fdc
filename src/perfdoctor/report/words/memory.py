"""How is the memory of each device put into words and small tables? The same for every report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean_name
from perfdoctor.vocabulary.parts import MEMORY_KINDS

if TYPE_CHECKING:
    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.memory import MemoryUse

#: Devices shown, those with the highest peak first: the others of a large job look like them.
SHOWN_DEVICES = 4
SHOWN_HOLDERS = 5
_LINE_LIMIT = 72
#: Callers beyond the first seldom tell more; JSON has them all.
_SHOWN_LINES = 2


@dataclass(frozen=True)
class Line:
    """One row of a table: what, bytes in words, their share of the peak in words, and how many tensors ("" for all)."""

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
    """`rank 0: at most 13.0 GiB in use of 13.2 GiB reserved; 241 MiB lay free in 60 pieces of 39.4 MiB at most`."""
    if use.source == "driver":
        taken = wording.size(use.peak_bytes)
        return f"{place(use)}: at most {taken} taken from the device since the recording began, by torch and libraries."
    free = ""
    if use.free_pieces > 0:
        pieces = wording.counted(use.free_pieces, "piece")
        largest = f" of {wording.size(use.largest_free_bytes)} at most" if use.free_pieces > 1 else ""
        free = f"; {wording.size(use.free_bytes)} lay free in {pieces}{largest}"
    return (
        f"{place(use)}: at most {wording.size(use.peak_bytes)} in use{_reserved(use.peak_reserved_bytes, 'of')}{free}."
    )


def now(use: MemoryUse) -> str:
    """What is held at the end, in torch's own words."""
    if use.source == "driver":
        held = f"{wording.size(use.reserved_bytes)} taken"
    else:
        held = f"{wording.size(use.allocated_bytes)} allocated{_reserved(use.reserved_bytes, 'and')}"
    return f"At the end {held}; {wording.counted(use.events, 'change')} recorded."


def _reserved(number: int, joined_by: str) -> str:
    return f" {joined_by} {wording.size(number)} reserved" if number >= 0 else ""


def place(use: MemoryUse) -> str:
    return f"rank {use.rank}" + (f", device {use.device}" if use.device else "")


def categories(use: MemoryUse) -> list[Line]:
    """What the peak was for, the most first."""
    return [
        Line(MEMORY_KINDS.get(name, clean_name(name, 32)), wording.size(held), wording.share_of(held, use.peak_bytes))
        for name, held in use.by_category.items()
    ]


def holders(use: MemoryUse) -> list[Line]:
    """Who held most of the peak, by line and callers; what tells no line is in the categories."""
    named = [holder for holder in use.holders if holder.line][:SHOWN_HOLDERS]
    return [
        Line(
            clean_name(" < ".join(holder.stack.split(" < ")[:_SHOWN_LINES]), _LINE_LIMIT),
            wording.size(holder.bytes),
            wording.share_of(holder.bytes, use.peak_bytes),
            wording.counted(holder.count, "tensor"),
        )
        for holder in named
    ]

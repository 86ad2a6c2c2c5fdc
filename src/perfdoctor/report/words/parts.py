"""Which parts does a step have, in which order and with which widths in a bar?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.time_split import TimeSplit, parts_ns
from perfdoctor.report.words.foreign_text import clean_name
from perfdoctor.report.words.wording import counted, share
from perfdoctor.vocabulary import places as names
from perfdoctor.vocabulary.kinds import OP_PHASES
from perfdoctor.vocabulary.parts import IDLE_CAUSES, PARTS, REST, SMALL_SHARE

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Further findings are shown only on request.
SHOWN_FINDINGS = 5
#: A kernel's name in a sentence: its own, and the begin of its types.
_SHORT_NAME = 52


class PartShare(Struct, frozen=True):
    """`ns` of the windows' `whole_ns`; `shown_ns` is the same share of one step (of the window if there are none)."""

    key: str
    label: str
    ns: int
    whole_ns: int
    shown_ns: float

    @property
    def share(self) -> float:
        return self.ns / self.whole_ns if self.whole_ns else 0.0


def parts(splits: Sequence[TimeSplit], base_ns: int) -> tuple[PartShare, ...]:
    """The non-empty parts of one or several ranks together, which sum to the whole; `base_ns`: length of a step."""
    sizes = parts_ns(splits)
    whole = sum(split.window_ns for split in splits)
    small = [key for key in IDLE_CAUSES if 0 < sizes[key] < SMALL_SHARE * whole]
    on_cpu = all(split.device is None for split in splits)
    labels = {name: part.labels(without_gpu=on_cpu)[0] for name, part in PARTS.items()}
    if len(small) > 1:
        sizes[REST] = sum(sizes.pop(key) for key in small)
        labels[REST] = f"idle: {counted(len(small), 'smaller cause')}"
    return tuple(PartShare(key, labels[key], ns, whole, base_ns * ns / whole) for key, ns in sizes.items() if ns > 0)


def what_computes(diagnosis: Diagnosis) -> str:
    """What computes for most of the time, in a sentence; "" where that is not known, or findings are about it.

    Without a GPU the phases of its ops: `Ops: backward pass 48 %, optimizer 12 % of the step`. Else the kernel that
    takes more of the time than all the rest, idle included, where nothing was found that saves time.
    """
    whole = sum(split.window_ns for split in diagnosis.time)
    if not whole:
        return ""
    sizes = {name: sum(split.compute_by_phase_ns.get(name, 0) for split in diagnosis.time) for name in OP_PHASES}
    known = [
        f"{OP_PHASES[name]} {share(ns / whole)}"
        for name, ns in sorted(sizes.items(), key=lambda item: -item[1])
        if ns >= SMALL_SHARE * whole
    ]
    if known:
        return f"Ops: {', '.join(known)} of {diagnosis.basis.whole}."
    longest = max(diagnosis.kernels, key=lambda row: row.total_ns, default=None)
    saves = any(each.saving_ns_per_step.likely for each in diagnosis.findings)
    if saves or longest is None or 2 * longest.total_ns <= whole:
        return ""
    name, part = clean_name(longest.name, _SHORT_NAME), share(longest.total_ns / whole)
    return f"Costliest kernel: {name}, {part} of {diagnosis.basis.whole}."


def split_base_ns(split: TimeSplit) -> int:
    return split.step_ns if split.step_ns is not None else split.window_ns


def all_parts(diagnosis: Diagnosis) -> tuple[PartShare, ...]:
    """The parts of one step, all ranks together."""
    if not diagnosis.time:
        return ()
    whole = sum(split_base_ns(split) for split in diagnosis.time)
    return parts(diagnosis.time, diagnosis.recorded_ns or whole // len(diagnosis.time))


def shown_places(splits: Sequence[TimeSplit], at_most: int) -> list[tuple[TimeSplit, str]]:
    """All splits if they are at most `at_most`, else the slowest and the median, labelled as such."""
    if len(splits) <= at_most:
        return [(split, "") for split in splits]
    ordered = sorted(splits, key=lambda split: (-split_base_ns(split), -split.compute_ns, split.rank))
    return [(ordered[0], "slowest"), (ordered[len(ordered) // 2], "median")]


def place_names(splits: Sequence[TimeSplit]) -> dict[tuple[int, int | None], str]:
    """`rank 3`, with its device where a rank has several."""
    places = [(split.rank, split.device) for split in splits]
    return dict(zip(places, names.place_names(places), strict=True))


def cells(shown: Sequence[PartShare], width: int) -> list[int]:
    """How many of `width` characters each part gets: largest remainders, at least one from 1 % on."""
    whole = sum(part.ns for part in shown)
    if not whole:
        return [0] * len(shown)
    exact = [part.ns * width / whole for part in shown]
    least = [1 if part.ns >= SMALL_SHARE * whole else 0 for part in shown]
    given = [max(int(cells_of), floor) for cells_of, floor in zip(exact, least, strict=True)]
    by_remainder = sorted(range(len(shown)), key=lambda i: exact[i] - given[i], reverse=True)
    for i in by_remainder[: max(width - sum(given), 0)]:
        given[i] += 1
    while sum(given) > width:
        given[max(range(len(given)), key=given.__getitem__)] -= 1
    return given

"""Which stretch of the timeline shows what a finding is about? The longest one of its kind, as evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np

from perfdoctor.metrics.accounting.window import analysed_span
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Span

#: What a moment is: of all that a finding is about, the one that took longest.
LONGEST = "the longest of them"

#: A rank, and when it began and ended, in ns of the recording.
Moment = tuple[int, int, int]
Signal = Literal["copies", "collectives"]


def longest(run: Run, moments: Iterable[Moment]) -> Iterator[Span]:
    """The longest of these moments inside the analysed window; nothing where there is none."""
    window = analysed_span(run)
    if window is None:
        return
    zero, last = window
    inside = [(rank, max(start, zero), min(end, last)) for rank, start, end in moments]
    rank, start, end = max(inside, key=lambda each: each[2] - each[1], default=(0, 0, 0))
    if end > start:
        yield Span(LONGEST, rank, start - zero, end - zero)


def longest_idle(run: Run, cause: str) -> Iterator[Span]:
    """The longest stretch that was idle for this cause (one of IDLE_CAUSES) on any place."""
    found = (longest_piece(place.rank, place.idle_causes[cause]) for place in run.places)
    return longest(run, (moment for each in found for moment in each))


def longest_exposed(run: Run, signal: Signal, rows: Callable[[Place], Mask]) -> Iterator[Span]:
    """Of these copies or collectives (a bool a row of the place's frame) the one that is exposed longest."""
    found = (_longest_exposed(place, signal, rows(place)) for place in run.places)
    longest_of_all = max((each for each in found if each), key=lambda each: each[0], default=None)
    return longest(run, [longest_of_all[1]] if longest_of_all else [])


def _longest_exposed(place: Place, signal: Signal, rows: Mask) -> tuple[int, Moment] | None:
    """How long it is exposed, and when it ran."""
    frame, exposed = place.collectives, place.exposed_communication
    if signal == "copies":
        frame, exposed = place.copies, place.exposed_copies
    exposed_ns = np.where(rows, exposed.overlap_ns(frame.start_ns, frame.end_ns), 0)
    if not exposed_ns.any():
        return None
    at = int(np.argmax(exposed_ns))
    return int(exposed_ns[at]), (place.rank, int(frame.start_ns[at]), int(frame.end_ns[at]))


def longest_piece(rank: int, pieces: Intervals) -> list[Moment]:
    """The longest of a rank's stretches; empty where there are none."""
    if not pieces:
        return []
    at = int(np.argmax(pieces.durations_ns))
    return [(rank, int(pieces.starts[at]), int(pieces.ends[at]))]

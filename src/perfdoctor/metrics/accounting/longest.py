"""Which stretch of the recording is analysed, and which shows what a finding is about? The longest of its kind.

Times that a report shows (a finding's `Span`, the timeline's pieces) count from the beginning of what is analysed, on
the one clock of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np

from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Span

#: What a report calls such a moment: of all that a finding is about, the one that took longest.
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
    pieces = (longest_piece(place.rank, place.idle_causes[cause]) for place in run.places)
    return longest(run, (moment for found in pieces for moment in found))


def longest_exposed(run: Run, signal: Signal, rows: Callable[[Place], Mask]) -> Iterator[Span]:
    """The copy or collective that is exposed longest; `rows` gives one bool a row of the place's frame."""
    most_ns, moments = 0, list[Moment]()
    for place in run.places:
        frame, exposed = place.collectives, place.exposed_communication
        if signal == "copies":
            frame, exposed = place.copies, place.exposed_copies
        exposed_ns = np.where(rows(place), exposed.overlap_ns(frame.start_ns, frame.end_ns), 0)
        if exposed_ns.max(initial=0) > most_ns:
            at = int(np.argmax(exposed_ns))
            most_ns, moments = int(exposed_ns[at]), [(place.rank, int(frame.start_ns[at]), int(frame.end_ns[at]))]
    return longest(run, moments)


def longest_piece(rank: int, pieces: Intervals) -> list[Moment]:
    """The longest of a rank's stretches, as a list of one; empty where there are none."""
    if not pieces:
        return []
    at = int(np.argmax(pieces.durations_ns))
    return [(rank, int(pieces.starts[at]), int(pieces.ends[at]))]


def analysed_span(run: Run) -> tuple[int, int] | None:
    """The first moment of all windows, and the last of those that were read in full, in ns of the recording; None
    without a place.

    The first is the zero of all times given as "since the first event of the window": of all ranks of the job, so that
    it is the earliest begin that a diagnosis has, however many of them were read in full.
    """
    ends = [int(place.window.ends[-1]) for place in run.places if place.window]
    if not ends:
        return None
    return min(int(place.window.starts[0]) for place in run.job.places if place.window), max(ends)

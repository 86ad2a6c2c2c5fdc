"""Which stretch of the recording is analysed on all places together, and what is its zero?

Times that a report shows (a finding's `Span`, the timeline's pieces) count from here, on the one clock of all ranks.
"""

from __future__ import annotations

from perfdoctor.model.run import Run


def analysed_span(run: Run) -> tuple[int, int] | None:
    """From the first to the last event of the windows of all places, in ns of the recording; None without a place.

    The first is the zero of all times given as "since the first event of the window".
    """
    windows = [place.window for place in run.places if place.window]
    if not windows:
        return None
    return min(int(window.starts[0]) for window in windows), max(int(window.ends[-1]) for window in windows)

"""On public recordings: does the timeline hold all that was recorded, and does it fit in a page?"""

from __future__ import annotations

import pytest
from folders import RECORDINGS
from labels import cases
from recorded import of_recordings, recording

from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.report import embedded

#: Reports of nsys need its own tool to be read: what they hold is also in the exports.
PATHS = [
    RECORDINGS / case["path"]
    for case in cases()
    if "fails" not in case and not case["path"].endswith((".qdrep", ".nsys-rep"))
]
#: What a report of 1.5 MB has for its timeline.
MOST_BYTES = 900_000

pytestmark = pytest.mark.recordings


@of_recordings(PATHS)
def test_counts_and_times_are_those_of_the_recording(path):
    run, found = recording(path).run, recording(path).views.timeline
    edges = [edge for place in run.places for piece in place.window for edge in piece]
    if found is None:
        assert not edges
        return
    first, last = min(edges), max(edges)
    for signal in ("kernels", "collectives", "copies", "ranges", "ops", "functions", "calls", "os_calls"):
        if signal == "collectives" and host_places(run):
            continue
        rows = run.timeline[signal]
        inside = [
            (max(start, first), min(end, last))
            for start, end in zip(rows.start_ns.tolist(), rows.end_ns.tolist(), strict=True)
            if end > first and start < last
        ]
        of_signal = [track for track in found.tracks if track.kind == signal]
        assert sum(int(track.count.sum()) for track in of_signal) == len(inside)
        assert sum(int(track.busy_ns.sum()) for track in of_signal) == sum(end - start for start, end in inside)
        for track in of_signal:
            reach: dict[int, int] = {}
            pieces = zip(track.row.tolist(), track.start_ns.tolist(), track.duration_ns.tolist(), strict=True)
            for row, start, length in pieces:
                assert reach.get(row, 0) <= start
                reach[row] = start + length
    assert len(embedded.packed_timeline(found)) <= MOST_BYTES

"""Programs are at work at once where they have room, and cannot meet."""

from __future__ import annotations

import pytest

from perfdoctor.recording.treated_run import TrialReport
from perfdoctor.treatments.at_once import most_at_once, steps_of_turn

GB = 1 << 30


@pytest.mark.parametrize(("report", "most", "why"), [
    (TrialReport(host_bytes=GB), 5, ""), (TrialReport(host_bytes=3 * GB), 3, ""),
    (TrialReport(host_bytes=6 * GB), 1, "memory"), (TrialReport(host_bytes=GB, gpu_bytes=GB), 1, "GPU"),
    (TrialReport(host_bytes=GB, ranks=4, here=2), 1, "other machines"),
    (TrialReport(host_bytes=GB, ranks=2, here=2), 5, ""),
])  # fmt: skip
def test_how_many_have_room(report: TrialReport, most: int, why: str) -> None:
    found, reason = most_at_once(report, 20 * GB)
    assert (found, why in reason, bool(reason)) == (most, True, bool(why))


@pytest.mark.parametrize(("lengths_ms", "steps"), [
    ([1] * 20, 50), ([20] * 20, 3), ([2000] * 20, 1), ([], 1), ([3] * 5 + [50] * 15, 4),
])  # fmt: skip
def test_a_turn_has_whole_steps_and_some_ms_of_work(lengths_ms: list[int], steps: int) -> None:
    assert steps_of_turn([each * 1_000_000 for each in lengths_ms]) == steps

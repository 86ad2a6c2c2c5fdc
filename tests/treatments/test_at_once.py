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


@pytest.mark.parametrize(("step_s", "steps"), [(0.001, 50), (0.02, 3), (2.0, 1), (0.0, 1)])
def test_a_turn_has_whole_steps(step_s: float, steps: int) -> None:
    assert steps_of_turn(step_s) == steps

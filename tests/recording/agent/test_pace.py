"""How long is a step while nothing is recorded, from the moments at which steps ended?"""

from __future__ import annotations

import itertools
import math
import sys
from types import SimpleNamespace

import pytest

from perfdoctor.recording.tools import torch_profiler

sys.path.insert(0, str(torch_profiler.AGENT))
from perfdoctor_agent import pace
from perfdoctor_agent.pace import StepEnds, unrecorded
from perfdoctor_agent.whole_run import WholeRun

sys.path.remove(str(torch_profiler.AGENT))

MS = 1_000_000
NO_GPU = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))


def ends(steps_ms: list[int], faults_per_step: int = 0) -> StepEnds:
    """The ends of a first step and of these; each takes so many page faults."""
    found, now_ns = StepEnds(NO_GPU), 0
    for number, step_ms in enumerate([0, 50, *steps_ms]):
        now_ns += step_ms * MS
        found.add(now_ns)
        found.faults[-1] = number * faults_per_step
    return found


def test_two_kinds_of_steps_that_alternate_count_alike():
    assert unrecorded(ends([]), ends([10, 40] * 15))["unwatched_step_ns"] == 25 * MS


def test_a_disturbed_step_does_not_count():
    assert unrecorded(ends([]), ends([10] * 30 + [400]))["unwatched_step_ns"] == 10 * MS


class DeviceClock:
    """Events of a GPU whose steps take so many ms each, behind a first one of 50 ms."""

    def __init__(self, steps_ms: list[int], hangs_at_ms: float = math.inf) -> None:
        self.hangs_at_ms = hangs_at_ms
        self.moments_ms = list(itertools.accumulate([0, 50, *steps_ms]))
        self.cuda = SimpleNamespace(
            is_initialized=lambda: True, is_current_stream_capturing=lambda: False, Event=lambda **_: self.event()
        )

    def event(self) -> SimpleNamespace:
        at_ms = self.moments_ms.pop(0)
        return SimpleNamespace(
            at_ms=at_ms,
            record=lambda: None,
            query=lambda: at_ms < self.hangs_at_ms,
            synchronize=lambda: None,
            elapsed_time=lambda later: later.at_ms - at_ms,
        )


def device_ends(steps_ms: list[int]) -> StepEnds:
    found = StepEnds(DeviceClock(steps_ms))
    for _ in range(len(steps_ms) + 2):
        found.add(0)
    return found


@pytest.mark.parametrize(
    ("before", "behind", "expected_ms"),
    [
        ([10] * 4, [16] * 30, 10),  # launches cost more since CUPTI is in the process
        ([20, 18, 17], [16] * 30, 16),  # the program still warmed up
        ([10] * 2, [16] * 30, 16),  # two steps prove little
        ([10] * 4, [16] * 12, 10),
        ([10] * 2, [16] * 2, 13),
    ],
)
def test_on_a_gpu_the_faster_side_of_the_window_counts(before: list[int], behind: list[int], expected_ms: int):
    found = unrecorded(device_ends(before), device_ends(behind))
    assert (found["unwatched_step_ns"], found["unwatched_clock"]) == (expected_ms * MS, "device")


@pytest.mark.parametrize(("behind", "expected_ms"), [([12] * 4, 14), ([12] * 30, 12)])
def test_steps_before_count_where_few_are_behind(behind: list[int], expected_ms: int):
    assert unrecorded(ends([16] * 4), ends(behind))["unwatched_step_ns"] == expected_ms * MS


def test_page_faults_that_the_profiler_spares_the_program_are_added(monkeypatch):
    monkeypatch.setattr(pace, "_fault_ns", lambda: 1_000.0)
    before, behind = ends([16] * 3, faults_per_step=4_000), ends([12] * 30)
    assert unrecorded(before, behind)["unwatched_step_ns"] == 16 * MS
    assert unrecorded(ends([16] * 3), behind)["unwatched_step_ns"] == 12 * MS, "it took none before"


def test_the_first_touch_of_a_page_costs_something():
    assert 0 <= pace._fault_ns() < MS


@pytest.mark.parametrize(
    ("torch", "events", "waits", "timed_ms"),
    [
        (DeviceClock([20, 30, 40]), True, True, [50, 20, 30, 40]),
        (DeviceClock([20, 30, 40], hangs_at_ms=90), True, False, [50, 20]),
        (DeviceClock([20, 30, 40]), False, True, [5] * 4),
        (NO_GPU, True, True, [5] * 4),
    ],
)
def test_steps_of_a_trial_are_those_of_the_gpu_though_the_host_launches_ahead(torch, events, waits, timed_ms):
    run = WholeRun(torch, "", "", samples=False, events=events)
    for number in range(5):
        run.step_ended("sgd", number * 5 * MS)
    found = run.timed(waits=waits)
    assert found["lengths_ns"] == [each * MS for each in timed_ms]
    assert found["clock"] == ("host" if timed_ms[0] == 5 else "device")

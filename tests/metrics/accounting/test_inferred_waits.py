"""Is a wait for the device found that no recorded call shows, and is work of the host's own not taken for one?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from builders import BASE_NS, timeline
from folders import FIXTURES

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.inferred_waits import with_inferred_waits
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.open import read
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.rulebook import load_rules

US, MS = 1_000, 1_000_000
_WAITS = ("item", "stream_sync", "event_sync", "event_query", "event_query_sleep", "stream_query", "flag", "allocator", "locked")  # fmt: skip


def steps(
    goes_on_us: float, *, meanwhile: Sequence[dict[str, Any]] = (), behind: int = 0, work_ms: int = 16
) -> Timeline:
    """Four times 16 ms of work, launched at once; the host makes its next call so long after it is done.

    `meanwhile`: what the host does, by its time in the step. `behind`: kernels of 100 µs that the device still has.
    """
    calls, kernels = [], []
    period = work_ms * MS + round(goes_on_us * US) + behind * 100 * US
    for number in range(4):
        at = BASE_NS + number * (period + 2 * MS)
        lengths = [work_ms * MS, *[100 * US] * behind]
        start = at + 10 * US
        for each, length in enumerate(lengths):
            join = {"correlation": 100 * number + each}
            calls.append(
                {"name": "cudaLaunchKernel", "start_ns": at + each * US, "end_ns": at + each * US + 500, **join}
            )
            kernels.append({"name": "gemm", "start_ns": start, "end_ns": start + length, **join})
            start += length
        went_on = at + 10 * US + work_ms * MS + round(goes_on_us * US)
        calls.append(
            {
                "name": "cudaLaunchKernel",
                "start_ns": went_on,
                "end_ns": went_on + 5 * US,
                "correlation": 100 * number + 99,
            }
        )
        kernels.append(
            {
                "name": "small",
                "start_ns": max(start, went_on + 8 * US),
                "end_ns": max(start, went_on + 8 * US) + 5 * US,
                "correlation": 100 * number + 99,
            }
        )
        calls += [{**each, "start_ns": at + each["start_ns"], "end_ns": at + each["end_ns"]} for each in meanwhile]
    return timeline(kernels=kernels, calls=calls)


def waits(recorded: Timeline) -> list[str]:
    """The names of the calls that were added."""
    before, after = recorded.calls, with_inferred_waits(recorded).calls
    added = [name for name in after.name if name.startswith("inferred wait")]
    assert len(after) == len(before) + len(added), "no recorded call is lost"
    return added


@pytest.mark.parametrize("goes_on_us", [3, 20, 80, 140])
def test_who_goes_on_just_after_the_work_is_done_waited_for_it(goes_on_us):
    assert waits(steps(goes_on_us)) == [cuda_names.INFERRED_WAIT] * 4


@pytest.mark.parametrize("goes_on_us", [-900, 200, 1_000, 4_000])
def test_who_goes_on_at_another_time_did_something_of_its_own(goes_on_us):
    assert waits(steps(goes_on_us)) == []


def test_who_asks_and_sleeps_between_two_questions_may_go_on_later():
    asks = [{"name": "cudaEventQuery", "start_ns": at * MS, "end_ns": at * MS + 2 * US} for at in range(1, 16)]
    assert waits(steps(600, meanwhile=asks)) == [cuda_names.INFERRED_WAIT] * 4
    assert waits(steps(600)) == []


def test_a_call_in_between_shows_that_the_host_does_something_else():
    calls = [{"name": "cudaMemGetInfo", "start_ns": at * 400 * US, "end_ns": at * 400 * US + US} for at in range(1, 40)]
    assert waits(steps(20, meanwhile=calls)) == []


def test_a_wait_that_is_recorded_is_not_added_again():
    sync = [{"name": "cudaStreamSynchronize", "start_ns": 20 * US, "end_ns": 16 * MS + 25 * US}]
    assert waits(steps(20, meanwhile=sync)) == []


def test_with_work_behind_it_a_wait_is_one_for_an_event_and_must_be_less_likely_by_chance():
    assert waits(steps(20, behind=2)) == [cuda_names.INFERRED_WAIT_FOR_EVENT] * 4


def test_a_short_pause_is_no_wait():
    assert waits(steps(20, work_ms=0)) == []


@pytest.mark.parametrize("how", _WAITS)
def test_however_the_host_waits_the_device_is_what_limits_the_step(how):
    """Recorded on an H100, each without a recorder 18 ms a step, of which 16.1 are products in fp32."""
    diagnosis = diagnose(read([FIXTURES / "h100-waits" / f"{how}.json.gz"]), list(load_rules().values()))
    first = diagnosis.findings[0]
    assert first.rule == "fp32-matmuls"
    assert first.saving_ns_per_step.likely > 8 * MS


def test_a_sleep_is_the_hosts_own():
    diagnosis = diagnose(read([FIXTURES / "h100-waits" / "host_sleep.json.gz"]), list(load_rules().values()))
    saved = {each.rule: each.saving_ns_per_step.likely / MS for each in diagnosis.findings}
    assert saved["host-work"] == pytest.approx(12.2, abs=0.5)

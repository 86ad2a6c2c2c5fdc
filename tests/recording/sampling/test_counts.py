"""Is it known how many samples showed a stack, although py-spy's file says only when stacks changed?"""

from __future__ import annotations

import itertools
import os
import random
import statistics

import pytest

from perfdoctor.recording.sampling import counts
from perfdoctor.recording.sampling.counts import READ_S, SampleClock, matched
from perfdoctor.recording.sampling.stacks import Sampled
from perfdoctor.recording.tools import py_spy

MS = 1_000_000
HERTZ = 100


def taken(numbers: random.Random, seconds: float) -> list[float]:
    """Instants of a sampler that sleeps for exponentially distributed times, in ms."""
    found, at_ms = [], 0.0
    while at_ms < 1000 * seconds:
        at_ms += numbers.expovariate(HERTZ / 1000)
        found.append(at_ms)
    return found


def read_each_ms(instants: list[float], numbers: random.Random) -> list[int]:
    """The same as the kernel's number shows them that is read now and then: spread between two times of reading."""
    found, before, seen = [], 0.0, 0
    while seen < len(instants):
        now = before + 1000 * READ_S + numbers.expovariate(2)
        new = sum(before < each <= now for each in instants)
        found += [round(MS * (before + (now - before) * (part + 0.5) / new)) for part in range(new)]
        seen, before = seen + new, now
    return found


@pytest.mark.parametrize("late_ms", [0, 2])
@pytest.mark.parametrize("changing", [1.0, 0.6, 0.2])
def test_the_samples_of_each_stack_are_counted_and_not_derived_from_its_time(changing, late_ms):
    numbers = random.Random(3)
    instants = taken(numbers, 10)
    rows = [0, *(row for row in range(1, len(instants)) if numbers.random() < changing)]
    changes = [round(MS * (instants[row] - late_ms)) for row in rows]
    found = matched(changes, read_each_ms(instants, numbers))
    true = [after - before for before, after in itertools.pairwise(rows)]
    counted = [after - before for before, after in itertools.pairwise(found)]
    by_time = [max(1, round((after - before) / MS * HERTZ / 1000)) for before, after in itertools.pairwise(changes)]
    assert sum(counted) == pytest.approx(sum(true), rel=0.02)
    assert wrong(counted, true) < 0.6 * wrong(by_time, true)


def wrong(found: list[int], true: list[int]) -> float:
    return statistics.fmean(abs(each - right) for each, right in zip(found, true, strict=True))


def test_times_that_do_not_fit_to_the_changes_of_stacks_count_nothing():
    assert matched([10 * MS, 20 * MS], []) == []
    assert matched([100 * MS, 200 * MS, 300 * MS], [10 * MS, 20 * MS]) == []


def test_a_stack_that_py_spy_saw_once_before_it_had_no_core_is_one_sample_and_one_before_the_window_is_none(
    tmp_path, monkeypatch
):
    """Seen at 5, 10 and 15 ms, at 20 ms, and then at 100 ms: the window begins at 12 ms."""
    file = tmp_path / "1.json"
    spans = [(5, 20, "busy"), (20, 100, "seen once"), (100, 105, "end")]
    found = [py_spy.ThreadSample(7, "", a * MS, b * MS, ((name, "train.py", 1),)) for a, b, name in spans]
    monkeypatch.setattr(py_spy, "samples", lambda _: iter(found))
    at = [5 * MS, 10 * MS, 15 * MS, 20 * MS, 100 * MS, 105 * MS]
    sampled = Sampled(7, 7, 200, file, file, 0, 0, 12 * MS, 103 * MS, at)
    assert [(each.stack[0][0], each.samples) for each in sampled.samples()] == [
        ("busy", 1),
        ("seen once", 1),
        ("end", 1),
    ]
    unknown = Sampled(7, 7, 200, file, file, 0, 0, 12 * MS, 103 * MS)
    assert [each.samples for each in unknown.samples()] == [0, 0, 0]


def test_where_the_sampling_thread_is_not_known_no_sample_is_counted(monkeypatch):
    monkeypatch.setattr(counts, "_sampling_thread", lambda _: -1)
    clock = SampleClock(1)
    clock.read(1_000)
    clock.read(2_000)
    assert clock.taken_unix_ns == []
    clock.close()


def test_samples_are_spread_over_the_time_in_which_they_were_taken_also_behind_the_sampler_s_end(tmp_path, monkeypatch):
    file = tmp_path / "status"
    file.write_bytes(b"Name:\tpy-spy\nvoluntary_ctxt_switches:\t10\nother:\t1\n")
    monkeypatch.setattr(counts, "_sampling_thread", lambda _: os.open(file, os.O_RDONLY))
    clock = SampleClock(1)
    clock.read(1_000)
    file.write_bytes(b"Name:\tpy-spy\nvoluntary_ctxt_switches:\t12\n")
    clock.read(2_000)
    assert clock.taken_unix_ns == [1_250, 1_750]
    file.write_bytes(b"")  # it has ended
    clock.read(3_000)
    assert clock.taken_unix_ns == [1_250, 1_750]
    clock.close()
    clock.close()

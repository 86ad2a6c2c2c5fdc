"""What was held from step to step: by marks of the snapshot, by steps of a trace, by the lows in between."""

from __future__ import annotations

import pytest
from builders import BASE_NS, timeline
from snapshots import MIB, Recording

from perfdoctor.metrics.memory.growth import growths, reserved_peaks, reserves
from perfdoctor.metrics.memory.in_use import replays
from perfdoctor.metrics.memory.step_samples import keepers, samples, steps_of
from perfdoctor.model.timeline import Timeline, merge
from perfdoctor.readers.torch_memory import snapshot as memory_snapshot

LEAK, WORK = "work/train.py:7 losses", "work/model.py:4 forward"


def training(steps: int = 8, leak: int = MIB, work: int = 30 * MIB, *, mark: bool = True, layers: int = 3) -> Recording:
    """Each step makes activations, keeps `leak` bytes of them, and frees the rest."""
    made = Recording()
    made.alloc(50 * MIB, "work/model.py:1 build")
    made.begin()
    for _ in range(steps):
        activations = [made.alloc(work // layers, WORK) for _ in range(layers)]
        if leak:
            made.alloc(leak, LEAK)
        for address in activations:
            made.free(address)
        if mark:
            made.mark()
    return made


def read(made: Recording, tmp_path) -> Timeline:
    return memory_snapshot.read(made.write(tmp_path / "run.pickle"))


def test_marks_of_the_snapshot_are_its_steps(tmp_path):
    rows = samples(read(training(), tmp_path))
    assert [held // MIB for held in rows["allocated_bytes"].tolist()] == [51 + n for n in range(8)]
    assert set(rows.name) == {"cuda"}


def test_without_marks_the_lows_between_two_highs_are(tmp_path):
    rows = samples(read(training(mark=False), tmp_path))
    assert [held // MIB for held in rows["allocated_bytes"].tolist()] == [51 + n for n in range(7)]


def test_memory_that_mostly_rises_has_no_lows(tmp_path):
    """A forward pass that gathers one layer after the other: what stays are activations, and no leak."""
    made = Recording()
    for _ in range(12):
        gathered = made.alloc(10 * MIB, "work/gather.py:1 gather")
        made.alloc(8 * MIB, WORK)
        made.free(gathered)
    timeline = read(made, tmp_path)
    assert len(samples(timeline)) == 0
    assert list(growths(timeline, 0)) == []


def test_steps_of_a_trace_of_the_same_rank_are_taken_where_the_snapshot_has_none(tmp_path):
    made = training(mark=False, leak=0)
    starts = [event["time_us"] * 1000 - 1 for event in made.events if event["action"] == "alloc"][::3]
    steps = [{"rank": 0, "name": f"ProfilerStep#{n}", "start_ns": at, "end_ns": at + 10} for n, at in enumerate(starts)]
    whole = merge([read(made, tmp_path), timeline(ranges=steps)])
    (replay,) = replays(whole)
    assert len(steps_of(whole, replay)) == 7  # the first begins before the first allocation


def test_who_keeps_something_in_each_step_is_named_and_who_does_in_the_last_is_not(tmp_path):
    made = training()
    made.alloc(20 * MIB, WORK)  # the step that is not over yet
    (keeper,) = keepers(read(made, tmp_path), 0, 0.9)
    assert (keeper.line, keeper.bytes, keeper.count) == (LEAK, 7 * MIB, 7)


def test_who_keeps_something_once_is_not(tmp_path):
    made = training(steps=4, leak=0)
    made.alloc(5 * MIB, "work/optim.py:3 state")
    for _ in range(4):
        made.free(made.alloc(30 * MIB, WORK))
        made.mark()
    assert list(keepers(read(made, tmp_path), 0, 0.9)) == []


@pytest.mark.parametrize("mark", [True, False])
def test_growth_is_what_each_step_keeps(tmp_path, mark):
    (growth,) = growths(read(training(leak=3 * MIB, mark=mark), tmp_path), 0)
    assert (growth.bytes_per_step, growth.rising_share, growth.kind) == (3 * MIB, 1.0, "cuda")


def test_a_steady_training_does_not_grow(tmp_path):
    (growth,) = growths(read(training(leak=0), tmp_path), 0)
    assert (growth.bytes_per_step, growth.rising_share) == (0, 0)


def test_the_reserve_of_a_step_is_the_most_in_it(tmp_path):
    made = Recording()
    made.alloc(MIB)
    for number in range(4):
        address = made.alloc((40 + 20 * number) * MIB)
        made.free(address)
        made.release(made_segment(made, address))
        made.mark()
    (reserve,) = reserves(read(made, tmp_path))
    assert (reserve.first_bytes, reserve.peak_bytes) == (60 * MIB, 120 * MIB)


def made_segment(made: Recording, address: int) -> int:
    return max(at for at in made.segments if at <= address)


def test_samples_of_the_run_itself_come_first(tmp_path):
    sampled = timeline(memory=[
        {"rank": 0, "process": 1, "device": 0, "start_ns": BASE_NS, "end_ns": BASE_NS, "allocated_bytes": 5, "reserved_bytes": 7, "name": "cuda"},
    ])  # fmt: skip
    assert samples(merge([sampled, read(training(), tmp_path)]))["allocated_bytes"].tolist() == [5]


def test_running_totals_are_sampled_at_the_steps_of_their_trace():
    at = [BASE_NS + 10 * n for n in range(12)]
    totals = [
        {"rank": 0, "process": 1, "device": 0, "start_ns": t, "end_ns": t, "allocated_bytes": 100 + n, "reserved_bytes": 200 + n % 4, "name": "[memory]"}
        for n, t in enumerate(at)
    ]  # fmt: skip
    steps = [{"rank": 0, "name": f"ProfilerStep#{n}", "start_ns": t - 5, "end_ns": t} for n, t in enumerate(at[::4])]
    drawn = timeline(memory_totals=totals, ranges=steps)
    assert samples(drawn)["allocated_bytes"].tolist() == [103, 107]
    assert samples(drawn)["reserved_bytes"].tolist() == [203, 203]
    assert [peak.peak_bytes for peak in reserved_peaks(drawn)] == [203, 203]


def test_the_largest_reserve_of_a_snapshot_without_steps_is_known_too(tmp_path):
    made = Recording()
    made.free(made.alloc(90 * MIB))
    made.release(next(iter(made.segments)))
    made.alloc(MIB)
    (peak,) = reserved_peaks(read(made, tmp_path))
    assert (peak.peak_bytes, peak.capacity_bytes) == (90 * MIB, 0)

"""Does the page of memory agree with an allocator whose every event is known?"""

from __future__ import annotations

import random

import numpy as np
import pytest
from builders import BASE_NS, draw, frame
from folders import public
from msgspec.structs import replace
from report.samples import INPUT_BOUND
from snapshots import MIB, Recording

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.memory.peak import memory_uses
from perfdoctor.model.timeline import Device, Timeline
from perfdoctor.readers.open import read
from perfdoctor.readers.torch_memory import snapshot as memory_snapshot
from perfdoctor.records.views import Chart, Table
from perfdoctor.views.pages import memory

WORK = "work/train.py:1 step"


def page(timeline: Timeline):
    diagnosis = replace(INPUT_BOUND, memory=memory_uses(timeline))
    made = list(memory.view(prepare(timeline), diagnosis))
    assert all(isinstance(each, Chart | Table) for each in made)
    return {("table " if isinstance(each, Table) else "") + each.id: each for each in made}


def column(table, name):
    return list(next(each.values for each in table.columns if each.name == name))


def stacked(chart):
    """x, and the sum of all areas there."""
    areas = [each for each in chart.series if each.kind == "area"]
    assert all(np.array_equal(each.x, areas[0].x) for each in areas)
    return areas[0].x, np.sum([each.y for each in areas], axis=0)


def watched(changes: int, seed: int = 1):
    """A recording of random calls, and the memory in use after each event."""
    pick, made, seen = random.Random(seed), Recording(), {}
    made.alloc(40 * MIB, "work/model.py:1 build")
    made.begin()
    seen[-1] = made.active_bytes
    for _ in range(changes):
        if made.blocks and pick.random() < 0.45:
            made.free(pick.choice(sorted(made.blocks)))
        else:
            made.alloc(pick.randint(1, 8 * MIB), pick.choice([WORK, "work/data.py:3 batch"]))
        seen[len(made.events) - 1] = made.active_bytes
    seen[len(made.events)] = made.active_bytes
    return made, seen


@pytest.mark.parametrize("changes", [3, 40, 2_000])
def test_a_snapshot_s_areas_sum_to_what_was_in_use(tmp_path, changes):
    made, seen = watched(changes)
    chart = page(memory_snapshot.read(made.write(tmp_path / "run.pickle")))["memory-0-0"]
    x, total = stacked(chart)
    # A stack of steps: the second of two points at one place is the memory in use after it.
    behind = {int(at): held for at, held in zip(x.tolist(), total.tolist(), strict=True)}
    wrong = {at: (held, seen[at]) for at, held in behind.items() if held != seen[at]}
    assert not wrong
    assert max(behind.values()) == max(seen.values())
    assert min(behind.values()) == min(seen.values())
    assert len(x) <= 2 * 200
    assert chart.numbers["peak"] == (max(seen.values()), "bytes")
    reserved = next(each for each in chart.series if each.name == "reserved")
    assert reserved.kind == "steps"
    assert reserved.y[-1] == made.reserved_bytes


def test_what_was_in_use_when_memory_ran_out_has_a_width(tmp_path):
    made = Recording()
    made.alloc(40 * MIB, "work/model.py:1 build")
    made.begin()
    for _ in range(3):
        made.alloc(8 * MIB, WORK)
    x, total = stacked(page(memory_snapshot.read(made.write(tmp_path / "run.pickle")))["memory-0-0"])
    at_the_peak = x[total == total.max()]
    assert at_the_peak[-1] > at_the_peak[0]


def test_memory_allocated_before_the_recording_is_named(tmp_path):
    made, _ = watched(30)
    chart = page(memory_snapshot.read(made.write(tmp_path / "run.pickle")))["memory-0-0"]
    first = next(each for each in chart.series if each.name == "allocated before the recording")
    assert first.y[0] >= 40 * MIB


def test_steps_of_a_snapshot_that_keep_something_rise(tmp_path):
    made = Recording()
    made.alloc(50 * MIB, "work/model.py:1 build")
    made.begin()
    for _ in range(6):
        batch = made.alloc(30 * MIB, WORK)
        made.alloc(MIB, "work/leak.py:2 keep")
        made.free(batch)
        made.mark()
    chart = page(memory_snapshot.read(made.write(tmp_path / "run.pickle")))["memory-steps-cuda"]
    (line,) = chart.series
    assert [held // MIB for held in line.y.tolist()] == [51 + n for n in range(6)]
    assert chart.description.startswith("{name} rises by {change}")
    assert chart.numbers["change"][0] == pytest.approx(5 * MIB, rel=0.01)


def test_running_totals_are_lines_over_time_and_the_gpu_s_memory_a_limit():
    drawn = draw(kernels="####  ", launched_us_before=50, repeat=4)
    start = int(prepare(drawn).places[0].window.starts[0])
    held = [10, 30, 20, 50, 5]
    rows = [{"start_ns": BASE_NS + n * 100_000, "end_ns": BASE_NS + n * 100_000, "name": "[memory]", "device": 0,
             "allocated_bytes": each * MIB, "reserved_bytes": 60 * MIB} for n, each in enumerate(held)]  # fmt: skip
    given = replace(
        drawn,
        frames={**drawn.frames, "memory_totals": frame("memory_totals", rows)},
        devices=(Device(0, 0, "", memory_bytes=80 * MIB),),
    )
    chart = page(given)["memory-0-0"]
    use, reserved, limit = chart.series
    assert use.x.tolist() == [BASE_NS + n * 100_000 - start for n in range(5)]
    assert use.y.tolist() == [each * MIB for each in held]
    assert set(reserved.y.tolist()) == {60 * MIB}
    assert (limit.kind, set(limit.y.tolist())) == ("guide", {80 * MIB})
    assert {name: value for name, (value, _) in chart.numbers.items()} == {
        "peak": 50 * MIB, "reserved": 60 * MIB, "capacity": 80 * MIB
    }  # fmt: skip


def test_a_limit_far_above_is_mentioned_and_not_drawn():
    rows = [{"start_ns": n, "end_ns": n, "name": "[memory]", "device": 0, "allocated_bytes": MIB * n,
             "reserved_bytes": MIB * 4} for n in range(1, 4)]  # fmt: skip
    given = Timeline.build({"memory_totals": frame("memory_totals", rows)}, ["memory_totals"],
                          devices=(Device(0, 0, "", memory_bytes=1000 * MIB),))  # fmt: skip
    chart = page(given)["memory-0-0"]
    assert not any(each.kind == "guide" for each in chart.series)
    assert "the GPU has {capacity}" in chart.description


def test_of_many_devices_the_fullest_are_drawn_and_all_are_in_the_table():
    rows = [{"rank": rank, "start_ns": n, "end_ns": n, "name": "[memory]", "device": 0,
             "allocated_bytes": (rank * 7 % 10 + 1) * MIB * n, "reserved_bytes": 99 * MIB}
            for n in range(1, 4) for rank in range(10)]  # fmt: skip
    made = page(Timeline.build({"memory_totals": frame("memory_totals", rows)}, ["memory_totals"]))
    drawn = [name for name in made if name.startswith("memory-") and "steps" not in name]
    fullest = sorted(range(10), key=lambda rank: -(rank * 7 % 10))[: memory.MOST_DEVICES]
    assert drawn == [f"memory-{rank}-0" for rank in fullest]
    table = made["table memory-devices"]
    assert column(table, "peak in use") == [3 * MIB * n for n in range(10, 0, -1)]
    assert not any(each.name == "memory of the GPU" for each in table.columns)


def test_samples_at_the_ends_of_steps_are_a_line_each_process():
    rows = [{"rank": rank, "process": 7 + rank, "start_ns": n, "end_ns": n, "name": kind, "device": device,
             "allocated_bytes": (5 + n * rank) * MIB, "reserved_bytes": 50 * MIB}
            for n in range(1, 5) for rank in (0, 1) for kind, device in (("cuda", 0), ("heap", -1))]  # fmt: skip
    made = page(Timeline.build({"memory": frame("memory", rows)}, ["memory"]))
    assert {"memory-steps-cuda", "memory-steps-heap"} <= set(made)
    chart = made["memory-steps-heap"]
    assert {each.name: each.y.tolist() for each in chart.series} == {
        "rank 0": [5 * MIB] * 4, "rank 1": [(5 + n) * MIB for n in range(1, 5)]
    }  # fmt: skip
    assert chart.numbers["name"] == ("rank 1", "text")


def test_the_largest_allocations_at_the_peak_are_a_table(tmp_path):
    made, _ = watched(60)
    timeline = memory_snapshot.read(made.write(tmp_path / "run.pickle"))
    table = page(timeline)["table memory-holders"]
    (use,) = memory_uses(timeline)
    assert column(table, "allocated") == [holder.bytes for holder in use.holders]
    assert sum(column(table, "of the peak")) <= 1 + 1e-9


def test_without_memory_there_is_no_page():
    assert page(draw(kernels="####  ", launched_us_before=50, repeat=4)) == {}


@pytest.mark.recordings
def test_a_memory_timeline_s_areas_are_its_running_sums():
    path = public("memory/memory_timeline.raw.gz")
    chart = page(read([path]))["memory-0-0"]
    x, total = stacked(chart)
    timeline = read([path])["memory_changes"]
    behind: dict[int, int] = {}
    held = 0
    for at, change in zip(timeline.start_ns.tolist(), timeline["bytes"].tolist(), strict=True):
        held += change
        behind[at - int(timeline.start_ns[0])] = held
    shown = {int(at): total for at, total in zip(x.tolist(), total.tolist(), strict=True)}
    assert all(behind[at] == held for at, held in shown.items())
    assert max(shown.values()) == max(behind.values())

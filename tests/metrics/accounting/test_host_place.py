"""Where did the time go on a run without a GPU?"""

from __future__ import annotations

import pytest
from builders import draw, idle_units, only_place, timeline
from msgspec.structs import replace

from perfdoctor.metrics.accounting.host_place import launches_gpu_work
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.split import split, whole_recording
from perfdoctor.model.timeline import Device

UNIT_NS = 100_000


def test_the_training_threads_outermost_ops_are_the_work():
    place = only_place(draw(host=["oooo  oooo  ", " tt    tt   "], legend={"t": ("ops", "aten::mm")}, repeat=3))
    parts = split(place)
    assert (parts.device, parts.rank) == (None, 0)
    assert parts.window_ns == 36 * UNIT_NS
    assert parts.compute_ns == 24 * UNIT_NS
    assert idle_units(place) == {"host_work": 12}


def test_ops_inside_the_loaders_next_are_the_loaders():
    place = only_place(
        draw(
            host=["oooo iiiiiiioo",
                  "       ooo    "],
            repeat=4,
        )
    )  # fmt: skip
    assert idle_units(place) == {"input_wait": 4 * 7, "host_work": 4}
    assert split(place).compute_ns == 4 * 6 * UNIT_NS


def test_each_proven_cause_shows_on_the_host_as_well():
    place = only_place(draw(host=["oooo k gg xx oo", "               "], repeat=3))
    assert {cause: units / 3 for cause, units in idle_units(place).items()} == {
        "storage": 1,
        "garbage_collection": 2,
        "compilation": 2,
        "host_work": 4,
    }


def test_reading_files_between_ops_is_storage_and_the_profiler_owns_its_flushes():
    place = only_place(draw(host=["oooo RRR PP oo"], repeat=3))
    assert {cause: units / 3 for cause, units in idle_units(place).items()} == {
        "storage": 3,
        "profiler": 2,
        "host_work": 3,
    }


def test_collectives_of_the_host_are_communication():
    place = only_place(draw(host=["oooo====oo"], legend={"=": ("ops", "gloo:all_reduce")}, repeat=3))
    parts = split(place)
    assert parts.communication_ns == parts.exposed_communication_ns == 3 * 4 * UNIT_NS
    assert parts.compute_ns == 3 * 6 * UNIT_NS


def test_a_message_is_on_its_way_from_the_call_to_the_librarys_thread():
    """The thread asks, stands still until the library's begins, while it sends, and until it goes on."""
    rows = {"ops": [], "ranges": []}
    for step in range(4):
        at = 1_000_000 + 10 * step * UNIT_NS
        names = {"aten::mm": (0, 4), "c10d::allreduce_": (4, 5), "aten::div_": (9, 10)}
        rows["ops"] += [
            {"start_ns": at + begin * UNIT_NS, "end_ns": at + end * UNIT_NS, "name": name}
            for name, (begin, end) in names.items()
        ]
        rows["ranges"].append({"start_ns": at, "end_ns": at + 10 * UNIT_NS, "name": f"ProfilerStep#{step}"})
        sent = {"start_ns": at + 6 * UNIT_NS, "end_ns": at + 8 * UNIT_NS, "name": "gloo:all_reduce", "thread": 2}
        rows["ranges"].append(sent)
    place = only_place(timeline(**rows))
    assert place.handed_over.total_ns == 4 * 2 * UNIT_NS  # from 5 to 6, and from 8 to 9
    assert split(place).exposed_communication_ns == 4 * 5 * UNIT_NS  # from 4 to 9
    assert idle_units(place) == {}
    assert place.work.stream[place.work.rows["collectives"]].tolist() == [2] * 4
    assert len(place.work) == 8  # and the ends of four steps
    without = only_place(timeline(**{**rows, "ops": rows["ops"][:-2]}))  # a call was not recorded
    assert without.handed_over.total_ns == 0


def test_a_backward_pass_is_unknown_only_where_its_nodes_were_not_seen():
    backward = {"b": ("ranges", "backward"), "n": ("ops", "autograd::engine::evaluate_function: MulBackward0")}
    seen = only_place(draw(host=["oo bbbbbb", "   n  n  "], legend=backward, repeat=3))
    assert idle_units(seen) == {"host_work": 3 * 5}
    long = only_place(draw(host=["oo bbbbbbbbbbbbbb", "   n  n         n"], legend=backward, repeat=3))
    assert idle_units(long) == {"host_work": 3 * 12}  # of which 9 units in a row are less than a millisecond
    long = only_place(draw(host=["oo bbbbbbbbbbbbbbbb", "   n  n          n"], legend=backward, repeat=3))
    assert idle_units(long) == {"host_work": 3 * 4, "unknown": 3 * 10}
    unseen = only_place(draw(host=["oo bbbbbb", "         "], legend=backward, repeat=3))
    assert idle_units(unseen) == {"host_work": 3, "unknown": 3 * 6}


def test_without_ops_the_ranges_of_the_thread_are_the_work_and_the_rest_is_unknown():
    place = only_place(draw(host=["rrrr  "], repeat=4))
    assert split(place).compute_ns == 4 * 4 * UNIT_NS
    assert idle_units(place) == {"unknown": 4 * 2}


def test_ranges_beside_a_gpu_are_no_work_of_the_processor():
    drawn = draw(host=["rrrr  rrrr  "], repeat=3)
    assert split(only_place(drawn)).compute_ns > 0
    beside_gpu = prepare(replace(drawn, devices=(Device(0, 0, "NVIDIA TITAN RTX"),)))
    assert launches_gpu_work(beside_gpu)
    (place,) = beside_gpu.places
    assert split(place).compute_ns == 0


def test_other_threads_do_not_play_the_device():
    place = only_place(draw(host={1: "oooo      ", 2: " " * 4 + "o" * 6}, repeat=3))
    assert split(place).compute_ns == 3 * 4 * UNIT_NS


def test_without_steps_the_window_runs_over_all_ops():
    place = only_place(draw(host="oo  oo"))
    assert (place.window_ns, place.steps.used) == (6 * UNIT_NS, 0)
    assert whole_recording(place) is place


def test_a_rank_without_ops_and_steps_has_no_place():
    assert prepare(timeline(ranges=[{"start_ns": 0, "end_ns": 5, "name": "something"}])).places == ()


def test_where_a_gpu_was_recorded_no_thread_plays_one():
    run = prepare(draw(kernels="## ##", host="oooooo"))
    assert [place.device for place in run.places] == [0]


@pytest.mark.parametrize(("marked_later", "over"), [(30, 0), (0, 0), (80, 80)])
def test_a_collective_is_over_when_the_thread_that_waited_goes_on(marked_later, over):
    """It waits for 100 units in front of `aten::div_`; the library's thread gets a core late, and marks the end then.

    After 8 ms no thread is still without a core: then the training had not waited for it.
    """
    rows = {"ops": [], "ranges": []}
    for step in range(4):
        at = 1_000_000 + 300 * step * UNIT_NS
        for name, begin, end in (("aten::mm", 0, 20), ("c10d::allreduce_", 20, 21), ("aten::div_", 120, 290)):
            rows["ops"].append({"start_ns": at + begin * UNIT_NS, "end_ns": at + end * UNIT_NS, "name": name})
        rows["ranges"].append({"start_ns": at, "end_ns": at + 300 * UNIT_NS, "name": f"ProfilerStep#{step}"})
        done = at + (120 + marked_later) * UNIT_NS
        rows["ranges"].append({"start_ns": at + 21 * UNIT_NS, "end_ns": done, "name": "gloo:all_reduce", "thread": 2})
    place = only_place(timeline(**rows))
    took = (place.collectives.duration_ns // UNIT_NS).tolist()
    assert took == [99 + over] * 4

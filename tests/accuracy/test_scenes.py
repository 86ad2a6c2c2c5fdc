"""Is the right thing said of a start, a single step, a decode loop? A small part of what `benchmarks/accuracy.py` runs."""

from __future__ import annotations

import sys

import accuracy
import plant
import pytest
import scene_faults
from generate import MS, split, steady, whole
from scene_faults import SCENES, Judged, Take
from scenes import play
from tables import of_each, one_of_each


def about(name: str, *_: object) -> str:
    """Scenes of one module are about the same."""
    return SCENES[name].play.__module__


FAULTY = [name for name, scene in SCENES.items() if scene.right]


@pytest.mark.parametrize("name", one_of_each(about, FAULTY))
def test_a_scenes_fault_of_a_tenth_is_found_first_in_both_forms_and_nothing_else_is(name):
    share = max(0.1, SCENES[name].from_share)
    for seed in range(SCENES[name].kinds):
        for judged in scene_faults.judge(Take(name, share, seed=seed)):
            assert judged.is_found, judged
            assert not judged.false, judged
            assert not judged.wrong_first, judged


@pytest.mark.parametrize("name", one_of_each(about, SCENES))
def test_without_its_fault_nothing_is_found_in_a_scene(name):
    for judged in scene_faults.judge(Take(name, 0.0)):
        assert not judged.false, judged
        assert not judged.failed, judged


@of_each("name", FAULTY)
def test_a_scenes_fault_takes_the_share_that_was_asked_for(name):
    """The truth that rules are held against: the device computes for the rest of the time."""
    for seed in range(SCENES[name].kinds):
        rank = play(name, SCENES[name].sizes(0.4)[0], seed)
        if not rank.device_rows:  # the fault is that the device does nothing
            continue
        begin, end = steady(rank) if len(rank.steps) > 2 else whole(rank)
        if SCENES[name].computes:  # the rest is what takes as long without it
            size = SCENES[name].sizes(0.4)[0]
            assert size.rest_ns * (len(rank.steps) - 1) / (end - begin) == pytest.approx(0.6, abs=0.04)
            continue
        if name == "one-step-with-a-lead-in":  # before the device's first event
            begin = min(int(str(row["start"])) for row in rank.ranges)
        assert split(rank, begin, end)["compute"] / (end - begin) == pytest.approx(0.6, abs=0.04)


@of_each("name", FAULTY)
def test_a_fault_that_lasts_so_long_is_played_as_long(name):
    scene = SCENES[name]
    assert [size.ns for size in scene.sizes(0.05)] == (
        list(scene.lasts_ns) if scene.lasts_ns else [pytest.approx(scene.work_ns * 0.05 / 0.95)]
    )
    assert all(size.share == pytest.approx(0.05) for size in scene.sizes(0.05))
    assert [size.ns for size in scene.sizes(0)] == [0]


def judged(found: dict[str, float], *, share: float = 0.1, calls_only: bool = False, first: str = "") -> Judged:
    take = Take("first-launches", share, calls_only=calls_only)
    return Judged(take, "nsys", found, first or next(iter(found), ""))


def test_a_promise_where_the_fault_comes_once_is_a_false_finding():
    assert judged({"one-time-costs": 0.0}).false == {}
    assert judged({"one-time-costs": 0.1}).false == {"one-time-costs": 0.1}
    assert judged({"one-time-costs": 0.0, "host-work": 0.02}).false == {}
    assert judged({"one-time-costs": 0.0, "host-work": 0.03}).false == {"host-work": 0.03}


def test_what_a_scene_excludes_is_a_false_finding_however_small():
    assert judged({"one-time-costs": 0.0, "launch-bound": 0.0}).false == {"launch-bound": 0.0}


def test_a_missed_fault_a_false_finding_and_a_wrong_first_are_mistakes():
    found = list(scene_faults.mistakes([judged({"launch-bound": 0.1})]))
    assert [text.split(":")[0] for text in found] == [
        "missed one-time-costs",
        "false launch-bound (10.0%)",
        "first is launch-bound",
    ]
    assert scene_faults.recall([judged({"launch-bound": 0.1}), judged({"one-time-costs": 0.0})]) == 0.5
    assert scene_faults.precision([judged({"launch-bound": 0.1}), judged({"one-time-costs": 0.0})]) == 0.5


def test_a_small_fault_need_not_come_first():
    assert judged({"idle-unknown": 0.01, "one-time-costs": 0.0}, share=0.05).wrong_first == ""
    assert judged({"idle-unknown": 0.01, "one-time-costs": 0.0}, share=0.1).wrong_first == "idle-unknown"


def test_without_ops_and_ranges_what_nothing_shows_need_not_be_found():
    lead_in = Take("one-step-with-a-lead-in", 0.2, calls_only=True)
    assert lead_in.right == frozenset()
    rank = play(lead_in.name, lead_in.scene.sizes(0.2)[0], calls_only=True)
    assert not rank.ops
    assert not rank.ranges
    assert rank.calls


def test_texts_about_trainings_are_mistakes_in_an_inference():
    take = Take("decode-with-graphs", 0.4)
    result = Judged(take, "nsys", {"host-work": 0.4}, "host-work", said=("host-work says `training`",))
    assert list(scene_faults.mistakes([result])) == [f"host-work says `training`: {take.label}, nsys"]


def test_accuracy_names_scenes_below_what_is_promised():
    short = list(accuracy.short([], [judged({"launch-bound": 0.1}), judged({"one-time-costs": 0.0})]))
    assert short == ["first-launches: 50.0% found", "first-launches: precision 50.0%, 1 false findings"]


def test_a_scene_can_be_asked_for_alone(monkeypatch, capsys):
    monkeypatch.setattr(scene_faults, "judge_all", lambda takes: [judged({"one-time-costs": 0.0})] if takes else [])
    monkeypatch.setattr(sys, "argv", ["accuracy.py", "--rule", "first-launches"])
    assert accuracy.main() == 0
    said = capsys.readouterr().out
    assert "| first-launches |" in said
    assert "| rule |" not in said


def test_a_scenes_traces_can_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["plant.py", "--scene", "first-launches=0.1", "--size", "1", "-o", str(tmp_path)])
    plant.main()
    assert {path.name for path in tmp_path.rglob("*.*")} == {"profile.sqlite", "rank0.pt.trace.json"}


def test_a_launch_that_loads_lasts_as_long_as_was_asked_for():
    rank = play("first-launches", SCENES["first-launches"].sizes(0.1)[1])
    longest = max(int(str(row["end"])) - int(str(row["start"])) for row in rank.calls if "Launch" in str(row["name"]))
    assert longest == pytest.approx(10 * MS, rel=0.01)

"""Of the steps that were only timed those count that nobody recorded, once the program has warmed up."""

from __future__ import annotations

import json

import numpy as np
import pytest
from builders import draw_steps
from folders import FIXTURES
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.timed_steps import MOST, steady, timed_steps
from perfdoctor.readers.open import read
from perfdoctor.report import json_report
from perfdoctor.system.run_folder import Manifest, PassRecord, RunFolder, TimedSteps

TORCH = FIXTURES / "cpu-slow-input" / "torch"


def test_recorded_steps_and_those_before_them_are_left_out_where_enough_are_behind() -> None:
    lengths = [500, *[100] * 9, *[200] * 11, *[110] * 30]
    assert steady(lengths, (10, 21)).tolist() == [110] * 29
    assert set(steady(lengths[:31], (10, 21)).tolist()) == {100, 110}, "ten are not enough"
    assert steady(lengths[:21], (10, 21)).tolist() == [100] * 9


def test_the_first_steps_count_from_where_they_are_like_the_others() -> None:
    rng = np.random.default_rng(0)
    steps = rng.normal(100, 3, 400)
    assert steady(steps.astype(int).tolist()).size > 350
    steps[:30] += np.linspace(400, 50, 30)
    assert 340 <= steady(steps.astype(int).tolist()).size <= 372
    assert steady([900, 100, 100]).tolist() == [100, 100]
    assert steady([]).size == steady([7]).size == 0


def test_the_last_of_many_steps_are_kept_with_when_they_began() -> None:
    kept = TimedSteps(1_000, tuple(range(1, 11)), (3, 9)).last(4)
    assert kept == TimedSteps(1_000 + sum(range(1, 7)), (7, 8, 9, 10), (0, 3))
    assert TimedSteps(5, (1, 2)).last(MOST) == TimedSteps(5, (1, 2))


@pytest.mark.parametrize(("factor", "known"), [(1.0, True), (1.3, True), (2.0, False), (0.4, False)])
def test_steps_of_another_kind_than_the_analysed_ones_are_not_taken(factor: float, known: bool) -> None:
    timeline = draw_steps(kernels="####", host=["l"])
    step_ns = prepare(timeline).step_ns
    timed = TimedSteps(0, tuple([round(step_ns * factor)] * 8), (2, 6))
    run = prepare(replace(timeline, timed_steps={0: timed}))
    assert (timed_steps(run) is not None) == known


def test_the_steps_in_a_report_are_in_the_diagnosis(tmp_path) -> None:
    folder = RunFolder.create(tmp_path / "run", Manifest(perfdoctor="1", passes=[PassRecord("torch", state="done")]))
    (folder.path / "torch").symlink_to(TORCH)
    step_ns = prepare(read([folder.path])).step_ns
    timed = {"start_unix_ns": 9, "lengths_ns": [step_ns] * 30, "recorded": [3, 12], "clock": "host"}
    report = {"pass": "torch", "pid": 5, "rank": 0, "steps_seen": 31}

    def in_document(timed: object) -> object:
        (folder.path / "agents" / "torch-5.json").write_text(json.dumps({**report, "timed": timed}))
        return json.loads(json_report.render(diagnose(read([folder.path]), [])))["run"]["steps"]["timed"]

    assert in_document(timed) == timed
    for damage in (
        {},
        None,
        [],
        {"recorded": [4, 3]},
        {"recorded": [0, 99]},
        {"lengths_ns": [1, "x"]},
        {"recorded": [1]},
    ):
        assert in_document({**timed, **damage} if damage else damage) is None

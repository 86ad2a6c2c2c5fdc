"""Does a prediction say what it is: replayed or subtracted, asked for or not?"""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace
from report.samples import ASKED, INPUT_BOUND, LARGER, NOTHING

from perfdoctor.records.predictions import CriticalPath, PathPiece, PredictedStep, Scaling
from perfdoctor.records.savings import Range
from perfdoctor.report import html, json_report, markdown
from perfdoctor.report.words import outlook


def predicting(**changes):
    return replace(INPUT_BOUND, prediction=replace(INPUT_BOUND.prediction, **changes))


def test_a_replay_reads_differently_from_arithmetic():
    assert outlook.together(INPUT_BOUND) == (
        "Replayed with input-wait, host-syncs fixed, the step takes about 252 ms (240 ms to 351 ms) "
        "instead of 701 ms: 2.8× (2.0–2.9)."
    )
    assert outlook.together(predicting(replay_error=None)).startswith("With input-wait, host-syncs fixed, the step")


def test_a_range_of_one_number_is_that_number():
    assert outlook.together(ASKED) == (
        "Replayed with input-wait=50% fixed, the step takes about 486 ms instead of 701 ms: 1.4×."
    )


def test_each_stage_starts_from_the_step_of_the_one_before():
    first, *others = outlook.stages(INPUT_BOUND)
    assert (first.name, first.step_ns, outlook.change(first)) == ("as recorded", 701_000_000, "")
    assert [(stage.name, outlook.change(stage)) for stage in others] == [
        ("input-wait", "−431 ms"),
        ("host-syncs", "−18.0 ms"),
    ]
    assert others[1].before_ns == others[0].step_ns


def test_for_one_finding_that_was_not_asked_for_the_verdict_is_enough():
    one = predicting(fixed=("input-wait",), steps=INPUT_BOUND.prediction.steps[:1])
    assert (outlook.together(one), outlook.stages(one)) == ("", ())
    assert (outlook.together(NOTHING), outlook.stages(NOTHING)) == ("", ())
    assert [stage.name for stage in outlook.stages(one, also_one=True)] == ["as recorded", "input-wait"]
    assert (outlook.heading(one), outlook.stages(NOTHING, also_one=True)) == ("Step with this fix", ())


def test_a_heading_says_whether_the_prediction_was_asked_for():
    assert outlook.heading(ASKED) == "What if: fixed one after the other"
    assert outlook.heading(INPUT_BOUND) == "Fixed one after the other"


# Another size of the run


def sized(*steps, scaling=None, **changes):
    samples = steps[-1].samples
    changes = {"steps": steps, "scaling": scaling, "samples": samples, **changes}
    return replace(LARGER, prediction=replace(LARGER.prediction, **changes))


def test_a_step_with_more_samples_is_described_per_sample():
    assert outlook.heading(LARGER) == "What if: one after the other"
    assert outlook.together(LARGER) == (
        "Replayed with input-wait fixed, and batch=2x, ranks=64, the step of each rank takes about 500 ms "
        "(480 ms to 560 ms) instead of 701 ms: 22× (20–23) the samples a second. "
        "Scaling efficiency from 8 to 64 ranks: 90 % (82 % to 95 %)."
    )
    larger = sized(
        PredictedStep("batch", 1000_000_000, "2x", 2.0), step_ns=Range(*[10**9] * 3), speedup=Range(1.4, 1.4, 1.4)
    )
    assert outlook.together(larger) == (
        "Replayed with batch=2x, the step takes about 1.00 s instead of 701 ms: 1.4× the samples a second. "
        "The recorded number of samples takes 500 ms."
    )
    as_many = sized(
        PredictedStep("synthetic-data", 350_500_000), step_ns=Range(*[350_500_000] * 3), speedup=Range(2.0, 2.0, 2.0)
    )
    assert outlook.together(as_many) == (
        "Replayed with synthetic-data, the step takes about 350 ms instead of 701 ms: 2.0×."
    )


def test_fewer_ranks_give_the_scaling_efficiency_of_the_recorded_ones():
    one = PredictedStep("ranks", 600_000_000, "1", 1 / 8)
    assert "from 1 to 8 ranks: 86 %." in outlook.together(sized(one, scaling=Scaling(8, 1, Range(0.86, 0.86, 0.86))))
    of_unknown = outlook.together(sized(one, scaling=Scaling(None, 1, Range(0.86, 0.86, 0.86))))
    assert "from one rank to the recorded number of ranks: 86 %." in of_unknown
    assert "efficiency" not in outlook.together(sized(one, scaling=Scaling(1, 1, Range(1.0, 1.0, 1.0))))


def test_each_stage_shows_its_saving_or_its_change_in_samples_per_second():
    stages = outlook.stages(LARGER)
    assert [(stage.name, outlook.change(stage)) for stage in stages[1:]] == [
        ("input-wait", "−431 ms"),
        ("batch=2x", "1.2× the samples/s"),  # twice the samples in 450 instead of 270 ms
        ("ranks=64", "7.2× the samples/s"),
    ]
    longer = outlook.Stage("ranks=64", 12_000_000, 10_000_000)
    assert outlook.change(longer) == "+2.00 ms"
    assert outlook.longest_ns(stages) == 701_000_000
    assert outlook.longest_ns((*stages, outlook.Stage("batch=4x", 10**9, 701_000_000, 4.0))) == 10**9


@pytest.mark.parametrize("factor", [1, 3])
def test_no_bar_is_wider_than_its_track(factor):
    steps = tuple(replace(step, step_ns=factor * step.step_ns) for step in LARGER.prediction.steps)
    page = html.render(replace(LARGER, prediction=replace(LARGER.prediction, steps=steps)))
    rows = re.findall(r'class="track">(.*?)</span></span>', page)
    sums = [sum(int(flex) for flex in re.findall(r"flex:(-?\d+) ", row)) for row in rows]
    assert sums == [max(701_000_000, *(step.step_ns for step in steps))] * 4
    assert "flex:-" not in page


def test_every_report_has_the_samples_and_the_efficiency():
    page, text = html.render(LARGER).replace("\u00a0", " "), markdown.render(LARGER)
    for words in ("1.2× the samples/s", "Scaling efficiency from 8 to 64 ranks: 90 %", "batch=2x"):
        assert words in page
        assert words in text


PATH = CriticalPath(
    10e6,
    {"compute": 0.62, "host": 0.3, "latency": 0.075, "copies": 0.005},
    (PathPiece("compute", "<b>gemm</b>", 6.2e6, 12.0), PathPiece("host", "aten::mm\x1b[31m", 3e6, 0.0)),
)


def test_the_critical_path_names_the_largest_share_first_and_omits_those_below_1_percent():
    said = outlook.critical_path(replace(INPUT_BOUND, critical_path=PATH))
    assert said == "compute 62 %, host work 30 %, launch and wake-up latency 8 %"
    assert outlook.critical_path(replace(INPUT_BOUND, critical_path=None)) == ""


def test_every_report_has_the_path_and_no_foreign_markup():
    diagnosis = replace(INPUT_BOUND, critical_path=PATH)
    page, text = html.render(diagnosis), markdown.render(diagnosis)
    assert "&lt;b&gt;gemm&lt;/b&gt;" in page
    assert "<b>gemm" not in page
    assert "\x1b" not in page
    assert "Critical path: compute 62 %" in text
    assert json.loads(json_report.render(diagnosis))["critical_path"]["pieces"][1]["ns_per_step"] == 3e6
    assert json.loads(json_report.render(replace(diagnosis, critical_path=None)))["critical_path"] is None

"""Is a prediction told as what it is: played or subtracted, asked for or not?"""

from __future__ import annotations

import json
from dataclasses import replace

from report.samples import ASKED, INPUT_BOUND, NOTHING

from perfdoctor.findings import CriticalPath, PathPiece
from perfdoctor.report import html, json_report, markdown, outlook


def predicting(**changes):
    return replace(INPUT_BOUND, prediction=replace(INPUT_BOUND.prediction, **changes))


def test_what_was_played_is_told_apart_from_arithmetic():
    assert outlook.together(INPUT_BOUND) == (
        "Played again with input-wait, host-syncs fixed, the step takes about 252 ms (240 ms to 351 ms) "
        "instead of 701 ms: 2.8× (2.0–2.9)."
    )
    assert outlook.together(predicting(replay_error=None)).startswith("With input-wait, host-syncs fixed, the step")


def test_a_range_of_one_number_is_that_number():
    assert outlook.together(ASKED) == (
        "Played again with input-wait=50% fixed, the step takes about 486 ms instead of 701 ms: 1.4×."
    )


def test_each_stop_begins_where_the_one_before_ended():
    first, *others = outlook.way(INPUT_BOUND)
    assert (first.name, first.step_ns, outlook.won(first)) == ("as recorded", 701_000_000, "")
    assert [(stop.name, outlook.won(stop)) for stop in others] == [
        ("input-wait", "−431 ms"),
        ("host-syncs", "−18.0 ms"),
    ]
    assert others[1].before_ns == others[0].step_ns


def test_of_one_finding_nobody_asked_for_the_verdict_has_said_all():
    one = predicting(fixed=("input-wait",), steps=INPUT_BOUND.prediction.steps[:1])
    assert (outlook.together(one), outlook.way(one)) == ("", ())
    assert (outlook.together(NOTHING), outlook.way(NOTHING)) == ("", ())


def test_a_heading_says_whether_somebody_asked():
    assert outlook.heading(ASKED) == "What if: fixed one after the other"
    assert outlook.heading(INPUT_BOUND) == "Fixed one after the other"


PATH = CriticalPath(
    10e6,
    {"compute": 0.62, "host": 0.3, "latency": 0.075, "copies": 0.005},
    (PathPiece("compute", "<b>gemm</b>", 6.2e6, 12.0), PathPiece("host", "aten::mm\x1b[31m", 3e6, 0.0)),
)


def test_what_the_step_hangs_on_is_said_largest_first_and_without_crumbs():
    said = outlook.hangs_on(replace(INPUT_BOUND, critical_path=PATH))
    assert said == (
        "The length of the step hangs on: compute 62 %, the host's work 30 %, starting work and waking up 8 %."
    )
    assert outlook.hangs_on(replace(INPUT_BOUND, critical_path=None)) == ""


def test_every_report_has_the_path_and_no_foreign_markup():
    diagnosis = replace(INPUT_BOUND, critical_path=PATH)
    page, text = html.render(diagnosis), markdown.render(diagnosis)
    assert "&lt;b&gt;gemm&lt;/b&gt;" in page
    assert "<b>gemm" not in page
    assert "\x1b" not in page
    assert "hangs on: compute 62 %" in text
    assert json.loads(json_report.render(diagnosis))["critical_path"]["pieces"][1]["ns_per_step"] == 3e6
    assert json.loads(json_report.render(replace(diagnosis, critical_path=None)))["critical_path"] is None

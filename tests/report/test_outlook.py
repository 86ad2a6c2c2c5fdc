"""Is a prediction told as what it is: played or subtracted, asked for or not?"""

from __future__ import annotations

from dataclasses import replace

from report.samples import ASKED, INPUT_BOUND, NOTHING

from perfdoctor.report import outlook


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

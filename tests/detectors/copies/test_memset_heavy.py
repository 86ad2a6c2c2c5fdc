"""memset-heavy: memory is filled with zeros over and over."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000


def step(exposed: int, char: str = "m", *, of: int = 40, **more):
    """`exposed` ms of it in front of each step's compute."""
    return draw(
        **{
            "copies": char * exposed + " " * (of - exposed),
            "kernels": " " * exposed + "#" * (of - exposed),
            "launched_us_before": 50,
            "repeat": 6,
            "unit_us": 1000,
            **more,
        }
    )


def test_it_fires_where_nothing_runs_beside():
    finding = only_finding("memset-heavy", step(10), avoidable_share_likely=0.5)
    assert finding.values == {
        "memsets_per_step": 1.0,
        "megabytes": pytest.approx(250.0),  # 10 ms at 25 GB/s
        "exposed_ms": 10.0,
        "step_ms": 40.0,
        "exposed_percent": 25.0,
    }
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (0, 5 * MS, 10 * MS)
    assert "250.0 MB" in summary(finding)


def test_the_op_that_asked_for_it_is_named():
    picture = draw(
        copies="m" * 10 + " " * 30,
        kernels=" " * 10 + "#" * 30,
        host=["ll", "o"],
        legend={"o": ("ops", "aten::an_op")},
        repeat=6,
        unit_us=1000,
        host_ahead=0,
    )
    table = only_finding("memset-heavy", picture).evidence[1]
    assert table.rows[0][:3] == ("aten::an_op", 1.0, 10 * MS)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("memset-heavy", step(1, of=40)) == []
    assert len(findings("memset-heavy", step(1, of=33))) == 1


def test_it_stays_silent_where_a_kernel_runs_beside():
    assert findings("memset-heavy", step(10, kernels="#" * 40)) == []


def test_it_stays_silent_on_other_directions():
    assert findings("memset-heavy", step(10, "x")) == []


def test_it_hangs_under_exposed_copies():
    found = diagnose(step(10, launched_us_before=None), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "exposed-copies")
    assert "memset-heavy" in [each.rule for each in above.symptoms]
    assert above.saving_ns_per_step.high == 6 * 10 * MS  # without calls no steps are told apart: all six


def test_it_stays_silent_where_zero_grad_asks_for_them():
    """That is zero-grad-fills' finding."""
    marked = draw(
        copies=" " * 10 + "m" * 10 + " " * 20,
        kernels="#" * 10 + " " * 10 + "#" * 20,
        host=["lll", " z"],
        legend={"z": ("ranges", "Optimizer.zero_grad#SGD.zero_grad")},
        repeat=6,
        unit_us=1000,
    )
    assert findings("memset-heavy", marked) == []
    assert len(findings("zero-grad-fills", marked)) == 1

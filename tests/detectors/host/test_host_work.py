"""host-work: code in the loop keeps the host from launching work."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding


def test_the_innermost_of_the_users_own_lines_is_named():
    """A library's function inside the user's is not his line; the function around it is."""
    inner = draw(
        kernels="#" * 30 + " " * 10,
        host=["l" + " " * 39, "m" * 40, " " * 29 + "f" * 11, " " * 32 + "p" * 7],
        legend={
            "p": ("functions", "site-packages/pandas/core/frame.py(700): __init__"),
            "m": ("functions", "a.py(1): main"),
        },
        repeat=6,
        unit_us=1000,
    )
    finding = only_finding("host-work", inner)
    assert finding.values["name"] == "train.py(10): log_metrics"
    lines, everything = finding.evidence[2:]
    assert [row[0] for row in everything.rows][:1] == ["site-packages/pandas/core/frame.py(700): __init__"]
    assert [row[0] for row in lines.rows] == ["train.py(10): log_metrics"]


def test_where_nothing_names_it_none_is_named():
    drawn = draw(kernels="#" * 30 + " " * 10, host=["l" + " " * 39, "o"], repeat=6, unit_us=1000)
    finding = only_finding("host-work", drawn)
    assert (finding.situation, finding.confidence) == ("", "medium")
    assert finding.values["name"] == ""


def test_it_stays_silent_where_python_only_asks_for_the_next_op_without_a_gpu():
    drawn = draw(host=["o" * 6 + " " * 4], repeat=60, unit_us=100)  # 400 µs between two ops
    assert findings("host-work", drawn) == []


def test_it_stays_silent_where_the_scheduler_took_the_thread_away_without_a_gpu():
    drawn = draw(host=["o" * 30 + " " * 5], repeat=8, unit_us=1000)
    assert findings("host-work", drawn) == []


def test_without_a_gpu_a_long_pause_between_ops_is_such_work():
    drawn = draw(host=["o" * 30 + " " * 10, " " * 30 + "f" * 10], repeat=6, unit_us=1000)
    assert only_finding("host-work", drawn).values["work_ms"] == pytest.approx(10.0)


def test_it_stays_silent_where_another_thread_computes_meanwhile_without_a_gpu():
    """The training's thread waits for the one that runs the backward pass."""
    drawn = draw(host={1: ["o" * 30 + " " * 10, " " * 30 + "r" * 10], 2: " " * 30 + "o" * 10}, repeat=6, unit_us=1000)
    assert findings("host-work", drawn) == []


def test_an_op_on_another_thread_is_named_rather_than_the_range_that_waits_for_it():
    drawn = draw(
        kernels="#" * 30 + " " * 9 + "+",
        host={1: ["l" + " " * 39, " " * 29 + "r" * 11], 2: [" " * 38 + "l ", " " * 30 + "v" * 10]},
        legend={"v": ("ops", "MulBackward0")},
        repeat=6,
        unit_us=1000,
    )
    finding = only_finding("host-work", drawn)
    assert finding.evidence[2].rows[0][0] == "MulBackward0"


@pytest.mark.parametrize(("name", "found"), [("## backward ##", 0), ("backward", 0), ("update metrics", 1)])
def test_a_backward_pass_whose_thread_was_not_recorded_is_no_such_work(name, found):
    legend = {"z": ("ranges", name)}
    drawn = draw(host=["o" * 30 + " " * 10, " " * 30 + "z" * 10], repeat=6, unit_us=1000, legend=legend)
    assert len(findings("host-work", drawn)) == found

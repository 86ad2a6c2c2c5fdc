"""host-work: code in the loop keeps the host from launching work."""

from __future__ import annotations

import pytest
from builders import GEMM, draw, findings, only_finding, summary
from tables import of_each

from perfdoctor.metrics.accounting.prepare import prepare


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


def test_the_library_function_that_the_users_line_is_in_most_of_the_time_is_named_beside_it():
    def summary_of(inside: str) -> str:
        drawn = draw(
            kernels="#" * 10 + " " * 30,
            host=["l" + " " * 39, " " * 9 + "f" * 31, " " * 10 + inside.ljust(30)],
            legend={
                "p": ("functions", "transformers/image.py(235): preprocess"),
                "q": ("functions", "PIL/Image.py(7): resize"),
                "u": ("functions", "train.py(30): shrink"),
            },
            repeat=6,
            unit_us=1000,
        )
        return summary(only_finding("host-work", drawn))

    assert summary_of("p" * 20).endswith(
        "`train.py(10): log_metrics` (20.0 ms in `transformers/image.py(235): preprocess`): inputs are prepared, or results decoded."
    )
    assert summary_of("p" * 8 + "q" * 8).endswith("`train.py(10): log_metrics`."), "each holds less than half"
    assert summary_of("u" * 20).endswith("`train.py(30): shrink`.")


def test_where_nothing_names_it_none_is_named():
    drawn = draw(kernels="#" * 30 + " " * 10, host=["l" + " " * 39, "o"], repeat=6, unit_us=1000)
    finding = only_finding("host-work", drawn)
    assert (finding.situation, finding.confidence) == ("", "medium")
    assert finding.values["name"] == ""


def test_unnamed_code_that_came_once_is_promised_nothing():
    drawn = draw(kernels="#" * 30 + " " * 10 + "#" * 30, host=["l" + " " * 38 + "l", "o"], unit_us=1000)
    saving = only_finding("host-work", drawn).saving_ns_per_step
    assert saving.low == saving.likely == 0 < saving.high


def between_ops(*stretches_us: int, steps: int = 8, op_us: int = 100):
    """Steps of ops with Python between them, without a GPU, in units of 1 µs."""
    host = "".join("o" * op_us + " " * us for us in stretches_us)
    return draw(host=[host], repeat=steps, unit_us=1)


def test_it_stays_silent_where_python_only_asks_for_the_next_op_without_a_gpu():
    assert findings("host-work", between_ops(*[19] * 40, op_us=20)) == []  # a half of the step


def test_many_short_stretches_of_python_between_ops_count_together_without_a_gpu():
    finding = only_finding("host-work", between_ops(*[60] * 40))
    assert finding.situation == "short"
    assert finding.values["work_ms"] == pytest.approx(40 * 0.06, rel=0.01)
    assert (finding.values["times"], finding.values["mean_us"]) == (pytest.approx(40, rel=0.01), pytest.approx(60))
    likely = finding.saving_ns_per_step.likely
    assert likely == pytest.approx(40 * (60_000 - 20_000), rel=0.01), "calling the next op stays"


def test_it_stays_silent_where_such_stretches_are_a_small_part_of_a_step_without_a_gpu():
    assert findings("host-work", between_ops(*[60] * 4, op_us=600)) == []  # 9 %
    assert findings("host-work", between_ops(*[60] * 4, op_us=500))  # 11 %


def test_a_stretch_that_is_there_in_each_step_is_code_of_its_own_without_a_gpu_and_can_go():
    finding = only_finding("host-work", between_ops(2000, 10, op_us=9000))
    assert finding.values["work_ms"] == pytest.approx(2.0)
    assert finding.saving_ns_per_step.likely == pytest.approx(0.98 * 2_000_000)
    (starts, ends) = finding.thread_time[0]
    assert (ends - starts == 2_000_000).all()


def test_it_stays_silent_where_the_scheduler_took_the_thread_away_without_a_gpu():
    """Pauses of 5 ms come at another place in each step."""
    steps = ["ooouuu" * place + " " * 5 + "ooouuu" * (6 - place) for place in (3, 1, 5, 2, 4, 1, 5, 3)]
    marks = {str(number): ("ranges", f"ProfilerStep#{number}") for number in range(len(steps))}
    drawn = draw(host=["".join(steps), "".join(mark * 41 for mark in marks)], unit_us=1000, legend=marks)
    assert prepare(drawn).per_step
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


@of_each(
    ("function", "situation"),
    [
        (
            "/tmp/torchinductor_me/ov/cov463qhi2m2kw6ldmzzijfv5t3cjjklfci3qly3nsw6upcskct3.py(2533): call",
            "compiled-call",
        ),
        ("train.py(30): init_model", "model-construction"),
        ("train.py(30): load_state_dict", "model-construction"),
        ("train.py(30): tokenize_all", "preprocessing"),
        ("train.py(30): process_group", "named"),
        ("model.py(30): forward", "named"),
    ],
)
def test_what_the_function_is_decides_its_fix(function, situation):
    drawn = draw(
        kernels="#" * 30 + " " * 10,
        host=["l" + " " * 39, " " * 29 + "u" * 11],
        legend={"u": ("functions", function)},
        repeat=6,
        unit_us=1000,
    )
    finding = only_finding("host-work", drawn)
    assert (finding.situation, finding.values["name"]) == (situation, function)


def test_where_nothing_is_named_the_next_launch_is():
    drawn = draw(
        kernels="#" * 30 + " " * 5 + "G" * 5, host=["l" + " " * 34 + "l" + " " * 4, "o"], repeat=6, unit_us=1000
    )
    finding = only_finding("host-work", drawn)
    assert finding.situation == ""
    assert summary(finding).endswith(f"at a time; most of it before `{GEMM}`.")
    following = next(each for each in finding.evidence if each.label == "The next launch is of")
    assert [row[0] for row in following.rows] == [GEMM]


def test_of_a_kernel_with_all_its_types_the_sentence_has_the_function():
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char *, 1>>(int)"
    drawn = draw(
        kernels="#" * 30 + " " * 5 + "G" * 5, host=["l" + " " * 34 + "l" + " " * 4, "o"], repeat=6, unit_us=1000,
        kernel_names={"G": name},
    )  # fmt: skip
    assert summary(only_finding("host-work", drawn)).endswith("most of it before `vectorized_elementwise_kernel`.")

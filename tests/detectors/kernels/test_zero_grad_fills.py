"""zero-grad-fills: gradients are filled with zeros at every step."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary
from exposed_copy_cases import zero_grad_memsets

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"


def step(fills: int, *, of: int = 100, mark: str = "z", unit_us: float = 100, **more):
    """Compute of one kernel, then `fills` kernels of one unit each, launched while `mark` runs."""
    before = of - fills
    chain = "".join("fg"[n % 2] for n in range(fills))
    picture = {
        "kernels": "#" * before + chain,
        "host": ["l" + " " * (before - fills - 2) + "l" * fills, " " * (before - fills - 1) + mark * fills],
        "kernel_names": {"f": FILL, "g": FILL},
        "legend": {"z": ("ranges", "Optimizer.zero_grad#SGD.zero_grad")},
        "repeat": 6,
        "unit_us": unit_us,
    }
    return draw(**{**picture, **more})


def test_it_fires_where_kernels_fill_the_gradients():
    finding = only_finding("zero-grad-fills", step(10), avoidable_share_low=0.8, avoidable_share_likely=1.0)
    # 10 kernels of 0.1 ms in a step of 10 ms
    assert finding.values == {
        "fills_per_step": 10.0,
        "filling_ms": 1.0,
        "adding_ms": 0.0,
        "step_ms": 10.0,
        "filling_percent": 10.0,
    }
    assert finding.saving_ns_per_step == Saving(0.8 * MS, MS, MS)
    assert "zero_grad launches 10 kernels and memsets a step" in summary(finding)


def test_memsets_are_symptoms_of_exposed_copies_and_kernels_are_not():
    assert only_finding("zero-grad-fills", zero_grad_memsets()).symptom_of == ("exposed-copies",)
    assert only_finding("zero-grad-fills", step(10)).symptom_of == ()
    found = diagnose(zero_grad_memsets(), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "exposed-copies")
    assert [each.rule for each in above.symptoms] == ["zero-grad-fills"]


def test_it_stays_silent_just_below_the_threshold():
    assert findings("zero-grad-fills", step(2)) == []  # 2 %
    assert len(findings("zero-grad-fills", step(3))) == 1
    assert findings("zero-grad-fills", step(10, unit_us=9.9)) == []  # shorter than 10 µs: small-kernels'
    assert len(findings("zero-grad-fills", step(10, unit_us=10))) == 1


def test_it_stays_silent_where_fills_are_not_zero_grads():
    assert findings("zero-grad-fills", step(10, mark="r")) == []


def test_it_stays_silent_where_gradients_are_let_go():
    """The range is there, and launches nothing."""
    empty = {"host": ["l" + "l" * 10, " " * 20 + "z" * 10]}
    assert findings("zero-grad-fills", step(10, **empty)) == []


def with_additions(adds: int, *, op: str = "a", node: str = "N"):
    """Ten fills of 0.1 ms; before them, in nodes of the backward pass, `adds` kernels as long."""
    added = "".join("ab"[n % 2] for n in range(adds))
    before = 90 - adds
    return step(
        10,
        kernels="#" * before + added + "fgfgfgfgfg",
        host={
            1: ["l" + " " * 70 + "l" * 10, " " * 70 + "z" * 12],
            2: [" " * 10 + "l" * adds, " " * 10 + op * adds, " " * 10 + node * adds],
        },
        kernel_names={"f": FILL, "g": FILL, "a": "void add_one(int)", "b": "void add_other(int)"},
        legend={
            "z": ("ranges", "Optimizer.zero_grad#SGD.zero_grad"),
            "a": ("ops", "aten::add_"),
            "y": ("ops", "aten::copy_"),
            "N": ("ops", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"),
            "M": ("ops", "autograd::engine::evaluate_function: AddBackward0"),
        },
    )


def test_adding_to_the_zeros_is_a_part_of_their_price():
    finding = only_finding("zero-grad-fills", with_additions(20), avoidable_share_likely=1.0)
    assert (finding.values["filling_ms"], finding.values["adding_ms"]) == (pytest.approx(3.0), pytest.approx(2.0))
    assert finding.saving_ns_per_step.likely == pytest.approx(3 * MS)


def test_one_addition_for_each_fill_counts_and_micro_batches_would_add_anyway():
    """By hand: a fill makes one pass and an addition three, so 1 ms of fills stand for 3 ms of the 5."""
    finding = only_finding("zero-grad-fills", with_additions(50), passes_of_an_addition=3)
    assert finding.values["adding_ms"] == pytest.approx(3.0)


@pytest.mark.parametrize("other", [{"op": "y"}, {"node": "M"}])
def test_copies_into_buckets_and_additions_of_the_model_do_not_count(other):
    assert only_finding("zero-grad-fills", with_additions(20, **other)).values["adding_ms"] == 0


def test_adding_up_micro_batches_without_fills_is_nobodys_fault():
    drawn = with_additions(50)
    others = ~drawn.ranges.name.equals("Optimizer.zero_grad#SGD.zero_grad")
    frames = {**drawn.frames, "ranges": drawn.ranges.take(others)}
    assert findings("zero-grad-fills", type(drawn).build(frames, drawn.recorded)) == []

"""gradient-clipping: gradients are clipped one tensor at a time."""

from __future__ import annotations

from builders import findings, only_finding
from tensor_loop_cases import NORM, steps


def test_scaling_behind_the_norms_belongs_to_it():
    """Norms of all gradients, their sum and the factor, then one scaling each: twice the ops."""
    factor = ["aten::stack", "aten::linalg_vector_norm", "aten::add", "aten::reciprocal", "aten::mul", "aten::clamp"]
    body = [*[NORM] * 40, *["aten::to"] * 40, *factor, "aten::to", *["aten::mul_"] * 40]
    assert only_finding("gradient-clipping", steps(1, body)).values["ops_per_step"] == 80.0
    assert findings("parameter-loops", steps(1, body)) == []


def test_a_scaling_without_norms_is_a_loop_over_parameters():
    assert findings("gradient-clipping", steps(40, ("aten::mul_",))) == []
    assert len(findings("parameter-loops", steps(40, ("aten::mul_",)))) == 1

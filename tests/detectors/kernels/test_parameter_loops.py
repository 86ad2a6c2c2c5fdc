"""parameter-loops: Python updates tensors one by one outside the optimizer."""

from __future__ import annotations

import pytest
from builders import findings, only_finding
from tensor_loop_cases import LERP, steps


def test_it_fires_on_loops_of_several_ops():
    finding = only_finding("parameter-loops", steps(40, ("aten::mul_", "aten::add_")))
    assert (finding.values["tensors"], finding.values["body"]) == (40, "aten::mul_ aten::add_")


def test_it_fires_on_values_computed_and_copied_into_the_tensor():
    """As averages are written that keep a module's copy: `ema.copy_(decay * ema + (1 - decay) * value)`."""
    body = ("aten::mul", "aten::mul", "aten::add", "aten::copy_")
    finding = only_finding("parameter-loops", steps(40, body))
    assert (finding.values["tensors"], finding.values["body"]) == (40, "aten::mul aten::add aten::copy_")
    # 160 ops of 20 µs behind 400 µs, 10 µs idle between two of their kernels
    assert finding.values["idle_ms"] == pytest.approx(1.59)


@pytest.mark.parametrize("body", [("aten::mul", "aten::add"), ("aten::to", "aten::copy_")])
def test_it_stays_silent_on_arithmetic_alone_and_on_copies_alone(body):
    assert findings("parameter-loops", steps(40, body)) == []


def test_it_stays_silent_on_the_layers_of_a_model():
    """Forty of them, each of which adds in place."""
    assert findings("parameter-loops", steps(40, ("aten::layer_norm", "aten::linear", "aten::add_"))) == []


def test_it_stays_silent_inside_the_optimizer():
    """That is unfused-optimizer's finding."""
    assert findings("parameter-loops", steps(40, (LERP,), mark="Optimizer.step#SGD.step")) == []

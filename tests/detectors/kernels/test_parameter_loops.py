"""parameter-loops: Python updates tensors one by one outside the optimizer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from builders import BASE_NS, findings, only_finding, summary, timeline

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Timeline
from perfdoctor.vocabulary.rulebook import load_rules

US = 1_000
OP = "aten::lerp_"


def steps(
    turns: int, body: Sequence[str] = (OP,), *, forward_us: int = 400, between_us: float = 10, mark: str = ""
) -> Timeline:
    """Four steps: a kernel of `forward_us`, then `turns` times the ops of `body`, each op with a kernel.

    An op every 20 µs; its kernel runs for 20 µs less `between_us`, in which the device is idle.
    """
    rows: dict[str, list[dict[str, object]]] = {name: [] for name in ("kernels", "calls", "ops", "ranges")}
    names = list(body) * turns
    length = (forward_us + 20 * len(names)) * US
    correlation = 0

    def launch(at: int, duration: float, name: str) -> None:
        nonlocal correlation
        correlation += 1
        rows["ops"].append({"start_ns": at, "end_ns": at + 9 * US, "name": name})
        rows["calls"].append(
            {"start_ns": at + 2 * US, "end_ns": at + 5 * US, "name": "cudaLaunchKernel", "correlation": correlation}
        )
        kernel = {"name": "k", "correlation": correlation, "process": 100}
        rows["kernels"].append({"start_ns": at + 7 * US, "end_ns": at + 7 * US + round(duration * US), **kernel})

    for step in range(4):
        at = BASE_NS + step * length
        rows["ranges"].append({"start_ns": at, "end_ns": at + length, "name": f"ProfilerStep#{step}"})
        launch(at, forward_us, "aten::mm")
        first = at + forward_us * US
        for number, name in enumerate(names):
            launch(first + number * 20 * US, 20 - between_us, name)
        if mark:
            rows["ranges"].append({"start_ns": first - US, "end_ns": at + length - US, "name": mark})
    return timeline(**rows, collectives=[], copies=[])


def test_it_fires_where_the_device_waits_for_the_loop():
    finding = only_finding("parameter-loops", steps(40), recoverable_share_low=0.5, recoverable_share_likely=0.8)
    # 40 ops of 20 µs behind 400 µs: between two of their kernels the device is idle for 10 µs, 39 times
    assert finding.values == {
        "tensors": 40,
        "body": "aten::lerp_",
        "idle_ms": pytest.approx(0.39),
        "step_ms": pytest.approx(1.2),
        "idle_percent": pytest.approx(32.5),
    }
    saving = finding.saving_ns_per_step
    assert saving.low == pytest.approx(195 * US)
    assert saving.likely == pytest.approx(312 * US)
    assert saving.high == pytest.approx(390 * US)
    assert "A loop over 40 tensors (aten::lerp_)" in summary(finding)


def test_it_claims_no_more_than_launch_bound_has():
    run = prepare(steps(40))
    whole = run.mean(lambda place: place.idle_ns("launch_bound"))
    assert only_finding("parameter-loops", run).saving_ns_per_step.high <= whole


def test_it_stays_silent_just_below_either_threshold():
    assert findings("parameter-loops", steps(19)) == []
    assert len(findings("parameter-loops", steps(20))) == 1
    assert findings("parameter-loops", steps(40, between_us=0.8)) == []  # 2.7 % of the step
    assert len(findings("parameter-loops", steps(40, between_us=1.0))) == 1  # 3.3 %


def test_it_stays_silent_where_the_device_has_enough_to_do():
    assert findings("parameter-loops", steps(40, between_us=0)) == []


@pytest.mark.parametrize("name", ["aten::mm", "aten::copy_", "aten::_foreach_mul_", "aten::linalg_vector_norm"])
def test_it_stays_silent_on_other_loops(name):
    assert findings("parameter-loops", steps(40, (name,))) == []


def test_it_hangs_under_launch_bound():
    found = diagnose(steps(40), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "launch-bound")
    assert "parameter-loops" in [each.rule for each in above.symptoms]


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
    assert findings("parameter-loops", steps(40, mark="Optimizer.step#SGD.step")) == []

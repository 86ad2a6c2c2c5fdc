"""small-batch: calling ops takes longer than computing them, and no loop calls them."""

from __future__ import annotations

import random

import pytest
from builders import draw, findings, only_finding, summary
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.timeline import Text
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules

NAMES = {"x": ("ops", "aten::mm"), "e": ("ops", "aten::add_"), "n": ("ops", "aten::t"), "y": ("ops", "aten::mul")}


def step(short: int = 200, *, long: int = 0, idle: int = 0, unit_us: float = 5, **more):
    """Steps with so many ops of one unit in no order, one apart; then one long op, and Python that takes long."""
    order = "".join(random.Random(3).choices("xeny", k=short))
    host = " ".join(order) + " " + "o" * long + " " * idle
    return draw(**{"host": host, "legend": NAMES, "repeat": 6, "unit_us": unit_us, **more})


def test_a_step_of_ops_that_compute_next_to_nothing_is_found():
    finding = only_finding("small-batch", step(200, long=100))
    # 200 ops of 5 µs and 200 pauses of 5 µs, in a step of 2.5 ms
    assert finding.values["short_ms"] == pytest.approx(2.0, rel=0.01)
    assert finding.values["ops_per_step"] == 200
    assert finding.saving_ns_per_step == Saving(0, 0, finding.saving_ns_per_step.high)
    assert finding.saving_ns_per_step.high == pytest.approx(2_000_000, rel=0.01)
    assert "An item" not in summary(finding)
    assert finding.confidence == "low"


def test_it_stays_silent_where_long_ops_take_most_of_the_time_of_ops():
    assert len(findings("small-batch", step(200, long=190))) == 1
    assert findings("small-batch", step(200, long=210)) == []


def test_it_stays_silent_where_the_step_is_mostly_python_of_the_program():
    assert len(findings("small-batch", step(200, idle=550))) == 1
    assert findings("small-batch", step(200, idle=900)) == []


def test_it_stays_silent_where_ops_are_longer_than_their_dispatch():
    assert findings("small-batch", step(200, unit_us=10)) == []


def test_it_stays_silent_where_a_loop_calls_the_ops():
    """Those can become one call: small-kernels'."""
    assert findings("small-batch", draw(host="e n " * 400, legend=NAMES, repeat=6, unit_us=5)) == []


def test_with_thousands_of_them_it_belongs_to_small_kernels():
    rules = tuple(load_rules().values())
    (advice,) = (each for each in diagnose(step(3_000), rules).findings if each.rule == "small-kernels")
    assert "small-batch" in [symptom.rule for symptom in advice.symptoms]


def test_it_stays_silent_on_a_gpu():
    assert findings("small-batch", draw(kernels="#" * 40, host=["l" + "o " * 20], repeat=6, unit_us=5)) == []


def test_items_and_their_time_are_those_of_the_losses():
    loss = {**NAMES, "L": ("ops", "aten::nll_loss_forward")}
    drawn = draw(host=" ".join(random.Random(3).choices("xeny", k=200)) + " L ", legend=loss, repeat=6, unit_us=5)
    shapes = Text.of(["[[32, 10], [32], [], []]"] * len(drawn.ops))
    with_shapes = replace(drawn, frames={**drawn.frames, "ops": drawn.ops.with_columns(input_shapes=shapes)})
    finding = only_finding("small-batch", with_shapes)
    assert (finding.values["items"], finding.confidence) == (32, "medium")
    assert finding.values["item_us"] == pytest.approx(402 * 5 / 32, rel=0.01)
    assert "An item takes 62.8 µs, with 32 a step." in summary(finding)

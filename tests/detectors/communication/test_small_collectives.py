"""small-collectives: many small messages wait for their latency."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding
from collective_builders import MIB, described, under

US = 1000


def step(messages: int = 12, *, compute: str = "###", message: str = "="):
    """Compute and a message by turns; a character is 19 µs."""
    return draw(
        kernels=(compute + " " * len(message)) * messages,
        nccl=(" " * len(compute) + message) * messages,
        launched_us_before=5,
        repeat=6,
        unit_us=19,
    )


def test_it_fires_where_many_short_messages_are_waited_for():
    finding = only_finding("small-collectives", step())
    # 12 messages of 19 µs in a step of 12 * 4 * 19 = 912 µs
    assert finding.values["messages_per_step"] == 12
    assert finding.values["usual_us"] == 19
    assert finding.values["exposed_ms"] == pytest.approx(0.228)
    assert finding.values["exposed_percent"] == pytest.approx(25)
    # merged, one of twelve remains
    assert finding.saving_ns_per_step.likely == 209 * US
    # messages may depend on each other
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.high) == (0, 228 * US)
    assert finding.confidence == "medium"


def test_bytes_make_it_sure():
    assert only_finding("small-collectives", described(step(), bytes=4)).confidence == "high"


def test_of_a_long_wait_only_the_usual_time_is_counted():
    """One of twelve messages takes ten times as long: it waits for a rank, and merging does not fix that."""
    waits = draw(
        kernels="###" + " " * 10 + "### " * 11,
        nccl="   " + "=" * 10 + "   =" * 11,
        launched_us_before=5,
        repeat=6,
        unit_us=19,
    )
    finding = only_finding("small-collectives", described(waits, bytes=4))
    assert finding.values["exposed_ms"] == pytest.approx(0.228)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("small-collectives", step(9)) == []
    assert len(findings("small-collectives", step(10))) == 1
    below = (128 << 10) - 1
    assert len(findings("small-collectives", described(step(), bytes=below))) == 1
    assert findings("small-collectives", described(step(), bytes=below + 1)) == []


def test_it_stays_silent_where_short_messages_are_large():
    assert findings("small-collectives", described(step(), bytes=MIB)) == []


def test_it_stays_silent_where_compute_hides_them():
    hidden = draw(kernels="#" * 48, nccl="   =" * 12, launched_us_before=5, repeat=6, unit_us=19)
    assert findings("small-collectives", hidden) == []


def test_point_to_point_messages_cannot_be_merged():
    assert findings("small-collectives", step(message="s")) == []


def test_it_is_a_symptom_of_exposed_communication():
    assert "small-collectives" in under(step(), "exposed-communication")

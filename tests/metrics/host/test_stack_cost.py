"""Recording Python stacks slows the host: by how much is known from the number of frames."""

from __future__ import annotations

import pytest
from builders import draw

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host.stack_cost import FRAME_NS, stack_cost
from perfdoctor.vocabulary.rulebook import load_rules


def drawn(frames: str, unit_us: float = 1):
    """Steps of 2,000 units, of which the device is idle for 1,600 while the host runs the user's code."""
    host = ["l" + " " * 1999, "f" * 2000, " " * 400 + frames]
    legend = {"a": ("functions", "<built-in function len>"), "b": ("functions", "torch/x.py(1): y")}
    return draw(kernels="#" * 400 + " " * 1600, host=host, legend=legend, repeat=6, unit_us=unit_us)


def test_each_frame_costs_the_same():
    count, share = stack_cost(prepare(drawn("ab" * 600)))
    assert count == pytest.approx(1201 * 5, abs=2)
    assert share == pytest.approx(count * FRAME_NS / (5 * 2_000_000))


def test_without_stacks_nothing_is_lost():
    assert stack_cost(prepare(draw(kernels="#", host=["l"], repeat=6))) == (0, 0.0)


def test_many_frames_are_noted_and_doubted():
    rules = [load_rules()["host-work"]]
    many, few = diagnose(drawn("ab" * 600), rules), diagnose(drawn("ab" * 600, unit_us=10), rules)
    assert any("Python frames were recorded" in note for note in many.notes)
    assert not any("Python frames were recorded" in note for note in few.notes)
    assert [each.findings[0].confidence for each in (many, few)] == ["medium", "high"]
    assert many.findings[0].confidence_because.endswith("the profiler recorded Python stacks, which slows the host.")

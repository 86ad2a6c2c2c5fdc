"""peer-copies: GPUs copy from one another with no kernel beside."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary
from exposed_copy_cases import assert_a_quarter_is_exposed, exposed_step
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.timeline import Frame, Text, Timeline
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000


def step(exposed: int, direction: str = "p2p", *, of: int = 40, **more) -> Timeline:
    drawn = exposed_step(exposed, "x", of=of, **more)
    copies = drawn.copies.with_columns(direction=Text.constant(direction, len(drawn.copies)))
    return replace(drawn, frames={**drawn.frames, "copies": copies})


def test_it_fires_where_activations_travel_alone():
    finding = only_finding("peer-copies", step(10))
    assert_a_quarter_is_exposed(finding, "copies_per_step", likely_ms=10 * 7 / 8)  # those of 1 of 8 micro-batches stay
    assert "move 250.0 MB between GPUs" in summary(finding)


def test_little_compute_hides_little():
    assert only_finding("peer-copies", step(38)).saving_ns_per_step.likely == 2 * MS * 7 / 8  # of 2 ms of kernels


def test_it_stays_silent_just_below_the_threshold():
    assert findings("peer-copies", step(1)) == []
    assert len(findings("peer-copies", step(1, of=33))) == 1


def test_it_stays_silent_where_kernels_run_beside():
    assert findings("peer-copies", step(10, kernels="#" * 40)) == []


@pytest.mark.parametrize("direction", ["h2d", "d2h", "d2d", "memset"])
def test_it_stays_silent_on_other_directions(direction):
    assert findings("peer-copies", step(10, direction)) == []


def two_gpus(copies: str, first: str, second: str) -> Timeline:
    """One process with two devices; copies run in a stream of the first. Units of 1 ms."""
    common = {"launched_us_before": 50, "repeat": 6, "unit_us": 1000}
    drawn = [draw(kernels=first, copies=copies, **common), draw(kernels=second, device=1, **common)]
    calls = [each.calls.with_columns(correlation=each.calls["correlation"] + 1000 * n) for n, each in enumerate(drawn)]
    frames = {**drawn[0].frames}
    for signal in ("kernels", "copies"):
        moved = drawn[1].frames[signal]
        moved = moved.with_columns(correlation=moved["correlation"] + 1000)
        frames[signal] = Frame.join([drawn[0].frames[signal], moved])
    frames["calls"] = Frame.join(calls)
    frames["copies"] = frames["copies"].with_columns(direction=Text.constant("p2p", len(frames["copies"])))
    return replace(drawn[0], frames=frames)


def test_the_device_that_receives_waits_as_well_without_a_row_of_it():
    waits = two_gpus("x" * 8 + " " * 32, " " * 8 + "#" * 32, " " * 8 + "#" * 32)
    assert only_finding("peer-copies", waits).values["exposed_ms"] == 8.0
    computes = two_gpus("x" * 8 + " " * 32, " " * 8 + "#" * 32, "#" * 40)
    assert only_finding("peer-copies", computes).values["exposed_ms"] == 4.0


def test_it_is_a_symptom_of_exposed_copies():
    found = diagnose(step(10), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "exposed-copies")
    assert "peer-copies" in [each.rule for each in above.symptoms]

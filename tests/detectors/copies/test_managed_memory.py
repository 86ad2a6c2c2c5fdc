"""managed-memory: managed memory moves between host and GPU."""

from __future__ import annotations

import pytest
from builders import findings, only_finding, summary
from exposed_copy_cases import assert_a_quarter_is_exposed, exposed_step
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.timeline import Text, Timeline
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000


def step(exposed: int, memory: str = "managed", direction: str = "h2d", *, of: int = 40, **more) -> Timeline:
    """A copy of such memory of `exposed` ms in front of each step's compute."""
    drawn = exposed_step(exposed, "h", of=of, **more)
    rows = len(drawn.copies)
    copies = drawn.copies.with_columns(
        host_memory=Text.constant(memory, rows), direction=Text.constant(direction, rows)
    )
    return replace(drawn, frames={**drawn.frames, "copies": copies})


@pytest.mark.parametrize("direction", ["h2d", "d2h", "unknown"])
def test_it_fires_where_managed_memory_moves(direction):
    finding = only_finding("managed-memory", step(10, direction=direction))
    assert_a_quarter_is_exposed(finding, "copies_per_step", likely_ms=10)  # 30 ms of compute could hide them
    assert "250.0 MB of managed memory" in summary(finding)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("managed-memory", step(1)) == []
    assert len(findings("managed-memory", step(1, of=33))) == 1


@pytest.mark.parametrize("memory", ["pinned", "pageable", "unknown", "none"])
def test_it_stays_silent_on_other_memory(memory):
    assert findings("managed-memory", step(10, memory)) == []


def test_it_stays_silent_where_kernels_run_beside():
    assert findings("managed-memory", step(10, kernels="#" * 40)) == []


def test_it_is_a_symptom_of_exposed_copies():
    found = diagnose(step(10), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "exposed-copies")
    assert "managed-memory" in [each.rule for each in above.symptoms]


def test_pages_that_move_are_no_copies_that_the_program_asked_for():
    drawn = step(10, direction="d2h")
    assert findings("results-copied-back", drawn) == []
    assert len(findings("managed-memory", drawn)) == 1


def test_little_compute_hides_little():
    saving = only_finding("managed-memory", step(38)).saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (0, 2 * MS, 38 * MS)

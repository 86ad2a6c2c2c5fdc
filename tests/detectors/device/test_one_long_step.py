"""A step that something made far longer once is in no number, and a finding of its own."""

from __future__ import annotations

import pytest
from builders import findings, only_finding, summary
from idle_cause_cases import ALLOCATES, COLLECTS_GARBAGE, COMPILES, IdleCauseCase

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Selection


@pytest.mark.parametrize("case", [COMPILES, ALLOCATES], ids=lambda case: case.rule)
def test_what_comes_once_is_left_out_of_all_numbers(case: IdleCauseCase) -> None:
    run = prepare(case.one_step_of_six(longer=40))
    finding = only_finding("one-long-step", run)
    assert (run.step_ns, run.repeats) == (40_000_000, True)
    assert findings(case.rule, run) == []
    assert "Step 4 of 6 takes 80.0 ms, the others about 40.0 ms: 100 % of the excess" in summary(finding)
    assert finding.situation in ("compilation", "allocator")
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (0, 0)
    assert finding.saving_ns_per_step.high == pytest.approx(40_000_000 / 6, abs=1)


def test_less_than_half_longer_is_no_odd_step() -> None:
    run = prepare(ALLOCATES.one_step_of_six(longer=19))
    assert findings("one-long-step", run) == []
    assert run.places[0].steps.used == 6


def test_what_comes_again_every_few_steps_stays_in_the_mean() -> None:
    run = prepare(COLLECTS_GARBAGE.one_step_of_six(longer=40))
    assert findings("one-long-step", run) == []
    assert run.places[0].steps.used == 6


def test_steps_that_the_user_chose_are_all_analysed() -> None:
    run = prepare(ALLOCATES.one_step_of_six(longer=40), Selection(steps=(1, 6)))
    assert findings("one-long-step", run) == []
    assert run.places[0].steps.used == 6

"""Is a finding as sure as its evidence, and is it said why?"""

from __future__ import annotations

import pytest
from builders import draw
from msgspec.structs import replace

from perfdoctor.diagnosis.certainty import judged
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline, merge
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules

RULE = replace(load_rules()["input-wait"], doubt="the loader is guessed")


def recorded(repeat: int, **more: object) -> Timeline:
    host = ["l" + " " * 39, " " * 29 + "i" * 11, "o"]
    return draw(kernels="#" * 30 + " " * 10, host=host, repeat=repeat, unit_us=1000, **more)


def finding(confidence: str) -> Finding:
    return Finding("input-wait", Saving(0, 1, 2), confidence, {})


def run_of(repeat: int) -> Run:
    return prepare(recorded(repeat))


def test_many_steps_leave_the_detectors_word_as_it_is() -> None:
    run = run_of(8)
    certainty = judged(RULE, finding("high"), run)
    assert certainty.level == "high"
    assert certainty.because.startswith(f"Measured on {run.places[0].steps.used} steps from ")
    assert ";" not in certainty.because


def test_a_detectors_doubt_is_reported_where_it_is_not_sure() -> None:
    assert judged(RULE, finding("medium"), run_of(8)).because.endswith("; the loader is guessed.")
    assert "guessed" not in judged(RULE, finding("high"), run_of(8)).because


def test_without_steps_nothing_is_high() -> None:
    run = run_of(1)
    assert not run.per_step
    certainty = judged(RULE, finding("high"), run)
    assert certainty.level == "medium"
    assert certainty.because.endswith("no steps were found, so warm-up may be in it.")
    assert "the whole recording" in certainty.because


def test_two_steps_are_few() -> None:
    run = run_of(8)
    few = replace(
        run,
        places=tuple(replace(place, steps=replace(place.steps, last=place.steps.first + 2)) for place in run.places),
    )
    certainty = judged(RULE, finding("high"), few)
    assert (certainty.level, certainty.because.rpartition("; ")[2]) == ("medium", "2 steps are few.")


def test_with_some_of_the_ranks_nothing_about_collectives_is_high() -> None:
    def run(ranks: int, world_size: int) -> Run:
        return prepare(merge([recorded(8, nccl=" " * 30 + "=" * 10, rank=rank, world_size=world_size) for rank in range(ranks)]))  # fmt: skip

    rule = load_rules()["rank-skew"]
    certainty = judged(rule, finding("high"), run(2, 3))
    assert certainty.level == "medium"
    assert certainty.because.endswith(
        "; 1 of 3 ranks was not recorded, so waiting for one of them cannot be separated from transfer."
    )
    assert judged(rule, finding("high"), run(2, 2)).level == "high"
    assert judged(RULE, finding("high"), run(2, 3)).level == "high", "a rank's own loader is recorded"


@pytest.mark.parametrize("level", ["low", "medium"])
def test_what_is_unsure_by_itself_is_not_raised(level: str) -> None:
    assert judged(RULE, finding(level), run_of(1)).level == level
    assert judged(RULE, finding(level), run_of(8)).level == level


def test_only_signals_that_hold_rows_are_named() -> None:
    run = run_of(8)
    because = judged(replace(RULE, needs=("kernels", "os_calls|ops", "steps")), finding("high"), run).because
    assert "kernels" in because
    assert "operating-system calls" not in because

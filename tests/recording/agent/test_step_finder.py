"""Which event ends a step, from times alone. The agent's modules are top-level ones, as in the user's process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from perfdoctor.recording.tools import torch_profiler

sys.path.insert(0, str(torch_profiler.AGENT))
from perfdoctor_agent.step_finder import PATIENCE, Numbers, StepFinder

sys.path.remove(str(Path(torch_profiler.AGENT)))


def step_ends(finder: StepFinder, events: Iterator[tuple[str, int]]) -> list[int]:
    """Positions of the events that end a step of the chosen kind."""
    return [place for place, (kind, at) in enumerate(events) if finder.add(kind, at)]


def even(kind: str, count: int, distance: int = 100, start: int = 0) -> Iterator[tuple[str, int]]:
    return ((kind, start + number * distance) for number in range(count))


def test_one_kind_is_the_step_once_enough_have_passed() -> None:
    assert step_ends(StepFinder(5), even("adam", 8)) == [4, 5, 6, 7]


def test_a_single_skipped_step_is_enough_for_one_kind() -> None:
    assert step_ends(StepFinder(1), even("adam", 3)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("gaps", "in_bursts"),
    [
        ([100] * 12, False),
        ([100] * 11 + [5_000], False),
        ([100, 150, 210, 90] * 3, False),
        ([100, 4_000, 100, 4_000, 100, 100, 100, 100, 100, 100], False),
        ([10, 10, 900] * 4, True),
    ],
    ids=["even", "one-pause", "noise", "two-of-the-first-four-late", "bursts"],
)
def test_a_kind_is_seen_to_come_in_bursts_once_they_have_come_again(gaps: list[int], in_bursts: bool) -> None:
    times = list(accumulate([0, 50, *gaps]))
    finder = StepFinder(5)
    chosen = step_ends(finder, (("adam", at) for at in times))[0]
    assert (finder.chosen, finder.is_doubtful, finder.comes_in_bursts(times[chosen:])) == ("adam", False, in_bursts)
    assert not finder.comes_in_bursts([])


class Optimizer:
    """What an optimizer is to the agent."""


def test_trial_trainings_before_the_training_are_none_of_its_steps() -> None:
    """Six optimizers, one after the other at the same place in memory, make five steps each; then one makes eight."""
    numbers, finder, at, found = Numbers(), StepFinder(5), 0, []
    training = Optimizer()
    for trial in range(7):
        optimizer = training if trial == 6 else Optimizer()
        for _ in range(8 if trial == 6 else 5):
            at += 100
            for gone in numbers.gone():
                finder.forget(gone)
            finder.expected = 1 + (trial < 6)
            found.append(finder.add(numbers.of(optimizer), at))
        del optimizer  # as a search for a learning rate drops it
    assert finder.chosen == numbers.of(training)
    assert found == [False] * 34 + [True] * 4


def test_an_optimizer_at_the_place_of_one_that_is_gone_has_another_number() -> None:
    numbers = Numbers()
    places, given = [], []
    for _ in range(3):
        optimizer = Optimizer()
        places.append(id(optimizer))
        given.append(numbers.of(optimizer))
        assert numbers.of(optimizer) == given[-1]
        del optimizer
    assert len(set(places)) < 3, "else this shows nothing"
    assert len(set(given)) == 3
    assert sorted(numbers.gone()) == sorted(given)
    assert numbers.gone() == []


def gan(rounds: int, critic_steps: int = 5) -> Iterator[tuple[str, int]]:
    for number in range(rounds):
        for step in range(critic_steps):
            yield "critic", number * 1_000 + step * 50
        yield "generator", number * 1_000 + 700


def test_of_uneven_and_even_the_even_one_is_chosen() -> None:
    finder = StepFinder(4)
    finder.expected = 2
    found = step_ends(finder, gan(8))
    assert finder.chosen == "generator"
    assert all(place % 6 == 5 for place in found)


def test_of_two_that_alternate_the_one_that_closes_the_round_is_chosen() -> None:
    finder = StepFinder(4)
    finder.expected = 2
    step_ends(finder, ((("muon", "adam")[n % 2], n // 2 * 100 + n % 2) for n in range(20)))
    assert finder.chosen == "adam"


def test_one_that_was_made_and_never_steps_is_not_waited_for_forever() -> None:
    finder = StepFinder(4)
    finder.expected = 2
    assert step_ends(finder, even("adam", PATIENCE + 2))[0] == PATIENCE - 1


def test_a_long_first_step_makes_nothing_uneven() -> None:
    finder = StepFinder(4)
    events = [("adam", 0), *even("adam", 8, start=10_000)]
    assert step_ends(finder, iter(events))
    assert finder._unevenness("adam") == 0.0


@pytest.mark.parametrize("skip", [1, 2, 5, 12])
def test_steps_are_counted_while_nothing_is_chosen(skip: int) -> None:
    finder = StepFinder(skip)
    step_ends(finder, even("adam", skip - 1))
    assert finder.count == skip - 1


@pytest.mark.parametrize(
    ("one_round", "step"),
    [("mb", "b"), ("mlb", "b"), ("mbmlb", "l"), ("mmmlb", "b"), ("elb", "b")],
)
def test_without_an_optimizer_the_step_is_what_comes_once_a_round(one_round: str, step: str) -> None:
    finder = StepFinder(4, rounds=True)
    step_ends(finder, ((kind, 100 * place) for place, kind in enumerate(one_round * 8)))
    assert finder.chosen == step


def test_rounds_that_differ_are_judged_by_their_rhythm() -> None:
    finder = StepFinder(6, rounds=True)
    rounds = enumerate(["mb", "mbv", "mb", "mb", "mb", "mbvv", "mb", "mb", "mb", "mbv", "mb", "mb"])
    step_ends(finder, ((kind, 100 * at + 10 * place) for at, one in rounds for place, kind in enumerate(one)))
    assert finder.chosen == "b"

"""The partition of a whole run, against the arithmetic of what was drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from whole_runs import (
    CHECKPOINT,
    EVALUATION,
    EVERY_KIND,
    FORWARD,
    LOOP,
    OTHER,
    STEP,
    Between,
    run_with,
    share_of,
    whole_run,
)

from perfdoctor.metrics.whole_run.partition import partition, record_of
from perfdoctor.metrics.whole_run.periods import period
from perfdoctor.model.whole_run import WholeRun
from perfdoctor.records.run_time import RunTime


def time_of(run: WholeRun) -> RunTime:
    found = partition(run)
    assert found is not None
    return record_of(found)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_each_kind_is_named_with_its_share_its_period_and_its_line(kind):
    found = time_of(run_with(kind))
    each = EVERY_KIND[kind]
    assert set(found.share) == {kind}
    assert found.share[kind] == pytest.approx(share_of(each), abs=0.02)
    assert found.every_steps == {kind: each.every}
    assert found.usual_step_ns == 20_000_000
    if kind != "epoch_change":  # the user's own code is not in it
        line = found.lines[kind]
        assert f"{line.file}({line.line}): {line.function}" == each.stack[2]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_the_parts_are_the_whole(kind):
    run = run_with(kind)
    found = time_of(run)
    assert found.wall_ns == found.steps_ns + sum(found.between_ns.values())
    assert found.wall_ns == run.end_ns + 2 * 10**9


@pytest.mark.parametrize("every", [2, 3, 50])
def test_a_short_pause_at_every_second_step_is_seen_as_well_as_a_long_one_at_every_fiftieth(every):
    each = replace(OTHER, every=every, ns=every * 3_000_000)
    found = time_of(whole_run(each, steps=400, noise=0.02))
    assert found.share["unknown"] == pytest.approx(share_of(each, 400), abs=0.02)
    assert found.every_steps["unknown"] == every


def test_two_kinds_that_meet_at_the_same_step_are_told_apart():
    found = time_of(whole_run(EVALUATION, CHECKPOINT, noise=0.05))
    assert found.share["evaluation"] == pytest.approx(share_of(EVALUATION, others=[CHECKPOINT]), abs=0.02)
    assert found.share["checkpoint"] == pytest.approx(share_of(CHECKPOINT, others=[EVALUATION]), abs=0.02)
    assert found.every_steps == {"evaluation": 5, "checkpoint": 20}


def test_of_two_kinds_that_always_come_together_samples_say_how_long_each_takes():
    both = replace(EVALUATION, ns=90_000_000, every=20), replace(CHECKPOINT, ns=30_000_000, every=20)
    found = time_of(whole_run(*both, steps=600, noise=0.05, pause_ns=7_100_000))
    for kind, each in zip(("evaluation", "checkpoint"), both, strict=True):
        others = [other for other in both if other is not each]
        assert found.share[kind] == pytest.approx(share_of(each, 600, others=others), abs=0.02)


def test_a_forward_pass_without_gradients_is_an_evaluation_whatever_it_is_called():
    stack = (*LOOP, "train.py(18): look", "/torch/nn/modules/module.py(1778): Module._call_impl")
    assert set(time_of(whole_run(Between(stack, 10, 60_000_000, no_gradients=True))).share) == {"evaluation"}
    assert set(time_of(whole_run(Between(stack, 10, 60_000_000, evaluating=True))).share) == {"evaluation"}


def test_a_forward_pass_in_a_loop_that_steps_an_environment_is_of_a_rollout():
    stack = (*LOOP, "train.py(18): walk", "train.py(20): Corridor.move")
    walk = Between(stack, 10, 60_000_000, no_gradients=True, acting=True)
    assert set(time_of(whole_run(walk)).share) == {"rollout"}


def test_a_trial_training_may_call_the_function_of_the_steps():
    trial = Between((*LOOP, "train.py(33): best_of", *LOOP[1:], *STEP[2:]), 40, 500_000_000)
    found = time_of(whole_run(trial))
    assert found.share == {"learning_rate_search": pytest.approx(share_of(trial), abs=0.02)}
    assert found.lines["learning_rate_search"].function == "best_of"


def test_a_backward_pass_of_the_loop_itself_now_and_then_is_no_trial_training():
    """A penalty on gradients every 16th step, as GANs have it."""
    penalty = Between((LOOP[0], "train.py(44): main", *STEP[2:]), 16, 60_000_000)
    assert time_of(whole_run(penalty)).share == {}


@pytest.mark.parametrize(("every", "ns"), [(16, 60_000_000), (5, 20_000_000)])
def test_a_function_that_trains_now_and_then_is_a_part_of_the_training(every, ns):
    """The penalty in a function of its own, or a generator's update after each fifth of its critic."""
    backward = (LOOP[0], "train.py(44): main", "train.py(60): penalty", *STEP[2:])
    found = time_of(whole_run(Between(backward, every, ns), OTHER, steps=400))
    assert set(found.share) == {"unknown"}
    assert found.lines["unknown"].function == "refresh"


def test_a_function_of_several_steps_now_and_then_is_a_trial_training():
    forward = (*LOOP, "train.py(33): best_of", *FORWARD[2:])
    steps = [Between(stack, 40, 40_000_000) for _ in range(6) for stack in (forward, (*forward[:3], *STEP[2:]))]
    assert set(time_of(whole_run(*steps)).share) == {"learning_rate_search"}


def test_what_disturbs_steps_now_and_then_is_no_time_of_what_comes_between_them():
    run = whole_run(replace(EVALUATION, every=2, ns=5_000_000), steps=400)
    later_ns = np.where(np.arange(400) % 7 == 6, 15_000_000, 0).cumsum()
    at_ns = run.at_ns + np.append(0, later_ns)[np.searchsorted(run.ends_ns, run.at_ns, side="right")]
    found = time_of(replace(run, ends_ns=run.ends_ns + later_ns, at_ns=at_ns, end_ns=run.end_ns + 10**9))
    assert found.between_ns["evaluation"] == pytest.approx(200 * 5_000_000, rel=0.1)


def test_code_that_writes_as_many_bytes_as_the_parameters_have_saves_a_checkpoint():
    stack = (*LOOP, "train.py(19): keep")
    assert set(time_of(whole_run(Between(stack, 10, 60_000_000, written_bytes=2_000_000))).share) == {"checkpoint"}
    assert set(time_of(whole_run(Between(stack, 10, 60_000_000, written_bytes=200_000))).share) == {"logging"}


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_a_training_that_only_trains_has_nothing_between_its_steps(noise):
    assert time_of(whole_run(noise=noise)).share == {}


def test_a_function_of_every_step_is_a_part_of_it_whatever_it_is_called():
    every = Between((*LOOP, "train.py(50): evaluate_actions"), 1, 5_000_000)
    assert time_of(whole_run(every, noise=0.1)).share == {}


def test_steps_that_recording_made_longer_count_as_usual_ones():
    run = whole_run(EVALUATION)
    ends = run.ends_ns.copy()
    ends[50:] += 10**9
    at = np.where(run.at_ns > run.ends_ns[49], run.at_ns + 10**9, run.at_ns)
    found = time_of(replace(run, ends_ns=ends, at_ns=at, end_ns=run.end_ns + 10**9, windows=[(45, 55)]))
    assert found.share["evaluation"] == pytest.approx(share_of(EVALUATION), abs=0.02)
    assert found.between_ns["recording"] == pytest.approx(10**9, rel=0.1)


def test_what_comes_in_recorded_steps_is_no_time_of_the_recorder():
    found = time_of(whole_run(EVALUATION, windows=[(40, 120)]))
    assert found.between_ns["recording"] == pytest.approx(0, abs=20_000_000)
    assert found.between_ns["evaluation"] == pytest.approx(40 * 40_000_000, rel=0.05)
    assert found.count["evaluation"] == 40


def test_what_only_the_first_time_takes_is_a_part_of_the_start():
    plotting = Between(EVERY_KIND["plotting"].stack, 50, 40_000_000)
    slow, plain = (time_of(whole_run(each)) for each in (replace(plotting, first_more_ns=400_000_000), plotting))
    assert slow.between_ns["start"] - plain.between_ns["start"] == pytest.approx(400_000_000, rel=0.1)
    assert slow.between_ns["plotting"] == pytest.approx(plain.between_ns["plotting"], rel=0.2)
    assert slow.wall_ns == plain.wall_ns + 400_000_000


def test_a_run_of_which_every_step_was_recorded_has_no_partition():
    assert partition(whole_run(EVALUATION, steps=20, windows=[(0, 19)])) is None


def test_samples_that_keep_step_with_the_training_show_nothing_that_comes_every_k_steps():
    assert time_of(whole_run(steps=2000, pause_ns=160_000_000)).share == {}


def test_what_comes_every_thousand_steps_is_found_in_a_long_run():
    found = time_of(whole_run(Between(EVALUATION.stack, 1000, 2_000_000_000), steps=20_000, pause_ns=93_000_000))
    assert found.every_steps == {"evaluation": 1000}


def test_a_last_evaluation_behind_the_last_step_is_one_more():
    found = time_of(whole_run(replace(EVALUATION, every=50, ns=800_000_000)))
    assert found.share["evaluation"] == pytest.approx(share_of(replace(EVALUATION, every=50, ns=800_000_000)), abs=0.02)
    assert found.count["evaluation"] == 4


def test_steps_that_were_not_noted_are_neither_an_evaluation_nor_the_end():
    """Of another optimizer, or more than are kept."""
    run = whole_run(EVALUATION, steps=1000)
    noted = replace(run, ends_ns=run.ends_ns[:200], sites=run.sites[:200])
    found = time_of(noted)
    assert found.share["evaluation"] == pytest.approx(share_of(EVALUATION), abs=0.02)
    assert found.count["evaluation"] == 40
    assert found.wall_ns == found.steps_ns + sum(found.between_ns.values()) == run.end_ns + 2 * 10**9
    assert found.between_ns["unnoted"] == pytest.approx(run.end_ns - int(noted.ends_ns[-1]), rel=0.02)
    assert found.between_ns["end"] <= 2 * found.usual_step_ns
    assert time_of(run).between_ns["unnoted"] == 0


def test_an_update_behind_the_noted_one_of_the_last_step_hides_no_last_evaluation():
    """Of two optimizers the first one's updates may be the steps."""
    last = replace(EVALUATION, every=50, ns=800_000_000)
    run = whole_run(last, step_ns=200_000_000)
    found = time_of(replace(run, ends_ns=run.ends_ns - 100_000_000))
    assert found.between_ns["unnoted"] == 0
    assert found.count["evaluation"] == 4


@given(st.integers(2, 60), st.integers(0, 59), st.integers(4, 20))
def test_a_period_is_found_again(every, rest, times):
    rest %= every
    numbers = rest + every * np.arange(times)
    assert period(numbers, int(numbers[-1]) + 1) == (every, rest)


def test_one_that_was_seen_in_another_step_does_not_hide_a_period():
    assert period(np.array([119, 159, 199, 202, 239]), 250) == (40, 39)


@given(st.sets(st.integers(0, 399), min_size=100))
def test_what_comes_by_chance_in_a_quarter_of_the_steps_has_no_period(numbers):
    every, _ = period(np.array(sorted(numbers)), 400)
    assert every in (0, 2, 3)

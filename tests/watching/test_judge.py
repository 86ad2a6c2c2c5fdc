"""What is said of a training that runs: planted trouble is found in time, with its cause, and an even one is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from watched_steps import BEGUN_NS, MS, judged, lines, noise, rank_steps

from perfdoctor.watching import judge as judging
from perfdoctor.watching import memory, rows
from perfdoctor.watching.document import curve
from perfdoctor.watching.judge import Judge
from perfdoctor.watching.rows import RankSteps, Use
from perfdoctor.watching.throttling import Throttled


@pytest.mark.parametrize("seed", range(3))
def test_an_even_training_is_left_alone(tmp_path: Path, seed: int) -> None:
    rank = rank_steps(tmp_path, lines(noise(20_000, 10, seed), host=8 * MS, held=np.full(20_000, 1 << 30)))
    assert judged({0: rank}) == []


def test_a_level_that_shifts_by_a_twentieth_is_found_with_its_cause(tmp_path: Path) -> None:
    lengths, wait = noise(3000, 20), np.full(3000, 0.2 * MS)
    lengths[2000:] *= 1.05
    wait[2000:] += MS
    (found,) = judged({0: rank_steps(tmp_path, lines(lengths, wait=wait, host=10 * MS))})
    assert (found.kind, found.cause) == ("level", "input")
    assert abs(found.step - 2001) <= 25
    assert found.seen_at - 2000 <= 12 * 25
    assert found.values["ratio"] == pytest.approx(1.05, abs=0.01)


def test_a_drift_of_three_per_cent_over_two_thousand_steps_is_one(tmp_path: Path) -> None:
    lengths = noise(5000, 20, spread=0.003)
    host = np.full(5000, 10.0 * MS)
    grown = 0.03 * np.clip((np.arange(5000) - 1500) / 2000, 0, 1)
    lengths *= 1 + grown
    host += grown * 20 * MS
    found = judged({0: rank_steps(tmp_path, lines(lengths, host=host))})
    assert [(each.kind, each.cause) for each in found] == [("drift", "host")]
    assert found[0].seen_at <= 3500


def test_steps_that_become_shorter_are_no_trouble(tmp_path: Path) -> None:
    lengths = noise(4000, 20)
    lengths[2000:] *= 0.8
    assert judged({0: rank_steps(tmp_path, lines(lengths))}) == []


def test_a_disturbance_that_is_soon_over_is_no_change(tmp_path: Path) -> None:
    lengths = noise(4000, 10)
    lengths[2000:2300] *= 1.5  # for three to five seconds
    assert judged({0: rank_steps(tmp_path, lines(lengths))}) == []


def test_other_programs_that_take_the_cores_are_named(tmp_path: Path) -> None:
    lengths, delay = noise(4000, 20), np.zeros(4000)
    lengths[2000:] *= 1.2
    delay[2000:] = 4 * MS
    found = judged({0: rank_steps(tmp_path, lines(lengths, host=10 * MS, delay=delay))})
    assert [(each.kind, each.cause) for each in found] == [("level", "cores")]


@pytest.mark.parametrize("times", [2, 4])
def test_a_slow_step_in_fifty_is_a_period(tmp_path: Path, times: int) -> None:
    lengths = noise(1500, 10)
    lengths[400::50] *= times
    (found,) = judged({0: rank_steps(tmp_path, lines(lengths))})
    assert (found.kind, found.values["every"]) == ("slow-steps", 50)
    assert found.seen_at <= 400 + 20 * 50
    assert found.values["share"] == pytest.approx((times - 1) / 50, rel=0.6)


def test_the_share_of_slow_steps_is_one_of_the_whole_time(tmp_path: Path) -> None:
    lengths = noise(3000, 10)
    lengths[400::100] *= 300  # an evaluation
    (found,) = judged({0: rank_steps(tmp_path, lines(lengths))})
    assert (found.kind, found.values["every"]) == ("slow-steps", 100)
    assert found.values["share"] == pytest.approx(0.7, abs=0.1)


@pytest.mark.parametrize(("begun", "every"), [(400, 1000), (400, 1900), (15_000, 150)])
def test_a_long_period_is_found_while_stretches_are_short(tmp_path: Path, begun: int, every: int) -> None:
    lengths = noise(begun + 20 * every, 10)
    lengths[begun::every] *= 1 + every / 40
    (found,) = judged({0: rank_steps(tmp_path, lines(lengths))})
    assert (found.kind, found.values["every"], found.step) == ("slow-steps", every, begun + 1)


def test_slow_steps_by_chance_have_no_period(tmp_path: Path) -> None:
    lengths = noise(20_000, 10)
    lengths[np.random.default_rng(5).random(20_000) < 0.05] *= 3
    assert judged({0: rank_steps(tmp_path, lines(lengths))}) == []


def test_input_that_cannot_keep_up_any_more_is_named_for_its_rank(tmp_path: Path) -> None:
    wait = np.where(np.arange(3000) < 1500, 0.2, 5.0) * MS
    ranks = {
        0: rank_steps(tmp_path, lines(noise(3000, 20), wait=wait, world_size=2), "rank0"),
        1: rank_steps(tmp_path, lines(noise(3000, 20, 1), wait=0.2 * MS, rank=1, world_size=2), "rank1"),
    }
    found = judged(ranks)
    assert ("input", 0) in {(each.kind, each.rank) for each in found}
    assert ("behind", 0, "input") in {(each.kind, each.rank, each.cause) for each in found}
    assert not [each for each in found if each.rank == 1]


def test_input_that_waits_twice_as_much_is_said_again_and_at_once_only_once(tmp_path: Path) -> None:
    wait = np.array([0.2, 2.4, 6.0])[np.arange(6000) // 2000] * MS
    lengths = noise(6000, 20) + wait
    found = [each for each in judged({0: rank_steps(tmp_path, lines(lengths, wait=wait))}) if each.kind == "input"]
    assert [each.seen_at // 2000 for each in found] == [1, 2]
    assert found[1].values["share"] >= 2 * found[0].values["share"]


def test_a_rank_that_computes_longer_keeps_the_others_waiting(tmp_path: Path) -> None:
    ranks = {
        number: rank_steps(
            tmp_path, lines(noise(1500, 20, number), host=(15 if number == 2 else 10) * MS, rank=number, world_size=4),
            f"rank{number}",
        )
        for number in range(4)
    }  # fmt: skip
    (found,) = judged(ranks)
    assert (found.kind, found.rank, found.cause) == ("behind", 2, "host")
    assert found.values["share"] == pytest.approx(0.25, abs=0.05)


def test_a_rank_without_collectives_that_makes_fewer_steps_lags(tmp_path: Path) -> None:
    ranks = {
        0: rank_steps(tmp_path, lines(noise(3000, 10)), "rank0"),
        1: rank_steps(tmp_path, lines(noise(2000, 15), rank=1), "rank1"),
    }
    judge = Judge()
    (found,) = [each for each in judge.update(ranks, BEGUN_NS + 31 * 10**9) if each.kind == "behind"]
    assert found.rank == 1
    assert found.values["steps"] == 1000


def test_memory_that_grows_by_a_megabyte_a_step_is_found_within_four_hundred_steps(tmp_path: Path) -> None:
    held = np.full(1500, 1 << 30) + (1 << 20) * np.clip(np.arange(1500) - 500, 0, None)
    (found,) = judged({0: rank_steps(tmp_path, lines(noise(1500, 20), held=held))})
    assert (found.kind, found.values["kind"]) == ("memory", "host")
    assert found.seen_at <= 900
    assert found.values["bytes_per_step"] == pytest.approx(1 << 20, rel=0.15)


def test_memory_that_fills_at_the_start_does_not_grow(tmp_path: Path) -> None:
    held = (2 << 30) * (1 - np.exp(-np.arange(5000) / 60))
    assert judged({0: rank_steps(tmp_path, lines(noise(5000, 20), held=held))}) == []


def test_no_step_for_so_long_is_a_hang_and_said_once(tmp_path: Path) -> None:
    rank = rank_steps(tmp_path, lines(noise(1000, 10)))
    judge, last = Judge(hang_after_s=30), rank.stretches[-1].end
    assert judge.update({0: rank}, last + 29 * 10**9) == []
    (found,) = judge.update({0: rank}, last + 31 * 10**9)
    assert (found.kind, found.seen_at) == ("hang", 1000)
    assert judge.update({0: rank}, last + 60 * 10**9) == []
    whole = rank_steps(tmp_path, lines(np.append(noise(1000, 10), [70e9, 10e6])))
    (found,) = judge.update({0: whole}, whole.stretches[-1].end)
    assert (found.kind, judge.hangs_since) == ("goes-on", 0)


def test_a_pause_as_long_as_the_ones_before_is_no_hang(tmp_path: Path) -> None:
    lengths = noise(1000, 10)
    lengths[500] = 100e9  # an evaluation
    rank = rank_steps(tmp_path, lines(lengths))
    judge, last = Judge(hang_after_s=30), rank.stretches[-1].end
    assert not [each for each in judge.update({0: rank}, last + 200 * 10**9) if each.kind == "hang"]
    assert [each.kind for each in judge.update({0: rank}, last + 301 * 10**9)] == ["hang"]


def test_an_evaluation_that_gets_batches_is_no_hang(tmp_path: Path) -> None:
    rank = rank_steps(tmp_path, lines(noise(1000, 10)))
    judge, last = Judge(hang_after_s=5), rank.stretches[-1].end
    rank.uses[:] = [Use(last - 10 * 10**9, batch=0)]
    said = []
    for second in range(120):  # of which 60 are an evaluation
        if second % 10 == 0:
            rank.uses.append(Use(last + second * 10**9, batch=max(second - 60, 0) * 10**9))
        said += [each for each in judge.update({0: rank}, last + second * 10**9) if each.kind == "hang"]
    # Said with the line behind the last one in which a batch had come.
    assert [each.values["silent_ns"] for each in said] == [70 * 10**9]


def test_a_rank_that_has_ended_does_not_hang(tmp_path: Path) -> None:
    rank = rank_steps(tmp_path, [*lines(noise(1000, 10)), '{"ended": 5, "why": ""}'])
    assert Judge(1).update({0: rank}, rank.stretches[-1].end + 10**12) == []


def test_a_gpu_that_is_held_back_is_said_once_until_it_is_over(tmp_path: Path) -> None:
    rank = rank_steps(tmp_path, lines(noise(100, 10)))
    judge, now = Judge(), rank.stretches[-1].end
    held, other = Throttled(3, "heat", 1000, 1980), Throttled(4, "heat", 1000, 1980)
    assert [(each.kind, each.values["device"]) for each in judge.update({0: rank}, now, [held])] == [("throttled", 3)]
    assert judge.update({0: rank}, now, [held]) == []
    assert [each.values["device"] for each in judge.update({0: rank}, now, [held, other])] == [4]
    judge.update({0: rank}, now, [other])
    assert [each.values["device"] for each in judge.update({0: rank}, now, [held, other])] == [3]


def test_another_process_in_the_place_of_a_rank_has_a_level_of_its_own(tmp_path: Path) -> None:
    judge = Judge()
    assert judged({0: rank_steps(tmp_path, lines(noise(3000, 20)), "first")}, judge) == []
    assert judged({0: rank_steps(tmp_path, lines(noise(1500, 30)), "again")}, judge) == []
    lengths = noise(3000, 30)
    lengths[2000:] *= 1.2
    assert [each.kind for each in judged({0: rank_steps(tmp_path, lines(lengths), "again")}, judge)] == ["level"]


@pytest.mark.parametrize("device", [0, 9 * MS])
def test_steps_that_are_longer_behind_a_window_are_no_trouble_on_a_gpu(tmp_path: Path, device: int) -> None:
    lengths = noise(5000, 20)
    lengths[2000:] *= 1.1
    made = [json.loads(line) for line in lines(lengths)]
    for each in made:
        if "q" in each:
            each |= {"device": device, "recorded": 2000 < each["first"] <= 2050}
    said = judged({0: rank_steps(tmp_path, [json.dumps(each) for each in made])})
    assert [each.kind for each in said] == ([] if device else ["level"])


def test_what_was_judged_long_ago_is_dropped_and_the_same_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "KEPT", 60)
    monkeypatch.setattr(judging, "KEPT", 60)
    monkeypatch.setattr(judging, "is_gradual", lambda _: False)  # its library takes half a second to load
    lengths, grown = noise(6000, 20), np.clip(np.arange(6000) - 5400, 0, None)
    lengths[4500:] *= 1.1
    made = lines(lengths, held=(1 << 30) + (1 << 20) * grown)
    said, curves, kept = [], [], []
    for is_thinned in (False, True):
        rank, judge = RankSteps(tmp_path / f"{is_thinned}.jsonl"), Judge()
        said.append([])
        for at in range(0, len(made), 2):
            with rank.path.open("a") as file:
                file.write("".join(f"\n{line}" for line in made[at : at + 2]))
            rank.read()
            said[-1] += judge.update({0: rank}, rank.stretches[-1].end) if rank.stretches else []
            if is_thinned:
                rank.thin()
        (course,) = judge._courses.values()
        kept += [len(rank.stretches), len(rank.uses)]
        curves.append(curve(rank))
    assert [each.kind for each in said[0]] == ["level", "memory"]
    assert said[0] == said[1]
    assert kept[:2] == [240, 240]
    assert max(*kept[2:], len(course.unrecorded)) < 120
    assert curves[0] == curves[1]


def test_what_a_week_has_written_is_not_gone_through_each_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank, judge = rank_steps(tmp_path, lines(noise(1000, 10), held=np.full(1000, 1 << 30))), Judge()
    now, asked = rank.stretches[-1].end, []
    assert rank.longest_ns == max(each.q[4] for each in rank.stretches)
    judge.update({0: rank}, now)
    monkeypatch.setattr(memory, "growth", lambda *given: asked.append(given))
    judge.update({0: rank}, now)
    assert asked == []
    rank.uses.append(rank.uses[-1])
    judge.update({0: rank}, now)
    assert len(asked) == 1

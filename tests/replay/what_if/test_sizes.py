"""Are sizes of the run and fixes simulated together, in the order in which they are asked for?"""

from __future__ import annotations

import pytest
from builders import draw
from collective_builders import MIB, described
from graphs import EVERYTHING, MS, faulty

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.diagnosis.questions import Question
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import merge
from perfdoctor.replay.what_if.sizes import replay_of_all_steps, size_change
from perfdoctor.vocabulary.rulebook import load_rules

RULES = list(load_rules().values())


def asked(*questions, drawn=None):
    return diagnose(drawn or faulty(), RULES, questions).prediction


def way(prediction):
    return [(step.rule, step.choice, step.samples, step.step_ns / MS) for step in prediction.steps]


BATCH, SYNTHETIC = Question("batch", "2x", amount=2.0), Question("synthetic-data")


def test_a_batch_of_twice_the_size_has_twice_the_samples():
    prediction = asked(BATCH)
    # Copy and kernels take 160 ms, of grids that were not recorded; the loader needs twice as long, beside them.
    assert way(prediction) == [("batch", "2x", 2.0, pytest.approx(200, rel=0.02))]
    assert prediction.samples == 2
    assert prediction.scaling is None
    assert prediction.speedup[1] == pytest.approx(2 * prediction.recorded_ns / prediction.step_ns[1])
    assert prediction.asked


def test_without_loading_only_kernels_are_left():
    prediction = asked(SYNTHETIC)
    assert way(prediction) == [("synthetic-data", "", 1.0, pytest.approx(71, abs=1))]  # the host's own, beside 70
    assert prediction.samples == 1


def test_what_makes_no_step_longer_is_no_longer_than_recorded():
    """Single steps differ: the range is as wide, but for what no question of this kind can bring."""
    uneven = [10, 14, 9, 13, 10, 15, 9, 12, 11]
    lanes = {"kernels": "".join("#" * (each - 2) + "  " for each in uneven), "unit_us": 1000, "recorded": EVERYTHING}
    marks = "".join(str(n + 1) * each for n, each in enumerate(uneven))
    drawn = draw(**lanes, host=[marks], launched_us_before=50)
    without, larger = (asked(question, drawn=drawn) for question in (SYNTHETIC, BATCH))
    assert without.step_ns[2] == without.recorded_ns
    assert without.step_ns[0] < without.step_ns[1]
    assert larger.step_ns[2] > larger.step_ns[1] > larger.recorded_ns


def test_fixes_and_sizes_are_simulated_in_their_order():
    first, then = asked(SYNTHETIC, BATCH), asked(BATCH, SYNTHETIC)
    assert [stop[:3] for stop in way(first)] == [("synthetic-data", "", 1.0), ("batch", "2x", 2.0)]
    assert [stop[:3] for stop in way(then)] == [("batch", "2x", 2.0), ("synthetic-data", "", 2.0)]
    assert first.step_ns[1] == pytest.approx(140 * MS, rel=0.02)
    assert then.step_ns[1] == pytest.approx(first.step_ns[1], rel=0.03)
    mixed = asked(SYNTHETIC, Question("fp32-matmuls"), BATCH)
    assert mixed.fixed == ("synthetic-data", "fp32-matmuls", "batch")
    assert mixed.step_ns[1] < first.step_ns[1]


def test_a_fix_wins_as_much_more_as_the_batch_is_larger():
    """Sixty of a hundred are the fp32 matmul's, for whose end and the others' the host waits."""
    host = ["ll" + "s" * 96 + "  ", "o"]
    drawn = draw(kernels=" " + "S" * 60 + "G" * 37 + "  ", host=host, repeat=6, unit_us=1000, recorded=EVERYTHING)
    alone = asked(Question("fp32-matmuls"), drawn=drawn)
    won_ns = alone.recorded_ns - alone.step_ns[1]
    larger, fixed = (stop[3] * MS for stop in way(asked(BATCH, Question("fp32-matmuls"), drawn=drawn)))
    assert larger == pytest.approx(197 * MS, rel=0.01)
    assert larger - fixed == pytest.approx(2 * won_ns, rel=0.02)


def test_notes_say_what_no_recording_tells():
    notes = [diagnose(job(), RULES, [question]).notes for question in (BATCH, ranks(64), ranks(1), SYNTHETIC)]
    described = [[note for note in each if "Not known from" in note or "links are assumed" in note] for each in notes]
    does_it_fit = (
        "Not known from the recording: does such a batch fit into memory, and does a loader that keeps up now "
        "still keep up?"
    )
    assert described == [
        [does_it_fit],
        ["Among 64 ranks links are assumed to be as fast as between the 32 recorded."],
        [],
        [],
    ]


def test_one_times_the_batch_changes_nothing():
    prediction = asked(Question("batch", "1x", amount=1.0))
    assert prediction.steps[0].step_ns == prediction.recorded_ns
    assert prediction.samples == 1


def job(of: int = 32):
    lanes = {"kernels": " ####    ##", "nccl": "     ==    ", "host": "l  lssss  l", "repeat": 6, "unit_us": 1000}
    return described(draw(**lanes, world_size=of, recorded=EVERYTHING), bytes=100 * MIB, group_size=of)


def ranks(number):
    return Question("ranks", str(number), amount=float(number))


def test_more_ranks_have_more_samples_and_an_efficiency():
    prediction = asked(ranks(64), drawn=job())
    assert prediction.samples == 2
    assert (prediction.scaling.recorded, prediction.scaling.asked) == (32, 64)
    low, likely, high = prediction.scaling.efficiency
    assert 0 < low <= likely <= high <= 1
    assert likely == pytest.approx(prediction.recorded_ns / prediction.step_ns[1])
    assert prediction.speedup[1] == pytest.approx(2 * likely)


def test_one_rank_tells_the_efficiency_of_those_recorded():
    prediction = asked(ranks(1), drawn=job())
    assert prediction.samples == pytest.approx(1 / 32)
    assert prediction.scaling.efficiency[1] == pytest.approx(prediction.step_ns[1] / prediction.recorded_ns)
    assert prediction.scaling.efficiency[1] < 1


def test_of_a_batch_and_ranks_both_count():
    prediction = asked(BATCH, ranks(64), drawn=job())
    assert [step.samples for step in prediction.steps] == [2, 4]
    larger, step = (each.step_ns for each in prediction.steps)
    assert prediction.scaling.efficiency[1] == pytest.approx(larger / step)


@pytest.mark.parametrize(("number", "why"), [(2, "one machine"), (16, "one machine")])
def test_ranks_that_cannot_be_predicted_are_refused_with_those_that_can(number, why):
    with pytest.raises(UsageError) as error:
        asked(ranks(number), drawn=job())
    assert error.value.what.startswith(f"--what-if ranks={number}: ")
    assert why in error.value.what
    assert error.value.do.endswith("batch=2x, synthetic-data, ranks=1 (no communication), or ranks=17 and more.")


def test_a_wrong_number_of_ranks_is_answered_with_the_rules_that_found_something_too():
    with pytest.raises(UsageError) as error:
        asked(Question("input-wait"), ranks(8))
    assert error.value.what == "--what-if ranks=8: it holds no communication, which alone shows how fast links are"
    assert {"input-wait", "fp32-matmuls", "batch=2x"} <= set(error.value.do[24:-1].split(", "))


def test_a_rule_that_was_not_found_names_the_sizes_too():
    with pytest.raises(UsageError) as error:
        asked(Question("garbage-collection"), BATCH, drawn=job())
    assert "batch=2x, synthetic-data, ranks=1 (no communication), or ranks=17 and more" in error.value.do


def test_all_steps_are_simulated_and_a_replay_that_is_not_true_is_refused(monkeypatch):
    run = prepare(faulty())
    assert replay_of_all_steps(run).graphs[0].units == run.places[0].units
    monkeypatch.setattr("perfdoctor.replay.what_if.sizes.LARGEST_ERROR", -1.0)
    with pytest.raises(PerfdoctorError, match="is off by"):
        replay_of_all_steps(run)


def test_a_run_of_one_rank_is_one_rank():
    assert asked(ranks(1)).step_ns[1] == asked(ranks(1)).recorded_ns
    stop = size_change("ranks", "1", 1.0, prepare(merge([faulty()])))
    assert (stop.samples, stop.ranks) == (1.0, 1)

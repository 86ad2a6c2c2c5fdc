"""exposed-communication without a GPU: host threads send, each message has a fixed cost, and ranks wait for each other in turn."""

from __future__ import annotations

import numpy as np
import pytest
from builders import findings, only_finding, summary
from machine_builders import beside, on_cores
from talking import ASKING_NS, DISPATCH_NS, UNIT_NS, talking

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.vocabulary.rulebook import load_rules

#: Of compute, where it is not known which of it is the backward pass.
BACKWARD = 0.67


@pytest.fixture(autouse=True)
def as_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are those of the replay, before they are made as wide as measured savings are."""
    monkeypatch.setattr("perfdoctor.diagnosis.predicted_saving.spread_of", lambda _: None)


def test_the_predicted_saving_is_what_compute_could_hide_and_the_cost_of_messages():
    """31 short messages and a long one, 10 units of compute: half of its backward pass hides all but the last of them,
    and one message is left."""
    drawn, step = talking([[10] + [0] * 31] * 2, [2] * 31 + [40], parts=32, steps=4)
    saving = only_finding("exposed-communication", drawn).saving_ns_per_step
    assert step == 10 + 62 + 40
    assert saving.high == pytest.approx(102 * UNIT_NS, rel=0.001)  # all that is not compute
    price = 2 * UNIT_NS - DISPATCH_NS
    asking = 31 / 32 * 32 * DISPATCH_NS
    assert saving.likely == pytest.approx(31 * price + 0.5 * 31 / 32 * BACKWARD * 10 * UNIT_NS + asking, rel=0.001)


def test_a_few_long_messages_are_worth_what_compute_hides():
    drawn, _ = talking([10, 10], 30, steps=5)
    saving = only_finding("exposed-communication", drawn).saving_ns_per_step
    # what a backward pass in 10 units of compute hides of two halves: one message merges with nothing
    assert saving.likely == pytest.approx(0.5 / 2 * BACKWARD * 10 * UNIT_NS, rel=0.001)
    assert saving.high == pytest.approx(30 * UNIT_NS, rel=0.001)


def test_waiting_by_turns_is_its_own_and_not_rank_skews():
    drawn, step = talking([[5, 8], [8, 5]], 3, parts=2)
    assert findings("rank-skew", drawn) == []
    finding = only_finding("exposed-communication", drawn)
    assert step == 22
    assert finding.saving_ns_per_step.high == pytest.approx((22 - 13) * UNIT_NS, abs=4 * ASKING_NS)
    by_turns = 3 * UNIT_NS
    # of two messages of 3 one is left, of which both a quarter is hidden; to ask for one of them; and the waiting
    likely = (1 + 2 * 0.25) * (3 * UNIT_NS - DISPATCH_NS) + DISPATCH_NS + by_turns
    assert finding.saving_ns_per_step.likely == pytest.approx(likely, abs=5_000)


def test_waiting_for_a_rank_that_is_always_late_stays_rank_skews():
    drawn, _ = talking([5, 12], 1, parts=2)
    finding = only_finding("rank-skew", drawn)
    assert finding.values["late_rank"] == 1
    assert finding.saving_ns_per_step.high == pytest.approx(2 * 7 * UNIT_NS, rel=0.01)


def test_it_is_simulated_and_no_step_gets_shorter_than_its_compute():
    drawn, step = talking([[5, 8], [8, 5]], 3, parts=2)
    diagnosis = diagnose(drawn, list(load_rules().values()))
    found = {each.rule: each for each in diagnosis.findings}["exposed-communication"]
    assert diagnosis.prediction.replay_error == pytest.approx(0, abs=0.01)
    assert "during which the training thread runs no op" in found.summary
    assert "; threads send on the cores that compute" in found.confidence_because
    assert "every rank" not in found.confidence_because
    assert found.saving_ns_per_step.high <= (step - 13) * UNIT_NS
    assert found.saving_ns_per_step.likely > 0.5 * (step - 13) * UNIT_NS


@pytest.mark.parametrize(("computing", "late_by"), [([5, 12], 7), ([5, 30], 25)])
def test_without_its_lateness_a_rank_of_two_takes_what_the_other_takes(computing, late_by):
    drawn, step = talking(computing, 3)
    found = {each.rule: each for each in diagnose(drawn, list(load_rules().values())).findings}["rank-skew"]
    assert step - late_by == computing[0] + 3
    assert found.saving_ns_per_step.likely == pytest.approx(late_by * UNIT_NS, rel=0.02)
    assert found.saving_ns_per_step.high <= late_by * UNIT_NS + 2 * ASKING_NS


@pytest.mark.parametrize(("busy", "hidden"), [(8.0, 0.0), (7.6, 2.0), (4.0, BACKWARD * 10 / 2)])
def test_compute_hides_no_more_than_idle_cores_take_over(busy, hidden):
    """Eight cores; a step of 40 units, of which 10 compute. One message, of which half can be hidden."""
    drawn, step = talking([10, 10], 30, steps=5)
    assert step == 40
    sampled = on_cores(drawn, allowed_cores=8, busy_cores=busy, idle_cores=8 - busy, program_cores=busy)
    saving = only_finding("exposed-communication", sampled).saving_ns_per_step
    assert saving.likely == pytest.approx(hidden * UNIT_NS, rel=0.01)


ROWS = "[[256, 256], [256, 256]]"


def by_chance(seed: int):
    """Ranks with the same work, each late now and then: heavy tails, and a step is half like the one before it."""
    draw = np.random.default_rng(seed)
    ranks, steps = 2 + 2 * (seed % 2), 12
    noise = draw.standard_t(3, size=(steps, ranks))
    for step in range(1, steps):
        noise[step] = 0.5 * noise[step - 1] + 0.87 * noise[step]
    more = np.maximum(np.rint(20 + 5 * noise), 0).astype(int).tolist()
    return talking([20] * ranks, 2, steps=steps, more=more, shapes=ROWS)[0]


def test_of_twenty_jobs_in_which_chance_alone_makes_ranks_late_one_may_seem_to_have_a_straggler():
    found = [each for seed in range(20) for each in findings("rank-skew", by_chance(seed))]
    assert len(found) > 15  # they do wait for each other
    assert sum(each.confidence == "high" for each in found) <= 1
    assert sum("is the straggler" in summary(each) for each in found) <= 1
    assert {each.saving_ns_per_step.likely for each in found if each.situation == "chance"} == {0}


def late_by_turns(**of_processes: list[int]):
    drawn = talking([20, 20], 2, steps=10, more=[[9, 0], [0, 5]] * 5, shapes=ROWS)[0]
    end_ns = int(drawn.ops.end_ns.max())
    cores = [
        {"rank": rank, "process": 100 + rank, "start_ns": 0, "end_ns": end_ns, "name": "recorded steps"}
        | {name: values[rank] for name, values in of_processes.items()}
        for rank in range(2)
    ]
    return beside(drawn, cpu_processes=cores) if of_processes else drawn


def test_ranks_with_the_same_work_that_are_late_by_turns_have_no_straggler():
    finding = only_finding("rank-skew", late_by_turns())
    assert (finding.situation, finding.confidence) == ("chance", "medium")
    assert "Who is late is chance, and no rank is a straggler" in summary(finding)
    assert "late in 5 of 10 steps" in summary(finding)
    assert "ready to run" not in summary(finding)


def test_where_they_had_no_cores_meanwhile_it_says_so():
    finding = only_finding("rank-skew", late_by_turns(thread_delay_ns=[9_000_000] * 2, allowed_cores=[2, 2]))
    assert "share 2.0 cores: a training thread was ready to run and had none" in summary(finding)


def always_late(delays_ns: list[int]):
    drawn = talking([20, 20], 2, steps=10, more=[[0, 9], [0, 11]] * 5, shapes=ROWS)[0]
    end_ns = int(drawn.ops.end_ns.max())
    cores = [
        {"rank": rank, "process": 100 + rank, "start_ns": 0, "end_ns": end_ns, "name": "recorded steps"}
        | {"thread_delay_ns": delay_ns, "allowed_cores": 2}
        for rank, delay_ns in enumerate(delays_ns)
    ]
    return beside(drawn, cpu_processes=cores)


@pytest.mark.parametrize(("delays_ns", "situation", "words"), [
    ([0, 8_000_000], "contention", "for lack of a core"),
    ([0, 0], "slower-compute", "1.50 times as long as the others for the same work"),
])  # fmt: skip
def test_a_rank_that_takes_longer_for_the_same_work_has_no_more_of_it(delays_ns, situation, words):
    finding = only_finding("rank-skew", always_late(delays_ns))
    assert (finding.values["late_rank"], finding.situation) == (1, situation)
    assert words in summary(finding)
    assert "more work" not in summary(finding)


def test_small_sums_cost_their_messages_and_not_their_bytes():
    drawn, _ = talking([[10] * 8] * 2, [12] * 8, parts=8, steps=5, shapes=ROWS)
    finding = only_finding("exposed-communication", drawn)
    assert finding.situation == "small"
    assert "8 small ones a step, of 66 KB at most in the middle" in summary(finding)
    unknown, _ = talking([[10] * 8] * 2, [12] * 8, parts=8, steps=5)
    assert only_finding("exposed-communication", unknown).situation == ""


def test_a_rank_that_sleeps_in_every_step_is_late_again_however_busy_its_core_is():
    """What it computes varies more than it sleeps: by its lateness alone it might be chance."""
    draw = np.random.default_rng(3)
    busy = np.maximum(np.rint(30 + 20 * draw.standard_normal((10, 2))), 0).astype(int).tolist()
    kept = talking([20, 20], 2, steps=10, more=busy, shapes=ROWS)[0]
    sleeps = talking([20, 20], 2, steps=10, more=busy, asleep=[0, 25], shapes=ROWS)[0]
    assert only_finding("rank-skew", kept).situation == "chance"
    finding = only_finding("rank-skew", sleeps)
    assert (finding.values["late_rank"], finding.confidence) == (1, "medium")
    assert "Rank 1 is the straggler" in summary(finding)

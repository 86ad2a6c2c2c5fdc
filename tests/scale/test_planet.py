"""Is the one fault of a job with several parallel groups found, named by rank, group or node, and nothing else?"""

from __future__ import annotations

import pytest
from planet import GEMM, MICROBATCHES, SLOW_GPU, Job, simulated, write

from perfdoctor.diagnosis.engine import examine
from perfdoctor.records.findings import Advice
from perfdoctor.scale.read import read_run
from perfdoctor.vocabulary.rulebook import load_rules

RANKS = 40
WAITS = ("rank-skew", "slow-links", "gpus-differ")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """By fault, the findings about several ranks, and the run."""

    def of(fault: str):
        folder = tmp_path_factory.mktemp(fault)
        write(Job.of(RANKS, fault), folder)
        run = read_run([folder], lambda _: None, most_in_full=0)
        diagnosis = examine(run, list(load_rules().values())).diagnosis
        assert [each.rule for each in diagnosis.outcomes if each.status == "failed"] == []
        every: dict[str, Advice] = {
            each.rule: each for top in diagnosis.findings for each in (top, *top.symptoms) if each.rule in WAITS
        }
        return every, run

    return {fault: of(fault) for fault in ("none", "rank", "link", "node", "all")}


def test_a_healthy_job_has_no_such_finding(found):
    assert found["none"][0] == {}


def test_a_slow_rank_is_named_and_not_those_that_waited_for_it(found):
    findings, run = found["rank"]
    assert set(findings) == {"rank-skew", "gpus-differ"}
    assert f"Rank {Job.of(RANKS, 'rank').slow_rank} is the straggler" in findings["rank-skew"].summary
    assert Job.of(RANKS, "rank").slow_rank in run.timeline.ranks
    won = findings["gpus-differ"].saving_ns_per_step
    extra_ns = 1000 * MICROBATCHES * 3 * GEMM * (SLOW_GPU - 1)  # forward, and backward twice as long
    assert won.low <= extra_ns <= won.high


def test_a_slow_link_is_named_by_its_group_and_node(found):
    job = Job.of(RANKS, "link")
    findings, run = found["link"]
    assert set(findings) == {"slow-links"}
    assert job.slow_group * job.tensor_size in run.timeline.ranks
    first = job.slow_group * job.tensor_size
    assert (
        f"ranks {first}-{first + job.tensor_size - 1} (in the node of rank {first})" in findings["slow-links"].summary
    )
    longer_ns = 1000 * float((edges_of("link") - edges_of("none")).mean())
    assert findings["slow-links"].saving_ns_per_step.likely == pytest.approx(longer_ns, rel=0.1)


def edges_of(fault: str):
    """How long the last step took on each rank, in µs, as it was simulated."""
    _, edges = simulated(Job.of(RANKS, fault))
    return edges[-1] - edges[-2]


def test_a_slow_node_is_named_by_its_ranks(found):
    job = Job.of(RANKS, "node")
    findings, _ = found["node"]
    assert set(findings) == {"rank-skew"}
    first = job.slow_node * job.tensor_size
    assert f"one node ({first}-{first + job.tensor_size - 1})" in findings["rank-skew"].summary


def test_a_slow_rank_and_a_slow_link_at_once_are_both_named(found):
    job = Job.of(RANKS, "all")
    findings, _ = found["all"]
    assert f"Rank {job.slow_rank} is the straggler" in findings["rank-skew"].summary
    assert f"ranks {job.slow_group * job.tensor_size}-" in findings["slow-links"].summary


def test_the_numbers_of_all_ranks_count_and_not_only_of_those_read_in_full(found):
    _, run = found["rank"]
    assert len(run.places) < len(run.job.places) == RANKS
    assert sum(run.stands_for) == RANKS
    slow_ns = 1000 * MICROBATCHES * 3 * GEMM * (SLOW_GPU - 1) / RANKS
    usual = next(place for place in run.places if place.rank != Job.of(RANKS, "rank").slow_rank)
    compute = run.mean(lambda place: place.compute.total_ns)
    assert compute == pytest.approx(usual.compute.total_ns / usual.units + slow_ns, rel=0.01)

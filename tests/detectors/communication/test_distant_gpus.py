"""distant-gpus: a job on GPUs without a ring of NVLinks, where the machine has better ones."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from builders import draw, findings, only_finding, summary
from machine_builders import beside, fact, links

from perfdoctor.metrics.communication.topology import has_ring, pairs
from perfdoctor.model.timeline import merge

#: A hybrid cube mesh as an 8-GPU V100 machine has it.
CUBE = {
    (0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 5), (2, 3), (2, 6), (3, 7), (4, 5), (4, 6), (4, 7), (5, 6),
    (5, 7), (6, 7),
}  # fmt: skip


def cube():
    return links(*((a, b, "NV1" if (a, b) in CUBE else "SYS") for a, b in combinations(range(8), 2)))


def job(*devices: int):
    return [fact("device", str(device), float(device), process=device) for device in devices]


def test_it_fires_on_two_gpus_that_only_meet_from_socket_to_socket():
    finding = only_finding("distant-gpus", beside(links=cube(), nccl_facts=job(0, 5)))
    assert finding.values["pairs"] == 1
    assert finding.confidence == "high"
    assert finding.values["instead"] in ("0, 1", "0, 2", "0, 3", "0, 4")
    assert "The 2 GPUs of this job (0, 5) have 1 pairs without NVLink" in summary(finding)


def test_the_ranks_tell_the_gpus_as_well():
    ranks = [
        draw(kernels="####    ", nccl="    ====", launched_us_before=50, repeat=6, rank=rank, device=rank)
        for rank in (0, 1)
    ]
    apart = links((0, 1, "SYS"), (2, 3, "NV4"), (0, 2, "SYS"), (0, 3, "SYS"), (1, 2, "SYS"), (1, 3, "SYS"))
    finding = only_finding("distant-gpus", beside(merge(ranks), links=apart))
    assert finding.values["instead"] == "2, 3"
    assert finding.confidence == "medium"  # a launcher may have renumbered them
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely) == (0, 0)
    assert saving.high == 400_000  # all of the exposed collective


def test_it_stays_silent_on_a_job_that_has_a_ring_though_pairs_have_no_link():
    assert findings("distant-gpus", beside(links=cube(), nccl_facts=job(*range(8)))) == []
    assert findings("distant-gpus", beside(links=cube(), nccl_facts=job(0, 1, 2, 3))) == []


def test_it_stays_silent_where_no_better_choice_is_there():
    without = links(*((a, b, "SYS") for a, b in combinations(range(4), 2)))
    assert findings("distant-gpus", beside(links=without, nccl_facts=job(0, 1))) == []


def test_it_stays_silent_where_nobody_knows_which_gpus_the_job_has():
    assert findings("distant-gpus", beside(links=cube())) == []


def test_it_stays_silent_just_below_two_gpus():
    assert findings("distant-gpus", beside(links=cube(), nccl_facts=job(5))) == []


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_rings_are_those_that_trying_every_order_finds(count):
    table = pairs(beside(links=cube()))
    linked = {frozenset(pair) for pair in CUBE}
    for chosen in combinations(range(8), count):
        by_trying = any(
            all(frozenset((order[n], order[(n + 1) % count])) in linked for n in range(count))
            for order in permutations(chosen)
        )
        assert has_ring(table, chosen) == by_trying, chosen

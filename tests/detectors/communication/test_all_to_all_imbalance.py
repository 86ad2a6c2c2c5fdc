"""all-to-all-imbalance: some ranks carry more bytes through the all-to-alls than others."""

from __future__ import annotations

import pytest
from builders import draw_steps, findings, only_finding
from collective_builders import MIB, MS, described, under

from perfdoctor.model.timeline import merge
from perfdoctor.records.savings import Saving


def job_ranks(*sizes: int, exposed: int = 10, kind: str = "all_to_all"):
    """30 ms of compute, and an all-to-all of 10 ms with so many MiB on each rank."""
    return [
        described(
            draw_steps(
                kernels="#" * (40 - exposed) + " " * exposed,
                nccl=" " * (40 - exposed) + "=" * exposed,
                rank=rank,
                device=rank,
            ),
            kind=kind,
            bytes=size,
        )
        for rank, size in enumerate(sizes)
    ]


def job(*sizes: int, **more):
    return merge(job_ranks(*sizes, **more))


def test_it_fires_where_one_rank_carries_twice_the_mean():
    finding = only_finding("all-to-all-imbalance", job(*(2 * MIB, 2 * MIB, 8 * MIB, 4 * MIB)))
    assert finding.values["loaded_rank"] == 2
    assert finding.values["excess_percent"] == pytest.approx(100)  # 8 of a mean of 4
    # even loads would take half of the 10 ms
    assert finding.saving_ns_per_step == Saving(2.5 * MS, 5 * MS, 5 * MS)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("all-to-all-imbalance", job(100 * MIB, 100 * MIB, 129 * MIB)) == []  # 129 of 109.7: 18 %
    assert len(findings("all-to-all-imbalance", job(100 * MIB, 100 * MIB, 140 * MIB))) == 1  # 140 of 113.3: 24 %


def test_it_stays_silent_for_even_loads():
    assert findings("all-to-all-imbalance", job(4 * MIB, 4 * MIB)) == []


def test_it_stays_silent_where_bytes_are_not_known():
    assert findings("all-to-all-imbalance", job(-1, -1)) == []


def test_it_stays_silent_where_the_uneven_ones_are_short():
    assert findings("all-to-all-imbalance", job(2 * MIB, 8 * MIB, exposed=1)) == []


def test_it_stays_silent_for_other_collectives():
    assert findings("all-to-all-imbalance", job(2 * MIB, 8 * MIB, kind="all_reduce")) == []


def test_it_is_a_symptom_of_exposed_communication():
    assert "all-to-all-imbalance" in under(job(2 * MIB, 8 * MIB), "exposed-communication")


def test_even_loads_are_the_mean_of_what_is_sent():
    """Each of three sends 6 MiB; one receives 12, the others 3. Even, all would receive 6: half of the time."""
    ranks = [described(each, sent_bytes=6 * MIB) for each in job_ranks(6 * MIB, 6 * MIB, 12 * MIB)]
    finding = only_finding("all-to-all-imbalance", merge(ranks))
    assert finding.values["excess_percent"] == pytest.approx(100)
    assert finding.saving_ns_per_step.likely == 5 * MS

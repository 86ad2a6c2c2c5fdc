"""gpus-differ: one GPU runs the same kernels slower than the others."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding
from collective_builders import MS, under

from perfdoctor.timeline.model import merge


def rank(number: int, gemm: int = 10, other: int = 10, *, gpu: str = "NVIDIA H100 80GB HBM3", repeats: int = 1):
    """Two kernels of so many ms, and a collective that ends the step for all after 40 ms."""
    busy = (gemm + other) * repeats
    return draw(
        kernels=("G" * gemm + "e" * other) * repeats + " " * (40 - busy),
        nccl=" " * busy + "=" * (40 - busy),
        launched_us_before=50,
        repeat=6,
        unit_us=1000,
        rank=number,
        device=number,
        gpu=gpu,
    )


def job(*last: object):
    return merge([rank(0), rank(1), rank(2), *last])


def test_it_fires_where_every_kernel_of_one_rank_is_slower():
    finding = only_finding("gpus-differ", job(rank(3, 13, 13)))
    assert finding.values["slow_rank"] == 3
    assert finding.values["slower_percent"] == pytest.approx(30)
    assert finding.values["kernels_percent"] == 100
    # 26 ms instead of 20
    assert finding.values["excess_ms"] == pytest.approx(6)
    assert finding.saving_ns_per_step.likely == pytest.approx(6 * MS, rel=1e-6)


def test_where_nobody_waits_for_it_nothing_is_promised_for_sure():
    alone = [
        draw(kernels="G" * long + " " * (20 - long), repeat=6, unit_us=1000, rank=number, launched_us_before=50)
        for number, long in enumerate((10, 10, 10, 13))
    ]
    saving = only_finding("gpus-differ", merge(alone)).saving_ns_per_step
    assert (saving.low, saving.likely) == (0, 0)


def test_it_stays_silent_just_below_the_threshold():
    fast = [
        draw(kernels="G" * 100 + " ", repeat=6, unit_us=100, rank=number, launched_us_before=50) for number in (0, 1)
    ]

    def slow(by: int):
        return draw(kernels="G" * (100 + by), repeat=6, unit_us=100, rank=2, launched_us_before=50)

    assert findings("gpus-differ", merge([*fast, slow(9)])) == []
    assert len(findings("gpus-differ", merge([*fast, slow(11)]))) == 1


def test_it_stays_silent_where_only_some_kernels_are_slower():
    """A rank with longer sequences: its attention takes longer, its other kernels do not."""
    assert findings("gpus-differ", job(rank(3, 20, 10))) == []


def test_it_stays_silent_where_the_work_differs():
    """One rank runs its kernels twice as often: more work, whatever each of them takes."""
    assert findings("gpus-differ", job(rank(3, 9, 9, repeats=2))) == []


def test_it_stays_silent_where_the_same_kernels_have_more_blocks():
    """Longer sequences: every kernel takes longer, since it has more to do."""
    ranks = [
        draw(
            kernels="G" * long + "e" * long + " " * (40 - 2 * long),
            nccl=" " * 2 * long + "=" * (40 - 2 * long),
            launched_us_before=50, repeat=6, unit_us=1000, rank=number, device=number, blocks=10 * long,
        )
        for number, long in enumerate((10, 10, 10, 13))
    ]  # fmt: skip
    assert findings("gpus-differ", merge(ranks)) == []


def test_it_stays_silent_where_the_gpus_are_of_two_types():
    assert findings("gpus-differ", job(rank(3, 13, 13, gpu="NVIDIA A100-SXM4-80GB"))) == []


def test_it_stays_silent_where_all_ranks_differ_from_each_other():
    assert findings("gpus-differ", merge([rank(n, 10 + 2 * n, 10 + 2 * n) for n in range(4)])) == []


def test_it_hangs_under_rank_skew():
    assert "gpus-differ" in under(job(rank(3, 13, 13)), "rank-skew")

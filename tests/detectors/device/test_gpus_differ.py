"""gpus-differ: one GPU runs the same kernels slower than the others."""

from __future__ import annotations

import pytest
from builders import BASE_NS, draw, draw_steps, findings, only_finding, timeline
from collective_builders import MS, under

from perfdoctor.model.timeline import merge


def rank(number: int, gemm: int = 10, other: int = 10, *, gpu: str = "NVIDIA H100 80GB HBM3", repeats: int = 1):
    """Two kernels of so many ms, and a collective that ends the step for all after 40 ms."""
    busy = (gemm + other) * repeats
    return draw_steps(
        kernels=("G" * gemm + "e" * other) * repeats + " " * (40 - busy),
        nccl=" " * busy + "=" * (40 - busy),
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
        draw_steps(kernels="G" * long + " " * (20 - long), rank=number) for number, long in enumerate((10, 10, 10, 13))
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


def of_units(*took: int):
    """One kernel a step on each GPU, of so many units of 0.1 ms."""
    return merge([
        draw(kernels="G" * units + " " * (120 - units), repeat=6, unit_us=100, rank=number, launched_us_before=50)
        for number, units in enumerate(took)
    ])  # fmt: skip


def test_among_many_it_is_slow_that_stands_out_from_how_the_others_differ():
    assert len(findings("gpus-differ", of_units(100, 101, 101, 100, 105))) == 1
    # 4 % beyond the middle, and the others lie 2 % apart: that may be the slot
    assert findings("gpus-differ", of_units(99, 101, 101, 100, 105)) == []


def test_among_many_less_than_three_percent_of_the_step_is_not_reported():
    assert findings("gpus-differ", of_units(100, 100, 100, 100, 103)) == []


def many_short(number: int, slow: float, *, short: int = 40, long_us: int = 400):
    """A long kernel and as many of 8 µs as asked for, `slow` times as long; nothing else in a step of 1 ms."""
    rows, calls, marks = [], [], []
    for step in range(6):
        at = BASE_NS + step * 1_000_000
        took = [long_us * 1000] + [8_000] * short
        start = at
        for index, ns in enumerate(took):
            launched = {"rank": number, "process": 100 + number, "correlation": 1000 * step + index + 1}
            calls.append({**launched, "start_ns": at - 9_000, "end_ns": at - 8_000, "name": "cudaLaunchKernel"})
            end = start + round(ns * slow)
            name = "gemm" if not index else "add"
            rows.append({**launched, "device": number, "start_ns": start, "end_ns": end, "name": name, "blocks": 64})
            start = end
        marks.append({"rank": number, "process": 100 + number, "start_ns": at - 10_000, "end_ns": at + 980_000,
                      "name": f"ProfilerStep#{step}"})  # fmt: skip
    return timeline(kernels=rows, calls=calls, ranges=marks, collectives=[], copies=[])


def test_short_kernels_are_the_same_work_though_they_are_not_timed():
    """400 of 720 µs in one long kernel, 40 times 8 µs: 10 % slower, all of it counts."""
    finding = only_finding("gpus-differ", merge([many_short(n, 1.1 if n == 2 else 1.0) for n in range(4)]))
    assert finding.values["excess_ms"] == pytest.approx(0.072, rel=0.01)
    rare = [many_short(n, 1.1 if n == 2 else 1.0, short=80, long_us=150) for n in range(4)]
    assert findings("gpus-differ", merge(rare)) == []  # 150 of 790 µs do not speak for the rest


def test_a_kernel_more_at_the_edge_of_the_window_is_no_other_work():
    usual = [many_short(n, 1.1 if n == 2 else 1.0, short=60 + (n == 1)) for n in range(4)]
    assert len(findings("gpus-differ", merge(usual))) == 1
    other = [many_short(n, 1.1 if n == 2 else 1.0, short=60 + 5 * (n == 1)) for n in range(4)]
    assert findings("gpus-differ", merge(other)) == []


def test_it_stays_silent_where_only_some_kernels_are_slower():
    """A rank with longer sequences: its attention takes longer, its other kernels do not."""
    assert findings("gpus-differ", job(rank(3, 20, 10))) == []


def test_it_stays_silent_where_the_work_differs():
    """One rank runs its kernels twice as often: more work, whatever each of them takes."""
    assert findings("gpus-differ", job(rank(3, 9, 9, repeats=2))) == []


def test_it_stays_silent_where_the_same_kernels_have_more_blocks():
    """Longer sequences: every kernel takes longer, since it has more to do."""
    ranks = [
        draw_steps(
            kernels="G" * long + "e" * long + " " * (40 - 2 * long),
            nccl=" " * 2 * long + "=" * (40 - 2 * long),
            rank=number, device=number, blocks=10 * long,
        )
        for number, long in enumerate((10, 10, 10, 13))
    ]  # fmt: skip
    assert findings("gpus-differ", merge(ranks)) == []


def test_it_stays_silent_where_the_gpus_are_of_two_types():
    assert findings("gpus-differ", job(rank(3, 13, 13, gpu="NVIDIA A100-SXM4-80GB"))) == []


def test_it_stays_silent_where_all_ranks_differ_from_each_other():
    assert findings("gpus-differ", merge([rank(n, 10 + 2 * n, 10 + 2 * n) for n in range(4)])) == []


def test_it_is_a_symptom_of_rank_skew():
    assert "gpus-differ" in under(job(rank(3, 13, 13)), "rank-skew")

"""DCGM's samples beside a trace are the same signal as those of Nsight Systems, as far as they are of this GPU and clock."""

from __future__ import annotations

import numpy as np
import pytest
from builders import BASE_NS, draw, only_place
from counters_builder import sampled
from machine_builders import beside, samples

from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.counters.means import gpu_metrics
from perfdoctor.metrics.counters.samples import usable

MS = 1_000_000
#: Ten steps of 2 s, half of each a product.
DRAWN = draw(kernels="G" * 10 + " " * 10, launched_us_before=50, repeat=10, unit_us=100_000, gpu="NVIDIA H100")
COUNT = 200


def dcgm(count: int = COUNT, *, on_clock: bool = True, **more):
    """Ten samples a second: of each, what happened before it."""
    busy = [1.0 if 0 < number % 20 <= 10 else 0.0 for number in range(count)]
    return samples(
        count, start_ns=BASE_NS, every_ns=100 * MS, on_clock=on_clock, sm_active_share=[0.9 * each for each in busy],
        gr_active_share=busy, tensor_active_share=[0.6 * each for each in busy], dram_active_share=0.25, **more,
    )  # fmt: skip


def metrics(timeline) -> dict[str, object]:
    return {row.metric: row for row in gpu_metrics(prepare(timeline))}


def test_they_are_the_means_of_the_window_and_of_kernels():
    found = metrics(beside(DRAWN, device_samples=dcgm()))
    tensor = found["tensor_active"]
    assert (tensor.name, tensor.unit, tensor.samples) == ("tensor cores active (DCGM)", "percent", COUNT)
    assert tensor.mean == pytest.approx(30, abs=1)
    assert tensor.mean_in_kernels == pytest.approx(60, abs=0.1)
    assert found["dram_active"].mean == pytest.approx(25)


def test_a_sample_covers_the_time_before_it():
    found = usable(only_place(beside(DRAWN, device_samples=dcgm())))
    assert set((found.ends - found.starts).tolist()) == {100 * MS}
    assert int(found.ends[5]) == BASE_NS + 500 * MS


def test_without_times_only_the_mean_of_all_samples_is_known():
    timeline = beside(DRAWN, device_samples=dcgm(on_clock=False))
    tensor = metrics(timeline)["tensor_active"]
    assert (tensor.recording_mean, tensor.mean, tensor.mean_in_kernels) == (pytest.approx(30, abs=1), None, None)
    assert any("only their mean of all samples" in note for note in examine(prepare(timeline), []).diagnosis.notes)


def test_samples_of_nsight_systems_count_more():
    both = beside(sampled(DRAWN, {}), device_samples=dcgm())
    assert metrics(both)["sm_active"].name == "sm_active_share"
    assert "dram_active" not in metrics(both)


def test_whose_gpu_it_is_must_be_known():
    others = [*dcgm(), *samples(COUNT, device=1, sm_active_share=0.9)]
    assert metrics(beside(DRAWN, device_samples=others)) == {}
    idle = [*dcgm(), *samples(COUNT, device=1, sm_active_share=0.0, utilization_share=0.0)]
    assert "sm_active" in metrics(beside(DRAWN, device_samples=idle))


def test_a_driver_without_such_counters_gives_none():
    assert metrics(beside(DRAWN, device_samples=samples(COUNT, power_w=300.0, on_clock=True))) == {}
    assert np.isnan(only_place(DRAWN).timeline["gpu_counters"].floats("sm_active_share")).all()

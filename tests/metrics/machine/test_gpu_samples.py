"""Whose samples are whose, and what counts as load."""

from __future__ import annotations

import pytest
from builders import draw
from machine_builders import beside, samples
from msgspec.structs import replace

from perfdoctor.hardware.links import pcie_bytes_per_second
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.machine.gpu_samples import free_clock_mhz, gpus, of_places, table
from perfdoctor.model.timeline import Timeline, merge


def job(*devices: int, world_size: int = 0) -> Timeline:
    drawn = [
        draw(kernels="####  ", launched_us_before=50, repeat=6, rank=rank, device=device)
        for rank, device in enumerate(devices)
    ]
    return replace(merge(drawn), world_size=world_size)


def whose(timeline: Timeline, *rows: list[dict[str, object]]) -> dict[tuple[int, int], int]:
    run = prepare(beside(timeline, device_samples=[row for each in rows for row in each]))
    return {place: gpu.device for place, gpu in of_places(run, 0.5).items()}


def idle(device: int) -> list[dict[str, object]]:
    return samples(5, device=device, utilization_share=0.0)


def busy(device: int) -> list[dict[str, object]]:
    return samples(5, device=device)


def test_ranks_with_numbers_of_their_own_have_the_gpus_of_these_numbers():
    assert whose(job(0, 1), busy(0), busy(1), idle(2)) == {(0, 0): 0, (1, 1): 1}


def test_one_recorded_rank_of_a_job_on_all_gpus():
    assert whose(job(0, world_size=3), busy(0), busy(1), busy(2)) == {(0, 0): 0}


def test_ranks_that_all_see_device_0_stand_in_order_for_the_gpus_at_work():
    """Launchers that hide the other GPUs from each rank."""
    assert whose(job(0, 0), busy(4), idle(5), busy(6)) == {(0, 0): 4, (1, 0): 6}
    assert whose(job(0), idle(0), busy(5)) == {(0, 0): 5}


def test_where_another_job_is_at_work_too_nobody_knows():
    assert whose(job(0), busy(0), busy(1)) == {}
    assert whose(job(0, 1), busy(0), idle(1)) == {}


def test_load_is_measured_by_utilisation_then_by_the_sms_then_by_not_being_idle():
    nan = float("nan")
    rows = [
        *samples(1, utilization_share=0.6), *samples(1, utilization_share=0.4),
        *samples(1, utilization_share=nan, sm_active_share=0.9), *samples(1, utilization_share=nan, reasons=0x4),
        *samples(1, utilization_share=nan, reasons=0x1), *samples(1, utilization_share=nan, reasons=-1),
    ]  # fmt: skip
    (gpu,) = gpus(beside(device_samples=rows))
    assert gpu.under_load(0.5).tolist() == [True, False, True, True, False, False]


def test_the_free_clock_is_a_median_of_what_nothing_holds():
    rows = samples(5, sm_clock_mhz=[1900.0, 1950.0, 1980.0, 900.0, 100.0], reasons=[0, 0, 0, 0x20, 0], max_sm_clock_mhz=2000.0,
                   utilization_share=[1.0, 1.0, 1.0, 1.0, 0.0])  # fmt: skip
    (gpu,) = gpus(beside(device_samples=rows))
    assert free_clock_mhz(gpu, [], 0.5, 3) == (1950, True)
    assert free_clock_mhz(gpu, [], 0.5, 4) == (2000, False)


def test_the_table_tells_what_is_known():
    rows = table(gpus(beside(device_samples=samples(3, power_w=[300.0, 310.0, 320.0]) + idle(1))), 0.5)
    assert rows is not None
    assert rows.rows == ((0, 3, "310", "unknown", "unknown"),)
    assert table([], 0.5) is None


@pytest.mark.parametrize(("generation", "gigabytes"), [(3, 15.754), (4, 31.508), (5, 63.015)])
def test_sixteen_lanes_carry_what_the_standard_says(generation, gigabytes):
    assert pcie_bytes_per_second(generation, 16) / 1e9 == pytest.approx(gigabytes, abs=0.001)

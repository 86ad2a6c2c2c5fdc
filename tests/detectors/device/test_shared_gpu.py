"""shared-gpu: somebody else is on a GPU of this run."""

from __future__ import annotations

from builders import draw, draw_steps, findings, only_finding, summary
from counters_builder import sampled
from machine_builders import beside, samples

GIB = 1 << 30


def training(rank: int = 0, device: int | None = None):
    return draw(
        kernels="######  ", launched_us_before=50, repeat=8, rank=rank, device=rank if device is None else device
    )


def reserved(gib: int):
    return [
        {"rank": 0, "process": 100, "device": 0, "start_ns": n, "end_ns": n, "reserved_bytes": gib * GIB,
         "allocated_bytes": gib * GIB, "name": "cuda"}
        for n in range(8)
    ]  # fmt: skip


def test_it_fires_where_two_processes_are_on_the_gpu_of_one_rank():
    finding = only_finding("shared-gpu", beside(training(), device_samples=samples(10, processes=2.0)))
    assert "2 processes use GPU 0 in 100 % of the samples, although this run has only 1 there" in summary(finding)
    assert finding.saving_ns_per_step.high == 0


def test_memory_that_nobody_of_this_run_reserved_makes_it_sure():
    rows = samples(10, processes=2.0, memory_used_bytes=30.0 * GIB)
    finding = only_finding("shared-gpu", beside(training(), device_samples=rows, memory=reserved(20)))
    assert (finding.situation, finding.confidence) == ("memory", "high")
    assert finding.values["foreign_mib"] == 10 * 1024


def test_it_stays_silent_with_one_process():
    assert findings("shared-gpu", beside(training(), device_samples=samples(10, processes=1.0))) == []


def test_it_stays_silent_about_a_gpu_that_the_run_does_not_have():
    rows = samples(10, device=0, processes=1.0) + samples(10, device=5, processes=3.0, utilization_share=0.0)
    assert findings("shared-gpu", beside(training(), device_samples=rows)) == []


def test_it_stays_silent_just_below_half_of_the_time():
    some = [2.0] * 4 + [1.0] * 6
    assert findings("shared-gpu", beside(training(), device_samples=samples(10, processes=some))) == []
    half = [2.0] * 5 + [1.0] * 5
    assert len(findings("shared-gpu", beside(training(), device_samples=samples(10, processes=half)))) == 1


def test_it_stays_silent_where_processes_are_not_known():
    assert findings("shared-gpu", beside(training(), device_samples=samples(10))) == []


def test_it_stays_silent_where_nobody_knows_which_gpu_is_the_runs():
    assert findings("shared-gpu", beside(device_samples=samples(10, processes=3.0))) == []
    others = samples(10, device=0, processes=2.0) + samples(10, device=1, processes=1.0)
    assert findings("shared-gpu", beside(training(), device_samples=others)) == []  # two at work, one rank: which?


def test_one_list_of_processes_is_enough_where_somebody_elses_memory_is_in_it():
    listed = {"processes": 2.0, "utilization_share": float("nan"), "reasons": -1, "name": "processes.csv"}
    one = samples(1, memory_used_bytes=30.0 * GIB, **listed)
    assert findings("shared-gpu", beside(training(), device_samples=one)) == []
    finding = only_finding("shared-gpu", beside(training(), device_samples=one, memory=reserved(20)))
    assert finding.values["foreign_mib"] == 10 * 1024
    small = samples(1, memory_used_bytes=23.9 * GIB, **listed)
    assert findings("shared-gpu", beside(training(), device_samples=small, memory=reserved(20))) == []


def test_samples_without_processes_do_not_hide_a_list_of_them():
    rows = samples(10, name="query.csv", power_w=300.0) + samples(
        10, name="processes.csv", processes=3.0, utilization_share=float("nan"), reasons=-1
    )
    assert only_finding("shared-gpu", beside(training(), device_samples=rows)).values["processes"] == 3


# What the GPU's own counters saw


def counted(idle: float):
    """Steps whose second half is idle, and what its counters show meanwhile."""
    return sampled(
        draw_steps(kernels="GGGGGeeeee" + " " * 10), {}, idle={"sm_active_share": idle, "gr_active_share": idle}
    )


def test_sms_at_work_while_nothing_of_the_program_runs_are_somebody_elses():
    finding = only_finding("shared-gpu", counted(0.3))
    assert (finding.situation, finding.saving_ns_per_step.high) == ("counted", 0)
    assert "While nothing of the program ran on GPU 0, 30 % of its SMs were at work" in summary(finding)


def test_it_stays_silent_just_below_a_twentieth_of_the_sms():
    assert findings("shared-gpu", counted(0.04)) == []
    assert len(findings("shared-gpu", counted(0.06))) == 1


def test_a_gpu_that_is_never_idle_shows_nobody_else():
    full = sampled(draw_steps(kernels="GGGGGeeeee"), {}, idle={"sm_active_share": 0.9})
    assert findings("shared-gpu", full) == []

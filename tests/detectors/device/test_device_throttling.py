"""device-throttling: something holds the clocks down while the GPU works."""

from __future__ import annotations

import numpy as np
import pytest
from builders import BASE_NS, draw, findings, only_finding, summary
from collective_builders import under
from counters_builder import sampled
from machine_builders import BRAKE, HARDWARE, HEAT, POWER, SET, beside, samples
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import merge
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000


def training(rank: int = 0):
    """Ten steps of 10 ms: 6 ms of products, 2 ms of other kernels, 2 ms of nothing."""
    return draw(
        kernels="GGGGGGee  ", launched_us_before=50, repeat=10, unit_us=1000, rank=rank, device=rank, gpu="NVIDIA H100"
    )


def hot(count: int = 30, held: int = 15, **more):
    """`held` samples at 990 MHz because of heat, the others at 1,980."""
    return samples(
        count,
        sm_clock_mhz=[990.0] * held + [1980.0] * (count - held),
        reasons=[HEAT] * held + [0] * (count - held),
        max_sm_clock_mhz=1980.0,
        **more,
    )


def test_it_fires_on_heat_and_counts_the_time_of_products_that_the_clock_took():
    """The first half of the run is at half the clock: of 6 ms of products a step half is lost, in half of the steps."""
    drawn = beside(training(), device_samples=hot(40, 20, start_ns=BASE_NS, every_ns=int(2.5 * MS), on_clock=True))
    finding = only_finding("device-throttling", drawn)
    saving = finding.saving_ns_per_step
    assert saving.likely == pytest.approx(saving.low * 2, abs=2)
    place_share = saving.likely / (6 * MS)
    # half of the clock in about half of the analysed steps (the edges are left out)
    assert place_share == pytest.approx(0.25, abs=0.07)
    assert saving.high == pytest.approx(saving.likely * 8 / 6, rel=0.1)  # with the kernels that are no products
    assert finding.situation == "heat"
    assert (finding.values["clock_mhz"], finding.values["free_mhz"]) == (990, 1980)
    assert (
        "Heat throttles 1 of 1 GPUs in 50 % of 40 samples under load: GPU 0 then runs at 990 instead of 1980"
        in summary(finding)
    )


def test_the_saving_is_recomputed_by_hand_from_samples_and_kernels():
    """A plain loop over samples and kernels, without intervals."""
    rows = hot(40, 20, start_ns=BASE_NS, every_ns=int(2.5 * MS), on_clock=True)
    drawn = beside(training(), device_samples=rows)
    (place,) = prepare(drawn).places
    begin, end = int(place.window.starts[0]), int(place.window.ends[-1])
    lost = 0.0
    for number, row in enumerate(rows):
        at = int(row["start_ns"])
        until = int(rows[number + 1]["start_ns"]) if number + 1 < len(rows) else at + int(2.5 * MS)
        for start, stop, name in zip(drawn.kernels.start_ns, drawn.kernels.end_ns, drawn.kernels.name, strict=True):
            if "gemm" in name and row["reasons"]:
                lost += max(0, min(until, stop, end) - max(at, start, begin)) * (1 - 990 / 1980)
    finding = only_finding("device-throttling", drawn)
    assert finding.saving_ns_per_step.likely == pytest.approx(lost / place.units, abs=2)


def test_samples_on_no_clock_hold_for_all_of_the_run_on_the_mean():
    finding = only_finding("device-throttling", beside(training(), device_samples=hot()))
    assert finding.saving_ns_per_step.likely == pytest.approx(6 * MS * 0.5 * 0.5, rel=0.01)


def test_played_again_the_step_is_shorter_by_that():
    """Each step waits for the device: what products win, the step wins."""
    bound = draw(kernels=" GGGGGGee ", host=["ll sssssss"], repeat=10, unit_us=1000, gpu="NVIDIA H100")
    diagnosis = diagnose(beside(bound, device_samples=hot()), list(load_rules().values()))
    (advice,) = [each for each in diagnosis.findings if each.rule == "device-throttling"]
    assert advice.saving_ns_per_step.likely == pytest.approx(6 * MS / 4, rel=0.01)


def test_without_steps_it_informs():
    finding = only_finding("device-throttling", beside(device_samples=hot()))
    assert finding.saving_ns_per_step.high == 0
    assert finding.confidence == "high"


@pytest.mark.parametrize(
    ("bits", "situation"),
    [(HEAT, "heat"), (0x40 | HARDWARE, "heat"), (BRAKE | HARDWARE, "brake"), (HARDWARE, "hardware"), (POWER, "power"),
     (SET, "clocks-set")],
)  # fmt: skip
def test_the_reason_is_reported_and_what_caused_a_slowdown_names_it(bits, situation):
    rows = samples(30, reasons=bits, sm_clock_mhz=990.0, max_sm_clock_mhz=1980.0)
    assert only_finding("device-throttling", beside(device_samples=rows)).situation == situation


def capped(**limits: float):
    rows = samples(30, reasons=POWER, sm_clock_mhz=1500.0, max_sm_clock_mhz=1980.0, **limits)
    return only_finding("device-throttling", beside(training(), device_samples=rows)).saving_ns_per_step


def test_a_power_limit_at_the_boards_own_value_promises_nothing():
    assert capped(power_limit_w=700.0, default_power_limit_w=700.0).high == 0


def test_a_power_limit_that_somebody_lowered_can_be_raised():
    saving = capped(power_limit_w=500.0, default_power_limit_w=700.0)
    # 1 - 1500 / 1980 of 6 ms of products; the free clock is the highest there is, so half of it is likely
    assert saving.likely == pytest.approx(6 * MS * (1 - 1500 / 1980) / 2, rel=0.01)
    assert saving.high == pytest.approx(8 * MS * (1 - 1500 / 1980), rel=0.01)


def test_of_a_power_limit_that_is_known_alone_nobody_knows_whether_it_can_be_raised():
    saving = capped(power_limit_w=700.0)
    assert (saving.low, saving.likely) == (0, 0)
    assert saving.high > 0


def test_the_free_clock_is_taken_from_the_neighbours_where_the_gpu_itself_is_never_free():
    held = samples(30, device=0, reasons=HEAT, sm_clock_mhz=900.0, max_sm_clock_mhz=2000.0)
    free = samples(30, device=1, sm_clock_mhz=1800.0, max_sm_clock_mhz=2000.0)
    finding = only_finding("device-throttling", beside(device_samples=held + free))
    assert (finding.values["gpu"], finding.values["free_mhz"]) == (0, 1800)


def test_where_no_clock_is_known_it_says_so():
    finding = only_finding("device-throttling", beside(device_samples=samples(4, reasons=POWER)))
    assert (finding.situation, finding.confidence) == ("untold", "low")
    assert "throttling by the power limit in 100 % of 4 samples under load; their clocks were not sampled" in summary(
        finding
    )


def test_locked_clocks_have_no_reason_but_stand_still_far_below():
    rows = samples(20, sm_clock_mhz=1000.0, max_sm_clock_mhz=1980.0)
    assert only_finding("device-throttling", beside(device_samples=rows)).situation == "clocks-set"
    moving = samples(20, sm_clock_mhz=[1000.0, 1030.0] * 10, max_sm_clock_mhz=1980.0)
    assert findings("device-throttling", beside(device_samples=moving)) == []


def test_it_stays_silent_just_below_the_share_of_time():
    assert findings("device-throttling", beside(device_samples=hot(100, 9))) == []
    assert len(findings("device-throttling", beside(device_samples=hot(100, 10)))) == 1


def test_it_stays_silent_where_the_clock_is_hardly_lower():
    rows = samples(40, sm_clock_mhz=[1905.0] * 20 + [1980.0] * 20, reasons=[POWER] * 20 + [0] * 20)
    assert findings("device-throttling", beside(device_samples=rows)) == []


def test_it_stays_silent_while_the_gpu_has_nothing_to_do():
    """An idle GPU rests at 210 MHz, and many name a power or clock reason then."""
    rows = samples(40, utilization_share=0.0, sm_clock_mhz=210.0, reasons=0x1 | POWER, max_sm_clock_mhz=1980.0)
    assert findings("device-throttling", beside(device_samples=rows)) == []


def test_it_stays_silent_where_no_reason_was_sampled():
    rows = samples(40, sm_clock_mhz=990.0, max_sm_clock_mhz=1980.0, reasons=-1)
    assert findings("device-throttling", beside(device_samples=rows)) == []


def test_two_samples_are_too_few():
    assert findings("device-throttling", beside(device_samples=samples(2, reasons=HEAT))) == []


def test_only_the_rank_on_the_held_gpu_loses_time():
    rows = hot(device=1) + samples(30, device=0, sm_clock_mhz=1980.0)
    finding = only_finding("device-throttling", beside(merge([training(0), training(1)]), device_samples=rows))
    # a quarter of the products' 6 ms on one of two ranks
    assert finding.saving_ns_per_step.likely == pytest.approx(6 * MS / 4 / 2, rel=0.01)


def test_two_files_are_not_counted_together():
    """The same GPUs from two tools, or those of two machines."""
    rows = samples(5, device=0, reasons=POWER) + samples(5, device=1, reasons=POWER)
    other = samples(5, device=0, reasons=-1, name="dmon.txt") + samples(5, device=1, reasons=-1, name="dmon.txt")
    finding = only_finding("device-throttling", beside(device_samples=rows + other))
    assert (finding.values["gpus"], finding.values["sampled"], finding.values["samples"]) == (2, 2, 10)


# --- several ranks that wait for each other ---------------------------------------------------------------------------


def stepping(*products: int):
    """Ranks whose six products take so many units of 0.5 ms each, then 1 ms of other kernels; all end together.

    The last to come needs 1 ms for the collective; the host of each launches a step at once, and waits for the device.
    """
    step = 6 * max(products) + 2 + 2
    drawn = []
    for rank, units in enumerate(products):
        own = ("G" * units + "T" * units) * 3 + "ee"
        drawn.append(
            draw(
                kernels="  " + own,
                nccl="  " + " " * len(own) + "=" * (step - len(own)),
                host=["llllllll " + "s" * (step - 7)],
                repeat=8,
                unit_us=500,
                rank=rank,
                device=rank,
                gpu="NVIDIA H100",
            )
        )
    return merge(drawn)


def clocks(*held: int, usual: float = 1980.0):
    """One GPU a rank, all the time at such a clock, held down by heat where that is not the usual one."""
    return [
        row
        for device, mhz in enumerate(held)
        for row in samples(
            30, device=device, sm_clock_mhz=float(mhz), reasons=HEAT * (mhz < usual), max_sm_clock_mhz=usual
        )
    ]


def promised(rule: str, drawn):
    found = diagnose(drawn, list(load_rules().values())).findings
    return next(each for cause in found for each in (cause, *cause.symptoms) if each.rule == rule).saving_ns_per_step


def test_one_of_four_ranks_held_wins_all_that_it_loses_for_all_of_them():
    drawn = beside(stepping(2, 2, 4, 2), device_samples=clocks(1980, 1980, 990, 1980))
    finding = only_finding("device-throttling", drawn)
    # six products of 2 ms at half the clock: 6 ms of its 12 are lost, and the others wait for 6 ms
    assert finding.saving_ns_per_step.likely == pytest.approx(6 * MS, rel=0.01)
    assert finding.affected_ns == pytest.approx(12 * MS, rel=0.01)
    assert list(finding.work) == [(2, 2)]
    of_rank = prepare(drawn).places[2].kernels
    assert finding.work[2, 2].tolist() == ["gemm" in name for name in of_rank.name]
    # played: a step of 15 ms, in which rank 2 then does as the others do
    assert promised("device-throttling", drawn).likely == pytest.approx(6 * MS, rel=0.01)
    assert {"rank-skew", "gpus-differ"} <= set(finding.explains)
    assert "rank-skew" in under(drawn, "device-throttling")


def test_all_ranks_held_alike_win_what_each_loses_and_nobody_is_late_for_it():
    held = [row for device in range(4) for row in hot(device=device)]
    drawn = beside(stepping(4, 4, 4, 4), device_samples=held)
    finding = only_finding("device-throttling", drawn)
    # half of the clock in half of the samples: a quarter of 12 ms
    assert finding.saving_ns_per_step.likely == pytest.approx(3 * MS, rel=0.01)
    assert sorted(finding.work) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert finding.explains == ()
    assert promised("device-throttling", drawn).likely == pytest.approx(3 * MS, rel=0.01)


def test_a_held_rank_that_waits_for_another_wins_nothing():
    """Rank 2 loses 3 of its 6 ms, and then waits for rank 1, whose GPU is free and has twice the work."""
    drawn = beside(stepping(2, 4, 2, 2), device_samples=clocks(1980, 1980, 990, 1980))
    finding = only_finding("device-throttling", drawn)
    assert finding.saving_ns_per_step.high == 0
    assert finding.explains == ()
    assert promised("rank-skew", drawn).likely == pytest.approx(6 * MS, rel=0.05)
    found = diagnose(drawn, list(load_rules().values())).findings
    assert "device-throttling" not in {cause.rule for cause in found if "rank-skew" in {s.rule for s in cause.symptoms}}


def test_a_late_rank_that_is_held_but_little_is_late_for_something_else():
    """Rank 2 does twice the work of the others, and its GPU is a tenth below the free clock."""
    drawn = beside(stepping(2, 2, 4, 2), device_samples=clocks(1980, 1980, 1782, 1980))
    finding = only_finding("device-throttling", drawn)
    assert finding.saving_ns_per_step.likely == pytest.approx(0.1 * 12 * MS, rel=0.01)
    assert finding.explains == ()


def test_of_ranks_that_are_held_unequally_each_gets_back_what_it_loses():
    """Rank 2 loses a half of 12 ms, rank 3 a third of 9 ms: two thirds of its products are played half as long."""
    drawn = beside(stepping(2, 2, 4, 3), device_samples=clocks(1980, 1980, 990, 1320))
    finding = only_finding("device-throttling", drawn)
    assert finding.saving_ns_per_step.likely == pytest.approx(6 * MS, rel=0.01)
    chosen = {rank: int(mask.sum()) for (rank, _), mask in finding.work.items()}
    assert chosen[3] == pytest.approx(chosen[2] * 2 / 3, abs=1)
    # of six products a step one more or less may be chosen, which then is 0.75 ms
    assert promised("device-throttling", drawn).likely == pytest.approx(6 * MS, abs=0.75 * MS)


def test_nobody_knows_whose_samples_they_are_where_more_gpus_work_than_the_job_has_ranks():
    finding = only_finding(
        "device-throttling", beside(stepping(2, 2, 4, 2), device_samples=clocks(1980, 1980, 990, 1980, 1980))
    )
    assert (finding.saving_ns_per_step.high, finding.explains) == (0, ())


# What the GPU's own counters saw


def counted(low: float, *, part: float = 0.5):
    """Steps of 10 ms, all of it products, of which a part runs at a clock lower by this factor."""
    drawn = draw(kernels="G" * 10, launched_us_before=50, repeat=10, unit_us=1000, gpu="NVIDIA H100")

    def clocks_hz(at):
        return np.where((at - BASE_NS) % (10 * MS) < 10 * MS * (1 - part), 1.98e9, 1.98e9 * low)

    return sampled(drawn, {}, clocks_hz=clocks_hz)


def test_a_clock_that_falls_within_each_step_bounds_what_it_costs():
    """By what it is held down nobody recorded: half of each step at half of the clock costs a quarter at most."""
    finding = only_finding("device-throttling", counted(0.5))
    assert finding.situation == "counted"
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely) == (0, 0)
    assert saving.high == pytest.approx(10 * MS / 4, rel=0.05)
    assert "runs at 990 instead of 1980 MHz, as its own counters measured" in summary(finding)


@pytest.mark.parametrize(("low", "part"), [(0.97, 0.5), (0.5, 0.05), (1.0, 0.5)])
def test_steps_of_the_clock_and_moments_at_a_lower_one_are_no_throttling(low, part):
    assert findings("device-throttling", counted(low, part=part)) == []


def test_what_the_driver_says_counts_more_than_the_counters():
    drawn = beside(counted(0.5), device_samples=hot(40, 20, start_ns=BASE_NS, every_ns=int(2.5 * MS), on_clock=True))
    assert only_finding("device-throttling", drawn).situation == "heat"


def below(sold: float, at: float):
    """Steps of 10 ms, all of it products at one clock, on a GPU that is sold with another, both in MHz."""
    drawn = draw(kernels="G" * 10, launched_us_before=50, repeat=10, unit_us=1000, gpu="NVIDIA H100")
    devices = tuple(replace(device, clock_hz=round(sold * 1e6)) for device in drawn.devices)
    return sampled(replace(drawn, devices=devices), {}, clocks_hz=lambda times: np.full(times.size, at * 1e6))


def test_a_clock_far_below_what_the_gpu_is_sold_with_bounds_what_it_costs():
    finding = only_finding("device-throttling", below(1980, 1485))
    assert finding.situation == "counted-low"
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely) == (0, 0)
    assert saving.high == pytest.approx(10 * MS / 4, rel=0.05)
    assert "runs at 1485 MHz of the 1980 MHz that it is sold with" in summary(finding)


@pytest.mark.parametrize(("sold", "at"), [(0, 1000), (1980, 1800), (1695, 1900)])
def test_a_clock_near_what_the_gpu_is_sold_with_or_above_or_unknown_is_no_throttling(sold, at):
    assert findings("device-throttling", below(sold, at)) == []

"""What counters say of kernels: rates that were planted are found again, and nothing is said where nothing follows."""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw, only_place
from counters_builder import PERIOD_NS, sampled
from hypothesis import given, settings
from hypothesis import strategies as st

from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.counters.means import gpu_metrics
from perfdoctor.metrics.counters.rates import Rates, rates_of
from perfdoctor.metrics.counters.samples import recorded_samples, usable
from perfdoctor.model.timeline import Timeline

_GEMM, _SGEMM, _ADD = "bf16_s16816gemm", "sgemm", "vectorized_elementwise"
#: A step whose kernels last from a fifth of a sample to some of them.
_STEP = "GGGGGGGGGGGGGGG SSSSSSSSSS eeee   GGG ee SSSSS ee     GGGGGGG   "
_PLANTED = {
    _GEMM: {"tensor_active_share": 0.6, "sm_active_share": 0.95},
    _SGEMM: {"tensor_active_share": 0.0, "sm_active_share": 0.9},
    _ADD: {"tensor_active_share": 0.0, "dram_read_share": 0.5, "dram_write_share": 0.3},
}


def picture(step: str = _STEP, *, unit_us: float = 20, repeat: int = 60, **more) -> Timeline:
    return draw(kernels=step, unit_us=unit_us, repeat=repeat, launched_us_before=5, **more)


def by_name(timeline: Timeline) -> tuple[dict[str, int], Rates]:
    place = only_place(timeline)
    names = place.kernels.name
    found = rates_of(place, names.codes.astype(np.int64), len(names.values))
    assert found is not None
    return {word: next(i for i, name in enumerate(names.values) if word in name) for word in _PLANTED}, found


def test_rates_of_kernels_shorter_than_a_sample_are_found_again():
    row, found = by_name(sampled(picture(), _PLANTED))
    for word, planted in _PLANTED.items():
        assert found.of("tensor_active_share")[row[word]] == pytest.approx(planted["tensor_active_share"], abs=0.01)
    assert found.of("dram_share")[row[_ADD]] == pytest.approx(0.8, abs=0.02)
    assert found.of("sm_active_share")[row[_GEMM]] == pytest.approx(0.95, abs=0.01)
    assert found.idle[0] == pytest.approx(0, abs=0.01)


def test_a_counter_that_hardly_ever_has_a_value_takes_nothing_from_the_others():
    timeline = sampled(picture(), _PLANTED)
    frame = timeline["gpu_counters"]
    few = np.where(np.arange(len(frame)) % 100 == 7, 0.3, np.nan)
    row, found = by_name(timeline.with_frame("gpu_counters", frame.with_columns(sm_issue_share=few)))
    assert found.of("tensor_active_share")[row[_GEMM]] == pytest.approx(0.6, abs=0.01)
    assert np.isnan(found.of("sm_issue_share")).all()


@settings(max_examples=10, deadline=None)
@given(rates=st.tuples(*[st.floats(0, 1)] * 3), idle=st.floats(0, 0.5), offset=st.integers(0, PERIOD_NS))
def test_any_planted_rate_is_inside_its_error(rates, idle, offset):
    planted = {word: {"sm_active_share": rate} for word, rate in zip(_PLANTED, rates, strict=True)}
    timeline = sampled(picture(), planted, idle={"sm_active_share": idle}, period_ns=PERIOD_NS + offset // 10)
    row, found = by_name(timeline)
    for word, rate in zip(_PLANTED, rates, strict=True):
        assert found.of("sm_active_share")[row[word]] == pytest.approx(
            rate, abs=max(5 * found.errors[row[word], 0], 0.01)
        )
    assert found.idle[0] == pytest.approx(idle, abs=0.02)


def test_kernels_that_only_run_together_are_unknown_and_not_zero():
    """A fiftieth of a sample each, one right behind the other: nothing separates them."""
    timeline = sampled(picture("GSe" + " " * 57, unit_us=100 / 60, repeat=300), _PLANTED)
    _, found = by_name(timeline)
    assert np.isnan(found.of("tensor_active_share")).all()


def test_a_mean_while_kernels_ran_weighs_each_sample_by_the_time_that_it_covers():
    timeline = sampled(picture(), _PLANTED)
    place = only_place(timeline)
    (row,) = [each for each in gpu_metrics(prepare(timeline)) if each.metric == "sm_active"]
    frame, total, weight = timeline["gpu_counters"], 0.0, 0
    for start, end, value in zip(frame.start_ns, frame.end_ns, frame.floats("sm_active_share"), strict=True):
        inside = sum(max(0, min(end, b) - max(start, a)) for a, b in place.compute)
        total, weight = total + value * inside, weight + inside
    assert row.mean_in_kernels == pytest.approx(100 * total / weight)
    window = [v for s, v in zip(frame.start_ns, frame.floats("sm_active_share"), strict=True)
              if any(a <= s < b for a, b in place.window)]  # fmt: skip
    assert row.mean == pytest.approx(100 * np.mean(window))
    assert row.recording_mean == pytest.approx(100 * frame.floats("sm_active_share").mean())


def notes(timeline: Timeline) -> list[str]:
    return [note for note in examine(prepare(timeline), []).diagnosis.notes if "counters of GPU" in note]


def test_whole_samples_of_this_gpu_need_no_note():
    assert notes(sampled(picture(), _PLANTED)) == []


def test_few_samples_say_so_and_nothing_follows():
    timeline = sampled(picture(), _PLANTED, first=100, last=112)
    (note,) = notes(timeline)
    assert "sampled 12 times: nothing follows" in note
    assert {(row.mean, row.mean_in_kernels) for row in gpu_metrics(prepare(timeline))} == {(None, None)}


def test_samples_that_end_early_give_no_mean_of_the_window():
    timeline = sampled(picture(), _PLANTED, last=300)
    (note,) = notes(timeline)
    assert "not sampled in the whole" in note
    (row,) = [each for each in gpu_metrics(prepare(timeline)) if each.metric == "sm_active"]
    assert row.mean is None
    assert row.mean_in_kernels is not None


@pytest.mark.parametrize("behind", [-450_000, 700_000])
def test_a_clock_that_is_off_is_measured_and_said(behind):
    timeline = sampled(picture(), _PLANTED, behind_ns=behind)
    found = recorded_samples(only_place(timeline))
    assert found.shift_ns == pytest.approx(behind, abs=PERIOD_NS // 4)
    (note,) = notes(timeline)
    assert "times were corrected" in note
    row, rates = by_name(timeline)
    assert rates.of("tensor_active_share")[row[_GEMM]] == pytest.approx(0.6, abs=0.1)


def test_traffic_that_no_copy_explains_is_said():
    timeline = sampled(picture(), _PLANTED | {_GEMM: {"pcie_rx_share": 0.6}})
    said = [note for note in examine(prepare(timeline), []).diagnosis.notes if "no copy and no collective" in note]
    assert len(said) == 1
    assert "its link to the host received" in said[0]
    assert "s16816gemm" in said[0]
    assert "ran (60 %)" in said[0]
    quiet = sampled(picture(), _PLANTED | {_GEMM: {"pcie_rx_share": 0.02}})
    assert not any("no copy and no collective" in note for note in examine(prepare(quiet), []).diagnosis.notes)


def test_traffic_that_comes_at_any_time_is_no_kernels():
    everywhere = {word: {"pcie_tx_share": 0.3} for word in _PLANTED}
    timeline = sampled(picture(), everywhere, idle={"pcie_tx_share": 0.3})
    (said,) = (note for note in examine(prepare(timeline), []).diagnosis.notes if "no copy and no collective" in note)
    assert "its link to the host sent" in said
    assert "another program" in said


def test_what_ran_before_and_behind_the_recorded_kernels_makes_no_other_gpu():
    """The GPU worked all the time, and was sampled all the time; of a half only the kernels were recorded."""
    whole = sampled(picture(), _PLANTED)
    kernels = whole.kernels
    half = whole.with_frame("kernels", kernels.take(kernels.start_ns > kernels.start_ns[len(kernels) // 2]))
    assert usable(only_place(half)) is not None
    assert recorded_samples(only_place(half)).shift_ns == 0


def test_counters_that_do_not_follow_the_kernels_are_another_gpus():
    mine = picture()
    other = sampled(picture("     ee    SS   eeeeeee        SSSSSSSS     SSSSSSSSSSS  eeee  "), _PLANTED)
    for frame in (other["gpu_counters"], sampled(mine, {"": {"gr_active_share": 0.0}})["gpu_counters"]):
        timeline = mine.with_frame("gpu_counters", frame)
        assert usable(only_place(timeline)) is None
        (note,) = notes(timeline)
        assert "another GPU" in note

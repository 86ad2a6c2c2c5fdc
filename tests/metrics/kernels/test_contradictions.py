"""Nsight Compute and the GPU's counters of the same kernels: where they differ, both numbers are said."""

from __future__ import annotations

import pytest
from builders import draw_steps, only_place
from counters_builder import sampled
from ncu_builders import with_ncu

from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.kernels.contradictions import contradictions

NAME = "void my_norm_kernel<float>(float*)"


def both(by_ncu: float, by_counters: float, *, few: int = 10):
    drawn = draw_steps(kernels="n" * few + "G" * 30, kernel_names={"n": NAME})
    drawn = with_ncu(drawn, [{"name": NAME, "dram_share": by_ncu, "gpu_time_ns": 10_000_000}])
    return sampled(drawn, {"norm": {"dram_read_share": by_counters, "dram_write_share": 0.0}})


def test_a_difference_of_a_fifth_of_the_peak_is_said_with_both_numbers():
    (found,) = contradictions(only_place(both(0.85, 0.4)))
    assert (found.kernel, found.by_ncu) == (NAME, 0.85)
    assert found.by_counters == pytest.approx(0.4, abs=0.01)
    said = [note for note in examine(prepare(both(0.85, 0.4)), []).diagnosis.notes if "Nsight Compute saw" in note]
    assert len(said) == 1
    assert (
        "In `my_norm_kernel` Nsight Compute saw the memory at 85 % of the peak, the GPU's counters at 40 %" in said[0]
    )


@pytest.mark.parametrize("picture", [both(0.5, 0.4), both(0.85, 0.4, few=1), draw_steps(kernels="G" * 10)])
def test_small_differences_short_kernels_and_one_tool_alone_are_no_contradiction(picture):
    assert list(contradictions(only_place(picture))) == []

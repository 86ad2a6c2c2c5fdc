"""memset-heavy: memory is filled with zeros over and over."""

from __future__ import annotations

import pytest
from builders import findings, only_finding
from exposed_copy_cases import MS, exposed_step, zero_grad_memsets
from measured_builders import H100

#: Of an H100 with HBM3, in bytes/s (data sheet).
MEMORY = 3350e9


def test_it_stays_silent_where_zero_grad_asks_for_them():
    """That is zero-grad-fills' finding."""
    assert findings("memset-heavy", zero_grad_memsets()) == []
    assert len(findings("zero-grad-fills", zero_grad_memsets())) == 1


def asked_by(op: str, **more):
    """A memset of 10 ms in each step, launched inside an op of this name."""
    host = {"host": ["l", "o" * 40], "legend": {"o": ("ops", op)}}
    return exposed_step(10, "m", **{**host, "launched_us_before": None, "repeat": 1, **more})


def test_zeros_that_the_program_asks_for_are_likely_saved():
    saving = only_finding("memset-heavy", asked_by("aten::zeros")).saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (0, 10 * MS, 10 * MS)


def test_of_an_operators_own_only_what_one_fill_takes_less():
    """10 ms for 250 MB, which the memory takes in 75 µs: the rest is latency of many small ones."""
    one_fill_ns = 250e6 / MEMORY * 1e9
    finding = only_finding("memset-heavy", asked_by("aten::convolution_backward", gpu=H100))
    assert finding.saving_ns_per_step.likely == pytest.approx(10 * MS - one_fill_ns, rel=1e-3)
    as_fast = asked_by("aten::convolution_backward", gpu=H100, gigabytes_per_second=3350)
    assert only_finding("memset-heavy", as_fast).saving_ns_per_step.likely == pytest.approx(0, abs=1000)
    assert finding.confidence == "low"

"""What copies have in common, against counting by hand."""

from __future__ import annotations

import pytest
from builders import draw, only_place

from perfdoctor.metrics.copies.transfers import (
    asked_by,
    bytes_of,
    compute_stream,
    copies_of,
    exposed_ns,
    rates,
    sharing_ns,
    steps_with,
)  # fmt: skip


def place(**picture):
    return only_place(draw(**{"launched_us_before": 50, "unit_us": 100, **picture}))


def test_copies_of_two_streams_that_meet_share_the_link():
    both = place(kernels="##########", copies=["hhhh  h   ", "  dd      "], repeat=1)
    assert sharing_ns(both).tolist() == [200_000, 200_000, 0]


def test_what_stays_on_the_device_shares_no_link():
    both = place(kernels="##########", copies=["hhhh      ", "  xx mm   "], repeat=1)
    assert sharing_ns(both).max() == 0


def test_copies_that_touch_share_nothing_and_three_at_once_count_once():
    three = place(kernels="##########", copies=["hhhhdd    ", "  hhhh    ", "   h      "], repeat=1)
    assert sorted(sharing_ns(three).tolist()) == [100_000, 200_000, 200_000, 400_000]


def test_exposed_is_what_no_kernel_covers():
    half = place(kernels="  ####    ", copies="hhhh      ")
    assert exposed_ns(half, copies_of(half, "h2d")) == 200_000
    assert exposed_ns(half, copies_of(half, "d2h")) == 0


def test_rate_and_bytes():
    one = place(kernels="    ####", copies="hhhh    ", gigabytes_per_second=20)
    assert rates(one.copies).tolist() == [pytest.approx(20e9)]
    assert bytes_of(one, copies_of(one, "h2d")) == 8_000_000


def test_the_compute_stream_is_the_busiest_of_kernels():
    assert compute_stream(place(kernels=["#  ", " ##"], copies=["  h"])) == 8


def test_steps_in_which_a_copy_began():
    every = place(kernels="####    ", copies="    hh  ", repeat=6)
    assert steps_with(every, copies_of(every, "h2d")) == every.steps.used


def test_the_outermost_op_asked_for_it():
    drawn = draw(kernels="   ##", copies="hh   ", host=["c l", "ooo"], legend={"o": ("ops", "aten::to")})
    assert list(asked_by(only_place(drawn))) == ["aten::to"]
    assert list(asked_by(place(kernels="   ##", copies="hh   "))) == [""]

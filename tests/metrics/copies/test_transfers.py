"""What copies have in common, against counting by hand."""

from __future__ import annotations

import pytest
from builders import draw, only_place, timeline

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.copies.transfers import (
    asked_by,
    before_work_begins,
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


def test_copies_behind_a_short_first_kernel_belong_to_the_start_and_those_between_work_do_not():
    def of(copies: str) -> list[bool]:
        later = " " * 100 + "hhh"
        drawn = place(kernels="#" + " " * 19 + "#" * 150, copies=copies + later, recorded=["kernels", "copies"])
        return list(before_work_begins(drawn).tolist())

    assert of("   " + "hh " * 6) == [True] * 6 + [False]
    assert of("   " + "hh " * 5) == [False] * 6, "a batch: inputs, targets, masks"


def test_copies_behind_more_than_a_hundredth_of_the_kernels_time_come_again():
    again = place(
        kernels="###" + " " * 7 + "#" * 150, copies="   hh  hh " + " " * 100 + "hhh", recorded=["kernels", "copies"]
    )
    assert before_work_begins(again).tolist() == [False, False, False]


def test_rate_and_bytes():
    one = place(kernels="    ####", copies="hhhh    ", gigabytes_per_second=20)
    assert rates(one.copies).tolist() == [pytest.approx(20e9)]
    assert bytes_of(one, copies_of(one, "h2d")) == 8_000_000


def test_the_compute_stream_is_the_busiest_of_kernels():
    assert compute_stream(place(kernels=["#  ", " ##"], copies=["  h"])) == 8


def test_steps_in_which_a_copy_began():
    every = place(kernels="####    ", copies="    hh  ", repeat=6)
    assert steps_with(every, copies_of(every, "h2d")) == every.steps.used


def test_an_op_of_another_process_with_the_same_thread_number_did_not_ask():
    copy = {"start_ns": 900, "end_ns": 910, "name": "Memcpy HtoD", "correlation": 1, "process": 100}
    call = {"start_ns": 50, "end_ns": 60, "name": "cudaMemcpyAsync", "correlation": 1, "process": 100, "thread": 1}
    op = {"start_ns": 40, "end_ns": 70, "name": "aten::to", "process": 100, "thread": 1}
    other = {**op, "start_ns": 0, "end_ns": 99, "name": "aten::stack", "process": 200}
    (both,) = prepare(timeline(copies=[copy], calls=[call], ops=[op, other])).places
    (alone,) = prepare(timeline(copies=[copy], calls=[call], ops=[other])).places
    assert (list(asked_by(both)), list(asked_by(alone))) == (["aten::to"], [""])


def test_the_outermost_op_asked_for_it():
    drawn = draw(kernels="   ##", copies="hh   ", host=["c l", "ooo"], legend={"o": ("ops", "aten::to")})
    assert list(asked_by(only_place(drawn))) == ["aten::to"]
    assert list(asked_by(place(kernels="   ##", copies="hh   "))) == [""]

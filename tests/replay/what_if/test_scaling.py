"""Do transfers grow as the alpha-beta model has it, and the last rank's lateness as order statistics have it?"""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import of_each

from perfdoctor.replay.what_if.scaling import (
    MODELLED,
    LinkRates,
    Message,
    expected_deviations,
    expected_last_ns,
    fitted,
    grown,
    hops,
    later_ns,
)

MB = 1_000_000


def test_a_ring_of_64_at_50_gigabytes_a_second_takes_5_and_a_half_seconds_for_140_gigabytes():
    assert LinkRates(0, 50e9).transfer_ns("all_reduce", 140e9, 64) == pytest.approx(5.5125e9)
    assert LinkRates(0, 200e9).transfer_ns("all_reduce", 140e9, 64) == pytest.approx(1.378125e9)


def plain_ns(kind: str, size: int, ranks: int, latency_ns: float, bytes_per_ns: float, tree: bool) -> float:
    """The model once more, kind by kind."""
    steps = math.log2(ranks) if tree else ranks - 1
    if kind in ("all_reduce", "barrier"):
        carried = 0.0 if kind == "barrier" else 2 * (ranks - 1) / ranks * size
        return 2 * steps * latency_ns + carried / bytes_per_ns
    carried = size if kind in ("broadcast", "reduce") else (ranks - 1) / ranks * size
    return steps * latency_ns + carried / bytes_per_ns


@of_each("tree", [False, True])
@of_each("kind", MODELLED)
@of_each("ranks", [2, 3, 8, 64])
def test_a_transfer_is_latency_of_all_hops_and_what_a_link_carries(kind, ranks, tree):
    expected = plain_ns(kind, 25 * MB, ranks, 3_000, 40, tree)
    assert LinkRates(3_000, 40e9, tree).transfer_ns(kind, 25 * MB, ranks) == pytest.approx(expected)
    assert hops(kind, 1, tree=tree) == 0


@pytest.mark.parametrize("tree", [False, True])
def test_latency_and_bandwidth_are_found_again_in_the_times_that_they_give(tree):
    sizes = [("all_reduce", 8_000), ("all_reduce", 25 * MB), ("all_gather", 2 * MB), ("reduce_scatter", 100 * MB)]
    messages = [Message(kind, size, plain_ns(kind, size, 8, 4_000, 90, tree)) for kind, size in sizes]
    links = fitted(messages, 8, tree=tree)
    assert links.latency_ns == pytest.approx(4_000)
    assert links.bytes_per_second == pytest.approx(90e9)


def test_of_one_size_all_is_bandwidth_and_at_worst_all_is_latency():
    message = Message("all_reduce", 10 * MB, 1e6)
    assert fitted([message], 2, tree=False).latency_ns == 0
    least, likely, most = grown(message, [message], 2, 8)
    assert least == likely == pytest.approx((2 * 7 / 8) / (2 * 1 / 2))
    assert most == pytest.approx(3)  # log2 of 8 over log2 of 2


def test_times_that_fall_as_sizes_grow_are_latency_alone_or_bandwidth_alone_and_never_below_zero():
    falling = [Message("all_reduce", 1_000, 50_000.0), Message("all_reduce", 100 * MB, 20_000.0)]
    links = fitted(falling, 4, tree=False)
    assert links.latency_ns >= 0
    assert links.bytes_per_second > 0
    only_bandwidth = [Message("all_reduce", 1_000, 1.0), Message("all_reduce", 100 * MB, 1e6)]
    assert fitted(only_bandwidth, 4, tree=False).latency_ns >= 0
    barriers = [Message("barrier", 0, 30_000.0)]
    assert fitted(barriers, 4, tree=True).latency_ns == pytest.approx(30_000 / 4)
    assert grown(barriers[0], barriers, 4, 16) == pytest.approx((2, 2, 5))  # log2, log2, and 15 hops instead of 3


def test_small_messages_go_over_trees_and_large_ones_over_rings():
    sizes = [("all_reduce", 1_000), ("all_reduce", 500 * MB)]
    messages = [Message(kind, size, plain_ns(kind, size, 8, 5_000, 90, tree=True)) for kind, size in sizes]
    least, likely, most = grown(messages[0], messages, 8, 64)
    assert likely == least == pytest.approx(2, rel=0.01)
    assert most == pytest.approx(9, rel=0.02)  # 63 hops instead of 7
    least, likely, most = grown(messages[1], messages, 8, 64)
    # What its links carry, and 112 hops more of the 2 µs that a ring's hops would have taken.
    assert (
        likely == most == pytest.approx((63 / 64) / (7 / 8) + 112 * 5_000 * 3 / 7 / messages[1].transfer_ns, rel=0.001)
    )


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.floats(1e3, 1e9)), min_size=1, max_size=6),
    st.integers(2, 64),
    st.integers(1, 64),
)
def test_more_ranks_never_make_an_all_reduce_shorter(measured, before, more):
    messages = [Message("all_reduce", size, took) for size, took in measured]
    for message in messages:
        least, likely, most = grown(message, messages, before, before + more)
        assert 1 - 1e-9 <= least <= likely * (1 + 1e-9) <= most * (1 + 1e-9)
        assert grown(message, messages, before, before) == pytest.approx((1, 1, 1))


# ---- the last to come ------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=5), st.integers(1, 5))
def test_the_last_of_several_draws_is_the_mean_over_all_that_can_be_drawn(times, draws):
    every = [max(drawn) for drawn in itertools.product(times, repeat=draws)]
    assert expected_last_ns(times, draws) == pytest.approx(sum(every) / len(every))


def test_the_largest_of_normal_draws_is_as_in_the_tables():
    """Of 2: 1/√π, of 3: 1.5/√π; of 10, 100 and 1000 as Harter's tables of expected normal order statistics have it."""
    known = {1: 0.0, 2: 1 / math.sqrt(math.pi), 3: 1.5 / math.sqrt(math.pi), 10: 1.53875, 100: 2.50759, 1000: 3.24144}
    assert {draws: round(expected_deviations(draws), 5) for draws in known} == pytest.approx(known, abs=2e-5)


def test_more_ranks_come_later_and_fewer_sooner():
    times = [100, 110, 90, 105, 95, 100, 130]
    least, likely, most = later_ns(times, 2, 64)
    assert least == 0 < likely <= most
    assert likely == pytest.approx(expected_last_ns(times, 64) - expected_last_ns(times, 2))
    assert likely < 130 - expected_last_ns(times, 2)  # never more than the largest that was recorded
    assert [-ns for ns in reversed(later_ns(times, 64, 2))] == pytest.approx([least, likely, most])
    assert later_ns(times, 8, 8) == later_ns([7], 2, 64) == (0, 0, 0)
    assert later_ns([7, 7, 7], 2, 64) == pytest.approx((0, 0, 0))

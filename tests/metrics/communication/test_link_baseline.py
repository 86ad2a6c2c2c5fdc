"""How long a ring takes, and which measured messages a message is held against."""

from __future__ import annotations

import pytest
from machine_builders import beside, fact, links

from perfdoctor.metrics.communication.collectives import bus_factor
from perfdoctor.metrics.communication.link_baseline import (
    baseline,
    best_in_a_machine,
    planned_rings,
    reached_by_ring,
)
from perfdoctor.metrics.communication.topology import nvlinks, pairs


def test_the_worked_example_140_gb_over_64_ranks_takes_five_and_a_half_seconds():
    """Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009."""
    carried = bus_factor("all_reduce", 64) * 140e9
    assert carried / 50e9 == pytest.approx(5.5, abs=0.05)
    assert carried / 200e9 == pytest.approx(1.38, abs=0.005)


def test_a_ring_whose_steps_take_no_time_reaches_its_bandwidth():
    for ranks in (2, 3, 8, 64):
        assert reached_by_ring("all_reduce", ranks, 1e9, 25e9, 0) == pytest.approx(25e9)
    assert bus_factor("all_reduce", 1) == 0


def row(bus: float, size: int, source: str = "nccl-tests", **more):
    return {"name": "all_reduce", "source": source, "ranks": 8, "machines": 1, "bytes": size,
            "bus_bytes_per_second": bus, **more}  # fmt: skip


def test_messages_of_the_same_size_count_and_their_median():
    given = beside(
        link_tests=[
            row(1e9, 1000),
            row(10e9, 90_000),
            row(12e9, 100_000),
            row(14e9, 190_000),
            row(98e9, 10**9),
            row(99e9, 10**9),
        ]
    )
    found = baseline(given, "all_reduce", 8, 100_000)
    assert found is not None
    assert found.bus_bytes_per_second == 12e9


def test_a_larger_message_than_all_is_held_against_the_largest():
    found = baseline(beside(link_tests=[row(10e9, 1000), row(50e9, 10**6)]), "all_reduce", 8, 10**9)
    assert found is not None
    assert found.bus_bytes_per_second == 50e9


def test_of_a_flight_recorder_the_fastest_counts_since_others_waited():
    rows = [row(speed, 1000, "flight recorder") for speed in (1e9, 30e9, 5e9)]
    found = baseline(beside(link_tests=rows), "all_reduce", 8, 1000)
    assert found is not None
    assert (found.bus_bytes_per_second, found.source) == (30e9, "flight recorder")


def test_links_inside_a_machine_are_not_those_between_machines():
    given = beside(link_tests=[row(200e9, 10**6), row(40e9, 10**6, machines=2)])
    assert baseline(given, "all_reduce", 8, 10**6, one_machine=True).bus_bytes_per_second == 200e9
    assert baseline(given, "all_reduce", 8, 10**6, one_machine=False).bus_bytes_per_second == 40e9
    inside = beside(link_tests=[row(200e9, 10**6)])
    assert baseline(inside, "all_reduce", 8, 10**6, one_machine=False) is None
    between = beside(link_tests=[row(40e9, 10**6, machines=2)])
    assert baseline(between, "all_reduce", 8, 10**6, one_machine=True) is None


def test_a_flight_recorders_messages_are_those_of_their_own_ranks():
    """Two ranks of a machine, and two of different ones: groups of one size."""
    inside = {"ranks": 2, "machines": -1, "members": "0 1"}
    given = beside(link_tests=[
        row(200e9, 10**6, "flight recorder", **inside),
        row(20e9, 10**6, "flight recorder", **{**inside, "members": "0 2"}),
    ])  # fmt: skip
    for members, speed in (((0, 1), 200e9), ((2, 0), 20e9)):
        assert baseline(given, "all_reduce", 2, 10**6, members=members).bus_bytes_per_second == speed
    assert baseline(given, "all_reduce", 2, 10**6, members=(1, 3)) is None
    assert baseline(given, "all_reduce", 2, 10**6) is None
    one = beside(link_tests=[row(200e9, 10**6, "flight recorder", **inside)])
    assert baseline(one, "all_reduce", 2, 10**6).bus_bytes_per_second == 200e9


def test_what_was_not_measured_is_not_known():
    given = beside(link_tests=[row(10e9, 10**6)])
    assert baseline(given, "all_gather", 8, 10**6) is None
    assert baseline(given, "all_reduce", 4, 10**6) is None
    assert baseline(given, "all_reduce", 8, 1000) is None
    assert best_in_a_machine(given, 8) == 10e9
    assert best_in_a_machine(given, 4) == 0


def test_of_several_communicators_of_a_size_the_slowest_rings_count():
    given = beside(
        nccl_facts=[
            fact("graph", "4 NVL/PIX of 8", 240.0), fact("graph", "4 NVL/PIX of 8", 200.0),
            fact("graph", "4 PHB/PHB of 2", 12.0), fact("graph", "1 NVL/PIX of 8", 20.0),
            fact("graph", "4 NVL/PIX", 7.0), fact("graph", "4 NVL/PIX of 18", 5.0),
        ]
    )  # fmt: skip
    assert planned_rings(given, 8) == 200e9
    assert planned_rings(given, 2) == 12e9
    assert planned_rings(given, 4) == 0


@pytest.mark.parametrize(("kind", "steps"), [("all_reduce", 14), ("all_gather", 7), ("reduce_scatter", 7)])
def test_the_steps_of_a_ring_cost_small_messages_most(kind, steps):
    """Eight ranks: each step moves an eighth of the message at 100 GB/s, and takes 10 µs beside."""
    for size in (1e6, 1e8, 1e12):
        seconds = sum(size / 8 / 100e9 + 10e-6 for _ in range(steps))
        bus = size / seconds * bus_factor(kind, 8)
        assert reached_by_ring(kind, 8, size, 100e9, 10_000) == pytest.approx(bus)
    assert reached_by_ring(kind, 8, 1e15, 100e9, 10_000) == pytest.approx(100e9, rel=1e-3)


def test_a_ring_has_as_many_nvlinks_as_its_weakest_pair():
    cube = pairs(beside(links=links((0, 1, "NV2"), (1, 2, "NV1"), (2, 3, "NV2"), (3, 0, "NV1"), (0, 2, "SYS"))))
    assert nvlinks(cube, [0, 1, 2, 3], 4) == 1
    assert nvlinks(cube, [0, 1, 2, 3], 2) == 0  # which two of them is not recorded
    assert nvlinks(cube, [0, 1], 2) == 2
    assert nvlinks(cube, [0, 2], 2) == 0
    switched = pairs(beside(links=links((0, 1, "NV18"), (1, 2, "NV18"), (0, 2, "NV18"))))
    assert nvlinks(switched, [0, 1, 2], 3) == nvlinks(switched, [0, 1, 2], 2) == 18

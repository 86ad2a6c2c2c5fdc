"""What goes with work that is not asked for any more? On numbers made by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from builders import frame
from graphs import HOST, WAIT_END, WORK, Node, by_hand
from measured_builders import H100, measurement, rates
from msgspec.structs import replace

from perfdoctor.hardware.measured import MeasuredRates
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import Device, Frame, Timeline
from perfdoctor.replay.edits.fused import beside_ns, merged
from perfdoctor.replay.graph.graph import Graph
from perfdoctor.replay.graph.simulate import simulate

NONE = Intervals.empty()
A, B, BOTH = ([True, False], [False, True], [True, True])


def place_with(calls: Frame, *measured: MeasuredRates) -> SimpleNamespace:
    """As much of a place as the edit looks at."""
    drawn = replace(Timeline.build({"calls": calls}, {"calls"}), measured=measured)
    return SimpleNamespace(timeline=drawn, device=0, info=Device(0, 0, H100))


def slow_host(second: int = 1, **columns) -> Graph:
    """Two launches, a query between them; kernels of 5 ns: the host takes 35 ns a step.

    ```
    host   | 10 gap | a 5 | 5 gap | query 2 | 8 gap | b 5 |
    ```
    `second`: the thread that makes the second launch.
    """
    nodes = [
        Node("a", HOST, 10, 15, (("b", 10, True),), gap=(0, 10), call=0),
        Node("query", HOST, 20, 22, (("a", 5, False),), gap=(15, 20), call=1),
        Node("A", WORK, 21, 26, (("B", 0, True), ("a", 6, False)), work=0),
        Node("b", HOST, 30, 35, (("query", 8, False),), gap=(22, 30), call=2),
        Node("B", WORK, 41, 46, (("A", 0, False), ("b", 6, False)), work=1),
    ]
    calls = frame(
        "calls", [{"start_ns": at, "end_ns": at, "thread": thread} for at, thread in ((0, 1), (1, 1), (2, second))]
    )
    return by_hand(nodes, 35, place=place_with(calls), **columns)


def full_queue(gap: int = 2, *measured: MeasuredRates) -> Graph:
    """Two kernels of 100 ns one behind the other, each `gap` ns after what was before it."""
    nodes = [
        Node("a", HOST, 0, 1, (("a", 0, True),), call=0),
        Node("b", HOST, 1, 2, (("a", 0, False),), gap=(1, 1), call=1),
        Node("A", WORK, 100, 200, (("B", 0, True), ("a", 6, False)), extra=gap, work=0),
        Node("B", WORK, 200, 300, (("A", 0, False), ("b", 6, False)), extra=gap, work=1),
    ]
    calls = frame("calls", [{"start_ns": at, "end_ns": at, "thread": 1} for at in (0, 1)])
    return by_hand(nodes, 200 + 2 * gap, place=place_with(calls, *measured))


def step(of: Graph) -> float:
    return simulate([of]).step_ns


def after(of: Graph, rows: list[bool], share: float = 1.0, but: Intervals = NONE) -> float:
    return step(merged(of, np.array(rows), share, but))


def test_the_host_does_not_launch_it_nor_what_was_for_its_launch():
    assert step(slow_host()) == 35
    assert after(slow_host(), B) == 15, "without 5 in front of the query, the query, 8 and the launch"
    assert after(slow_host(), A) == 20
    assert after(slow_host(), B, 0.5) == 26, "each of 5, 2, 8 and 5 loses whole nanoseconds"
    assert after(slow_host(), BOTH) == 0


def test_nothing_changes_where_nothing_is_chosen():
    assert after(slow_host(), [False, False]) == 35
    assert after(slow_host(), BOTH, 0.0) == 35


def test_what_the_host_does_beside_stays():
    assert after(slow_host(), B, but=Intervals.single(22, 30)) == 23
    assert after(slow_host(), B, but=Intervals.single(0, 100)) == 35


def test_a_call_is_for_the_next_launch_of_its_own_thread():
    assert after(slow_host(second=2), B) == 22, "the query is the other thread's"


def test_a_launch_stays_as_long_as_something_else_needs_it():
    nodes = [
        Node("graph", HOST, 10, 15, (("graph", 10, True),), gap=(0, 10), call=0),
        Node("A", WORK, 21, 26, (("B", 0, True), ("graph", 6, False)), work=0),
        Node("B", WORK, 26, 31, (("A", 0, False), ("graph", 6, False)), work=1),
    ]
    calls = frame("calls", [{"start_ns": 0, "end_ns": 0, "thread": 1}])
    graph = by_hand(nodes, 15, place=place_with(calls))
    assert after(graph, B) == 15
    assert after(graph, BOTH) == 0


def test_a_long_pause_in_front_is_something_else():
    nodes = [
        Node("a", HOST, 1_000_000, 1_000_010, (("a", 1_000_000, True),), gap=(0, 1_000_000), call=0),
        Node("A", WORK, 1_000_020, 1_000_030, (("A", 0, True), ("a", 10, False)), work=0),
    ]
    calls = frame("calls", [{"start_ns": 0, "end_ns": 0, "thread": 1}])
    graph = by_hand(nodes, 1_000_010, place=place_with(calls))
    assert after(graph, [True]) == 900_000


def test_a_wait_for_the_device_is_no_part_of_the_launch_behind_it():
    nodes = [
        Node("wait", HOST, 10, 10, (("a", 10, True),), gap=(0, 10), call=0),
        Node("waited", WAIT_END, 40, 40, (("wait", 30, False),), call=0),
        Node("a", HOST, 45, 50, (("waited", 5, False),), gap=(40, 45), call=1),
        Node("A", WORK, 60, 65, (("A", 0, True), ("a", 10, False)), work=0),
    ]
    calls = frame("calls", [{"start_ns": at, "end_ns": at, "thread": 1} for at in (0, 1)])
    graph = by_hand(nodes, 50, place=place_with(calls))
    assert after(graph, [True]) == 40


def test_in_a_full_queue_the_gap_in_front_goes_too():
    assert step(full_queue()) == 204
    assert after(full_queue(), B) == 102
    assert after(full_queue(), BOTH, 0.5) == 102


def test_of_a_long_gap_only_what_starting_takes_goes():
    assert step(full_queue(5_000)) == 10_200
    assert after(full_queue(5_000), B) == 8_100
    assert after(full_queue(5_000, rates(measurement("kernel_floor", 3_000.0))), B) == 7_100, "as measured there"
    assert after(full_queue(5_000, rates(measurement("launch", 3_000.0))), B) == 8_100


def test_what_goes_beside_the_work_is_counted():
    assert beside_ns(slow_host(), np.array(B), NONE) == 20
    assert beside_ns(slow_host(), np.array(B), Intervals.single(22, 30)) == 12
    assert beside_ns(full_queue(), np.array(BOTH), NONE) == 2 + 2 + 2

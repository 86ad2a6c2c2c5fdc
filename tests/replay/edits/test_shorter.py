"""What does each edit take out? On numbers made by hand, and on random pictures."""

from __future__ import annotations

import numpy as np
from builders import draw, only_place
from graphs import FEW, HOST, WAIT_END, WORK, Node, by_hand, graph, random_graphs
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.model.intervals import Intervals
from perfdoctor.replay.edits import shorter as edits
from perfdoctor.replay.graph.graph import Graph
from perfdoctor.replay.graph.simulate import simulate

US = 1_000
ALL = Intervals.single(0, 1 << 60)
NONE = Intervals.empty()


def hand_made(loader_wait: int = 0, second: Node | None = None) -> Graph:
    """100 ns between calls, a call of 50 that launches a kernel of 30, and one that waits for it: 210 ns a step.

    ```
    host    |  100 gap  | launch 50 |  wait … 20 behind the kernel's end
    device                   10 later, kernel 30
    ```
    """
    nodes = [
        Node("launch", HOST, 100, 150, (("waited", 100 - loader_wait, True),), gap=(0, 100), call=0, loader_wait=loader_wait),
        Node("kernel", WORK, 160, 190, (("kernel", 0, True), ("launch", 10, False)), work=0),
        Node("wait", HOST, 150, 150, (("launch", 0, False),), gap=(150, 150), call=1),
        Node("waited", WAIT_END, 210, 210, (("wait", 10, False), ("kernel", 20, False)), call=1),
    ]  # fmt: skip
    return by_hand(nodes, 210)


def step(of: Graph) -> float:
    return simulate([of]).step_ns


def test_host_time_between_calls_goes_away():
    assert step(hand_made()) == 210
    assert step(edits.without_host_time(hand_made(), Intervals.single(20, 80), 1.0)) == 150
    assert step(edits.without_host_time(hand_made(), Intervals.single(20, 80), 0.5)) == 180
    assert step(edits.without_host_time(hand_made(), Intervals.single(300, 400), 1.0)) == 210, "of another time"


def test_host_time_in_calls_goes_away_and_the_launch_takes_no_longer_for_it():
    shorter = edits.without_host_time(hand_made(), Intervals.single(110, 150), 1.0)
    assert shorter.duration_ns.tolist() == [10, 30, 0, 0]
    # the kernel still comes 60 ns after its call began
    assert shorter.lag_ns[1].tolist()[1] == 50
    assert step(shorter) == 210


def test_what_is_in_a_wait_is_not_the_hosts():
    assert step(edits.without_host_time(hand_made(), Intervals.single(150, 210), 1.0)) == 210


def test_host_time_goes_away_once():
    first = edits.without_host_time(hand_made(), Intervals.single(20, 80), 1.0)
    assert step(edits.without_host_time(first, Intervals.single(20, 80), 1.0)) == 150
    assert step(edits.without_host_time(first, Intervals.single(60, 100), 1.0)) == 130, "20 of these 40 were gone"
    half = edits.without_host_time(hand_made(), Intervals.single(20, 80), 0.5)
    assert step(edits.without_host_time(half, Intervals.single(20, 80), 1.0)) == 150


def test_edits_of_other_host_time_do_not_move_each_other():
    """The second finds its stretch where it was recorded, though the first has made the gap shorter."""
    one, other = Intervals.single(0, 40), Intervals.single(40, 100)
    for first, second in ((one, other), (other, one)):
        both = edits.without_host_time(edits.without_host_time(hand_made(), first, 1.0), second, 1.0)
        assert step(both) == 110


def test_a_faster_host_takes_less_between_and_in_calls_but_not_where_it_does_something_else():
    assert step(edits.with_faster_host(hand_made(), 0.5, NONE)) == 160
    assert step(edits.with_faster_host(hand_made(), 0.5, Intervals.single(0, 60))) == 190
    faster = edits.with_faster_host(hand_made(), 0.5, NONE)
    assert faster.duration_ns.tolist() == [25, 30, 0, 0]
    but_calls = edits.with_faster_host(hand_made(), 0.5, Intervals.single(100, 150))
    assert but_calls.duration_ns.tolist() == [50, 30, 0, 0]
    assert faster.lag_ns[1].tolist() == [0, 35, 0, 20], "the way back from a wait stays"


def test_a_faster_host_and_less_of_its_work_do_not_count_the_same_time_twice():
    work = Intervals.single(0, 60)
    both = edits.without_host_time(edits.with_faster_host(hand_made(), 0.5, NONE), work, 1.0)
    assert step(both) == step(edits.with_faster_host(edits.without_host_time(hand_made(), work, 1.0), 0.5, NONE)) == 130


def test_a_wait_that_is_dropped_lets_the_host_go_on():
    calls = np.array([False, True])
    gone = edits.without_waits(hand_made(), calls)
    assert step(gone) == 160, "100 between calls, 50 and 10 of the calls"
    assert step(edits.without_waits(hand_made(), ~calls)) == 210


def test_a_wait_for_all_streams_waits_for_none_of_them_where_it_is_dropped():
    many = [Node("kernel", WORK, 0, 5, (("kernel", 0, True),), work=0)]
    many += [Node(f"w{number}", WAIT_END, 10, 10, (("kernel", 5, False),) * 3, call=number) for number in range(4)]
    gone = edits.without_waits(by_hand(many, 10), np.array([True, False, True, True]))
    assert [each[1:].tolist() for each in gone.depends] == [[0, 0, 0, 0], [-1, 0, -1, -1], [-1, 0, -1, -1]]


def test_kernels_take_less():
    assert step(edits.with_shorter_work(hand_made(), np.array([True]), 1.0)) == 180
    assert step(edits.with_shorter_work(hand_made(), np.array([True]), 0.5)) == 195
    assert step(edits.with_shorter_work(hand_made(), np.array([False]), 1.0)) == 210


def paced() -> Graph:
    """A loader that gives a batch every 210 ns; the training takes 150 of them, and waits 60."""
    made = hand_made(loader_wait=60)
    depends, before, lag = made.depends[1].copy(), made.before[1].copy(), made.lag_ns[1].copy()
    depends[0], before[0], lag[0] = 0, True, 210 - 50
    return replace(
        made,
        depends=(made.depends[0], depends, made.depends[2]),
        before=(made.before[0], before, made.before[2]),
        lag_ns=(made.lag_ns[0], lag, made.lag_ns[2]),
        awaited=Intervals.single(0, 60),
    )


def test_beside_a_loader_with_a_pace_of_its_own_nothing_else_gains():
    assert step(paced()) == 210
    assert step(edits.with_shorter_work(paced(), np.array([True]), 1.0)) == 210
    assert step(edits.with_faster_host(paced(), 1.0, NONE)) == 210
    assert step(edits.without_host_time(paced(), ALL, 1.0)) == 210


def test_a_faster_loader_lets_the_training_have_its_own_pace():
    assert step(edits.without_loader_waits(paced(), 1.0)) == 150
    assert step(edits.without_loader_waits(paced(), 0.5)) == 180
    both = edits.with_shorter_work(edits.without_loader_waits(paced(), 1.0), np.array([True]), 1.0)
    assert step(both) == 120


def test_the_wait_for_such_a_loader_is_none_of_the_hosts_time():
    left = edits.without_host_time(edits.without_loader_waits(paced(), 1.0), Intervals.single(0, 60), 1.0)
    assert step(left) == 150
    beside = edits.without_host_time(edits.without_loader_waits(paced(), 1.0), Intervals.single(40, 80), 1.0)
    assert step(beside) == 130, "20 of these 40 the host waited"


def loading(kernel: str = "####") -> dict[str, object]:
    return {
        "kernels": f"      {kernel}",
        "host": ["     l    ", "iiiii     "],
        "repeat": 6,
    }


def test_a_drawn_loader_keeps_its_pace_and_a_single_process_does_not():
    drawn = draw(**loading())
    alone, in_process = graph(drawn, paced=True), graph(drawn, paced=False)
    unit = 100 * US
    assert step(alone) == step(in_process) == 10 * unit
    assert (alone.loader_wait_ns > 0).any()
    assert not (in_process.loader_wait_ns > 0).any()
    awaited = only_place(drawn).idle_causes["input_wait"]
    assert step(edits.without_host_time(alone, awaited, 1.0)) == 10 * unit
    freed = edits.without_loader_waits(alone, 1.0)
    assert step(freed) < 7 * unit
    assert step(edits.without_host_time(in_process, awaited, 1.0)) < 7 * unit


def test_shorter_collectives_shorten_what_is_sent_and_not_the_wait_for_the_late():
    def rank(compute: int) -> Graph:
        nodes = [
            Node("kernel", WORK, 0, compute, (("reduce", 0, True),), work=0),
            Node("reduce", WORK, compute, 340, (("kernel", 0, False),), work=1),
        ]
        return by_hand(nodes, 340, collectives=np.array([1]), transfer_ns=np.array([40]))

    ranks = [edits.with_shorter_work(each, np.array([False, True]), 0.5) for each in (rank(100), rank(300))]
    assert simulate(ranks).step_ns == 320
    gone = [edits.with_shorter_work(each, np.array([False, True]), 1.0) for each in (rank(100), rank(300))]
    assert simulate(gone).step_ns == 300


def every_edit(of: Graph, share: float) -> dict[str, Graph]:
    calls = np.ones(len(of.place.timeline.calls), dtype=bool)
    rows = np.ones(len(of.place.work), dtype=bool)
    return {
        "host time": edits.without_host_time(of, ALL, share),
        "loader": edits.without_loader_waits(of, share),
        "host": edits.with_faster_host(of, share, NONE),
        "waits": edits.without_waits(of, calls) if share else of,
        "work": edits.with_shorter_work(of, rows, share),
    }


@FEW
@given(random_graphs())
def test_an_edit_with_no_share_changes_nothing(graph):
    for name, changed in every_edit(graph, 0.0).items():
        assert np.array_equal(changed.duration_ns, graph.duration_ns), name
        for mine, other in zip(changed.lag_ns + changed.depends, graph.lag_ns + graph.depends, strict=True):
            assert np.array_equal(mine, other), name
        assert simulate([changed]).step_ns == simulate([graph]).step_ns, name


@FEW
@given(random_graphs(), st.sampled_from([0.1, 0.5, 1.0]))
def test_no_edit_makes_the_step_longer_and_more_of_it_no_longer(graph, share):
    before = simulate([graph]).step_ns
    for name, changed in every_edit(graph, share).items():
        part = simulate([changed]).step_ns
        assert part <= before * (1 + 1e-9), name
        assert simulate([every_edit(graph, 1.0)[name]]).step_ns <= part * (1 + 1e-9), name

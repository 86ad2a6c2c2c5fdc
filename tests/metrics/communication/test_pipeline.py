"""Are the messages of a pipeline matched by the ranks that they name, and does its order show?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import timeline

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.messages import is_ring, messages, pipelines
from perfdoctor.metrics.communication.parallelism import group_uses
from perfdoctor.metrics.communication.pipeline import Schedule, schedule
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.model.run import Run
from perfdoctor.replay.job.lines import line_of

US = 1000
STEP_US = 1000
NAME = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def run_of(*ranks: list[tuple[str, int, int]], steps: int = 6) -> Run:
    """Of each rank the kernels of messages in a step: peers, start and end in µs. Compute begins each step."""
    signals: dict[str, list[dict[str, object]]] = {"kernels": [], "collectives": [], "ranges": [], "calls": []}

    def put(signal: str, rank: int, start: int, end: int, name: str, **columns: object) -> None:
        place = {"rank": rank, "device": rank, "process": 100 + rank, "correlation": len(signals["calls"])}
        if signal != "ranges":
            launched = {**place, "start_ns": start * US - 2 * US, "end_ns": start * US - US, "name": "cudaLaunchKernel"}
            signals["calls"].append(launched)
        signals[signal].append({"start_ns": start * US, "end_ns": end * US, "name": name, **place, **columns})

    for rank, rows in enumerate(ranks):
        for at in range(0, steps * STEP_US, STEP_US):
            put("ranges", rank, at, at + STEP_US, f"ProfilerStep#{at // STEP_US}")
            put("kernels", rank, at + 4, at + 8, "gemm")
            for peers, start, end in rows:
                columns = {"kind": "send_recv", "peers": peers, "bytes": 4096, "stream": 20}
                put("collectives", rank, at + start, at + end, NAME, **columns)
    return prepare(timeline(**signals))


def turns(*peers: str) -> list[tuple[str, int, int]]:
    return [(each, 10 + 20 * number, 15 + 20 * number) for number, each in enumerate(peers)]


#: What the first, second and last of three stages send and receive in one step of four micro-batches.
ONE_BY_ONE = (
    turns(">1", ">1", ">1", "<1", ">1", "<1", "<1", "<1"),
    turns("<0", ">2", "<0", ">2", "<2", ">0", *("<0", ">2", "<2", ">0") * 2, "<2", ">0"),
    turns(*("<1", ">1") * 4),
)
ALL_FORWARD = (
    turns(*(">1",) * 4, *("<1",) * 4),
    turns(*("<0", ">2") * 4, *("<2", ">0") * 4),
    turns(*("<1",) * 4, *(">1",) * 4),
)


@pytest.mark.parametrize(("ranks", "name"), [(ONE_BY_ONE, "1F1B"), (ALL_FORWARD, "GPipe")])
def test_the_order_of_the_first_stage_names_the_schedule(ranks, name):
    found = schedule(run_of(*ranks))
    assert found is not None
    assert (found.stages, found.micro_batches, found.chunks) == (3, 4, 1)
    assert name in found.name


def test_messages_from_the_last_stage_to_the_first_show_chunks():
    forward, back = [">1"] * 8, ["<1"] * 8  # two chunks, four micro-batches
    run = run_of(
        turns(*forward, *("<2",) * 4, *(">2",) * 4, *back),
        turns(*("<0",) * 8, *(">2",) * 8, *("<2",) * 8, *(">0",) * 8),
        turns(*("<1",) * 8, *(">0",) * 4, *("<0",) * 4, *(">1",) * 8),
    )
    assert schedule(run) == Schedule(3, 4, 2, "interleaved")


def test_the_bubble_of_even_stages_is_as_published():
    assert Schedule(4, 8, 1, "").bubble_share == pytest.approx(3 / 11)
    assert Schedule(4, 8, 2, "").bubble_share == pytest.approx(3 / 19)


def test_of_two_stages_and_of_unknown_ends_no_schedule_is_known():
    assert schedule(run_of(turns(">1", "<1"), turns("<0", ">0"))) is None
    assert schedule(run_of(turns("", ""), turns("", ""), turns("", ""))) is None


def test_one_kernel_that_sends_and_receives_meets_the_other_once():
    run = run_of([(">1", 10, 12), (">1 <1", 20, 30)], [("<0", 10, 12), (">0 <0", 26, 30)])
    places = run.job.places
    assert {pair: rows[0].size for pair, rows in messages(places).items()} == {(0, 1): 12, (1, 0): 6}
    matched = skew(run.job, with_messages=True)
    assert matched is not None
    assert len(matched.kinds) == 10  # of five complete steps
    assert sorted(matched.shortest_ns.tolist()) == [2 * US] * 5 + [4 * US] * 5


def test_one_kernel_may_meet_two_others_and_the_line_goes_on_behind_both():
    run = run_of([(">1", 10, 20)], [("<0 >2", 10, 20)], [("<1", 10, 20)])
    matched = skew(run.job, with_messages=True)
    assert matched is not None
    line = line_of(run.job.places[1], matched, 1)
    piece, meeting = line.behind.T
    assert np.unique(piece).size == 5  # a wait in each of the five complete steps
    assert np.unique(meeting).size == 10
    before, after = line.queued.T
    assert not (before == after).any()
    assert np.unique(after).size == 8  # both meetings of each step but the first


def test_a_ring_that_sends_one_way_is_no_pipeline():
    ring = [turns(">1 <2"), turns(">2 <0"), turns(">0 <1")]
    assert not pipelines(run_of(*ring).job.places).any()
    assert pipelines(run_of(*ONE_BY_ONE).job.places).tolist() == [0, 1, 2]
    assert is_ring([(0, 1), (1, 2), (2, 0)])
    assert not is_ring([(0, 1), (1, 0)])
    assert not is_ring([(0, 1), (1, 2)])


def test_what_sends_round_a_ring_divides_a_sequence():
    ring = [turns(">1 <2"), turns(">2 <0"), turns(">0 <1")]
    assert {use.kind for use in group_uses(run_of(*ring)).values()} == {"sequence"}
    assert {use.kind for use in group_uses(run_of(*ONE_BY_ONE)).values()} == {"pipeline"}


def test_a_peer_that_was_not_recorded_is_nobody():
    assert messages(run_of(turns(">1", ">7"), turns("<0")).job.places).keys() == {(0, 1)}

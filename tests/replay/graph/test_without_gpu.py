"""Is a training without a GPU simulated as it ran, and with fixes as a machine in plain Python simulates it?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw, only_finding, timeline
from folders import FIXTURES
from hypothesis import given
from hypothesis import strategies as st
from recorded import of_recordings, recording
from talking import DISPATCH_NS, UNIT_NS, talking

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.intervals import Intervals
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving
from perfdoctor.replay.edits import shorter as edits
from perfdoctor.replay.edits.actions import edit_of
from perfdoctor.replay.graph.graph import HOST, WAIT_END, WORK
from perfdoctor.replay.graph.ranks import graphs_of
from perfdoctor.replay.graph.simulate import simulate
from perfdoctor.replay.graph.without_gpu import host_graph, with_fewer_collectives
from perfdoctor.replay.what_if.run_replay import replay_of, why_not_replayable
from perfdoctor.vocabulary.rulebook import load_rules

BEGIN_NS = 1_000_000
LIBRARY = 2


def graph(drawn, *, paced=True, **more):
    (place,) = prepare(drawn).places
    return host_graph(place, paced=paced, **more)


def units(*graphs):
    return simulate(graphs).step_ns / UNIT_NS


def pulled(action, share, *graphs, run=None):
    """Simulated with a share of what the action moves taken out."""
    edit = edit_of(action, Finding("a-rule", Saving(1, 1, 1), "high", {}), run)
    return units(*(edit(each, share) for each in graphs))


# --- one thread: what is taken out is won ---


def test_unchanged_a_thread_takes_as_long_as_it_did():
    assert units(graph(draw(host=["oooo  oooo  ", " "], repeat=5))) == 12
    assert units(graph(draw(host=["ooIIIIoo gg ", " "], repeat=5), paced=False)) == 12


@pytest.mark.parametrize(("action", "left"), [("input_wait", 8), ("garbage_collection", 10), ("storage", 12)])
def test_without_a_cause_the_step_is_shorter_by_it(action, left):
    assert pulled(action, 1.0, graph(draw(host=["ooIIIIoo gg ", " "], repeat=5), paced=False)) == left
    assert pulled(action, 0.5, graph(draw(host=["ooIIIIoo gg ", " "], repeat=5), paced=False)) == (left + 12) / 2


def test_time_of_the_thread_that_a_finding_is_about_goes():
    drawn = draw(host=["o " * 3_000 + "o" * 1_000, " "], repeat=4, unit_us=10)
    finding, run = only_finding("small-kernels", drawn), prepare(drawn)
    (own,) = graphs_of(run)
    shorter = simulate([edit_of("fused", finding, run)(own, 0.5)]).step_ns
    assert shorter == pytest.approx(70_000_000 - 0.5 * 59_990_000)  # 3,000 ops of 10 µs and 2,999 gaps between them


def test_of_more_steps_only_the_last_are_simulated():
    drawn = draw(host=["oooo  oooo  ", " "], repeat=5)
    own = graph(drawn, most_units=2)
    assert own.units == 2
    assert (own.kind == WORK).sum() == 2
    assert units(own) == 12


def test_without_steps_there_is_no_graph():
    assert graph(draw(host="oooo oo", mark=None)) is None


# --- a loader with a pace of its own ---


def a_loader(wait: int, work: int, steps: int) -> float:
    """The steady step of a training whose next batch is ready `wait + work` after the one before, in plain Python."""
    pace, ready, now, ends = wait + work, 0.0, 0.0, []
    for _ in range(steps):
        now = max(now, ready)
        ready = now + pace
        now += work
        ends.append(now)
    return ends[-1] - ends[-2]


LATE = {"host": ["o" * 6 + " " * 4 + "iiii", " "], "repeat": 6}


def test_a_loader_beside_the_training_delivers_at_its_own_pace():
    own = graph(draw(**LATE))
    assert units(own) == a_loader(4, 10, 9) == 14
    assert pulled("host_work", 1.0, own) == 14  # what the thread wins it waits for the next batch
    assert pulled("input_wait", 1.0, own) == 10
    assert pulled("input_wait", 0.5, own) == 12


def test_a_loader_in_the_trainings_own_process_has_no_pace():
    assert pulled("host_work", 1.0, graph(draw(**LATE), paced=False)) == 10


def test_a_wait_too_short_to_show_a_slow_loader_is_the_threads_own_time():
    short = draw(host=["o" * 80 + " " * 18 + "ii", " "], repeat=6)
    assert pulled("host_work", 1.0, graph(short)) == 82


# --- ranks that talk to each other ---


@pytest.mark.parametrize("computing", [[5, 5], [5, 8], [3, 4, 9]])
@pytest.mark.parametrize("parts", [1, 3])
def test_unchanged_ranks_wait_for_the_last_one(computing, parts):
    drawn, step = talking(computing, 3, parts=parts)
    run = prepare(drawn)
    graphs = graphs_of(run)
    assert [(graph.kind == WAIT_END).sum() for graph in graphs] == [6 * parts] * len(computing)
    assert all(graph.collectives.size == 6 * parts for graph in graphs)
    assert units(*graphs) == pytest.approx(step, rel=0.001)


def test_with_faster_collectives_the_last_rank_is_still_waited_for():
    drawn, _ = talking([5, 8], 4)
    run = prepare(drawn)
    dispatch = DISPATCH_NS / UNIT_NS
    for share in (0.25, 0.5, 1.0):
        sending = (4 - dispatch) * (1 - share) + dispatch
        assert pulled("collectives", share, *graphs_of(run), run=run) == pytest.approx(8 + sending, abs=0.02)


def test_ranks_that_are_late_by_turns_wait_less_when_they_meet_once():
    """Part by part the step is (8 + 3) + (8 + 3); in one collective both ranks have computed 13 units when they come."""
    drawn, step = talking([[5, 8], [8, 5]], 3, parts=2)
    run = prepare(drawn)
    graphs = graphs_of(run)
    assert step == 22
    fewer = [with_fewer_collectives(each, 1.0) for each in graphs]
    assert [each.collectives.size for each in fewer] == [6, 6]
    assert units(*fewer) == pytest.approx(13 + 3 + 3, abs=0.3)  # each transfer stays
    left = pulled("collectives", 1.0, *graphs, run=run)
    assert left == pytest.approx(13, abs=2 * DISPATCH_NS / UNIT_NS + 0.02)  # all but the way to the library's thread


def test_a_rank_that_is_always_late_is_waited_for_in_one_collective_as_well():
    drawn, step = talking([5, 8], 3, parts=2)
    graphs = graphs_of(prepare(drawn))
    assert units(*(with_fewer_collectives(each, 1.0) for each in graphs)) == pytest.approx(
        step - DISPATCH_NS / UNIT_NS, abs=0.05
    )


def test_a_late_rank_that_computes_less_is_waited_for_less():
    drawn, _ = talking([5, 8], 4)
    run = prepare(drawn)
    fast, late = graphs_of(run)
    for share in (0.125, 0.25):
        shorter = edits.without_host_time(late, late.place.compute, share)
        assert units(fast, shorter) == pytest.approx(8 * (1 - share) + 4, abs=0.01)
    nothing = edits.without_host_time(late, late.place.compute, 1.0)
    assert units(fast, nothing) == pytest.approx(5 + 4, abs=0.01)  # then the other rank is the last


def test_a_collective_that_is_hidden_costs_nothing():
    """Asked for early, and not waited for: the thread computes on, and no end of a wait is there."""
    rows = {"ops": [], "ranges": []}
    for step in range(5):
        at = BEGIN_NS + 10 * step * UNIT_NS
        rows["ops"] += [{"start_ns": at, "end_ns": at + 10 * UNIT_NS, "name": "aten::mm"}]
        rows["ops"] += [{"start_ns": at + UNIT_NS, "end_ns": at + UNIT_NS + 900, "name": "c10d::allreduce_"}]
        sent = {"start_ns": at + 2 * UNIT_NS, "end_ns": at + 7 * UNIT_NS, "name": "gloo:all_reduce"}
        mark = {"start_ns": at, "end_ns": at + 10 * UNIT_NS, "name": f"ProfilerStep#{step}"}
        rows["ranges"] += [{**sent, "thread": LIBRARY}, mark]
    own = graph(timeline(**rows))
    assert not (own.kind == WAIT_END).any()
    asking = 900 / UNIT_NS  # all that is won: the call of its own thread
    assert pulled("collectives", 1.0, own) == pytest.approx(units(own) - asking) == 10 - asking


def test_one_rank_of_two_cannot_tell_what_a_collective_waited_for():
    drawn, _ = talking([5, 8], 4)
    frames = {name: frame.of(rank=0) for name, frame in drawn.frames.items()}
    alone = type(drawn).build(frames, drawn.recorded, world_size=2)
    replay = replay_of(prepare(alone))
    assert not replay.can_replay("collectives", Finding("exposed-communication", Saving(1, 1, 1), "high", {}))


# --- the whole way ---


def test_a_run_without_a_gpu_is_predicted_with_all_its_fixes_and_tells_its_critical_path():
    drawn = draw(host=["oooooo ggg ", " " * 7 + "  ", "IIII"], repeat=6, unit_us=1_000, recorded=["ops", "ranges"])
    assert why_not_replayable(prepare(drawn)) == ""
    diagnosis = diagnose(drawn, list(load_rules().values()))
    assert diagnosis.prediction.replay_error == 0
    path = diagnosis.critical_path
    assert path.step_ns == diagnosis.base_ns
    assert sum(piece.ns_per_step for piece in path.pieces) == pytest.approx(path.step_ns)
    assert {piece.kind for piece in path.pieces} >= {"compute", "garbage_collection", "input_wait"}


def test_what_only_a_device_has_is_not_simulated():
    replay = replay_of(prepare(draw(host=["oooo  oooo  ", " "], repeat=5)))
    finding = Finding("a-rule", Saving(1, 1, 1), "high", {})
    for action in ("kernels", "fused", "copies", "waits", "host_pace", ""):
        assert not replay.can_replay(action, finding)
    assert replay.can_replay("host_work", finding)


@of_recordings(
    FIXTURES / name for name in ("cpu-slow-input/torch", "cpu-slow-input-fixed/torch", "cpu-slow-input-nsys/nsys")
)
def test_a_recorded_training_is_simulated_as_it_ran_and_without_its_wait_is_shorter_by_that(path):
    run = recording(path).run
    replay = replay_of(run)
    assert replay.error == pytest.approx(0, abs=0.001)
    waited = run.mean(lambda place: (place.host.explicit["input_wait"] & place.window).total_ns)
    edit = edit_of("input_wait", Finding("input-wait", Saving(1, 1, 1), "high", {}), run)
    without = simulate([edit(graph, 1.0) for graph in replay.graphs]).step_ns
    assert without == pytest.approx(run.step_ns - waited, rel=0.001)


# --- whatever is taken out, the step gets no longer ---

PICTURES = st.text(alphabet="oo i g k ", min_size=4, max_size=30)


@given(PICTURES, st.integers(2, 5), st.booleans(), st.lists(st.integers(0, 3_000), min_size=2, max_size=8), st.data())
def test_less_of_anything_is_never_slower_and_nothing_less_is_as_long(picture, repeat, paced, moments, data):
    own = graph(draw(host=["o" + picture, " "], repeat=repeat), paced=paced)
    before = simulate([own]).step_ns
    assert before == pytest.approx(own.step_ns)
    edges = np.sort(np.array(moments[: len(moments) // 2 * 2])) * UNIT_NS // 10
    stretches = Intervals.of(edges[::2], edges[1::2])
    last = before
    for share in (0.0, 0.3, 1.0):
        now = simulate([edits.without_host_time(own, stretches, share)]).step_ns
        assert now <= last + own.units
        last = now
    waits = data.draw(st.floats(0, 1))
    assert simulate([edits.without_loader_waits(own, waits)]).step_ns <= before


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.integers(1, 9), st.integers(1, 3), st.floats(0, 1))
def test_ranks_that_talk_less_or_compute_less_are_never_slower(computing, sending, parts, share):
    drawn, step = talking(computing, sending, parts=parts)
    run = prepare(drawn)
    graphs = graphs_of(run)
    before = units(*graphs)
    assert before == pytest.approx(step, rel=0.002)
    assert pulled("collectives", share, *graphs, run=run) <= before
    assert units(*(edits.without_host_time(each, each.place.compute, share) for each in graphs)) <= before


def test_nodes_come_after_all_they_depend_on():
    drawn, _ = talking([5, 8], 4, parts=2)
    for own in graphs_of(prepare(drawn)):
        for on, before in zip(own.depends, own.before, strict=True):
            assert ((on < np.arange(len(own))) | before).all()
        assert set(own.kind.tolist()) == {HOST, WAIT_END, WORK}

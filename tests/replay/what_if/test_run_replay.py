"""Does taking a whole fault out of the replay win what the fault costs? And is the unchanged replay true to recordings?"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import plant
import pytest
from builders import draw, only_finding
from folders import RECORDINGS
from labels import cases
from msgspec.structs import replace
from recorded import parameter, recording
from tables import one_of_each

from perfdoctor.diagnosis.predicted_saving import predicted_saving
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.real_time import MOST_IDLE_OF_DEVICE_PACED
from perfdoctor.metrics.host.feeding import loader
from perfdoctor.model.run import Run
from perfdoctor.readers.open import read
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving
from perfdoctor.replay.edits import shorter
from perfdoctor.replay.edits.actions import Edit, affected_ns, edit_of, shares
from perfdoctor.replay.graph.graph import Graph
from perfdoctor.replay.graph.ranks import graphs_of
from perfdoctor.replay.graph.simulate import simulate
from perfdoctor.replay.what_if.run_replay import replay_of
from perfdoctor.vocabulary.rulebook import load_rules

#: Of these the action moves the fault and little else; of the others only a part of what it moves is the fault.
WHOLE = ("input-wait", "host-work", "garbage-collection", "host-syncs", "exposed-copies")
#: fp32 matmuls are planted with four times the time that they take on tensor cores.
FP32_SHARE = 0.75
#: Of four messages of gradients a step, the last of which is exposed, no compute can hide the last.
PREDICTED = {"exposed-communication": 3 / 4}
ACTIONS = {
    "input-wait": "input_wait",
    "host-work": "host_work",
    "garbage-collection": "garbage_collection",
    "host-syncs": "waits",
    "exposed-copies": "copies",
    "exposed-communication": "collectives",
    "fp32-matmuls": "kernels",
    "launch-bound": "host_pace",
}


@cache
def planted(rule: str, share: float, ranks: int) -> tuple[Run, tuple[Graph, ...], plant.Faulty]:
    faulty = plant.faulty({rule: share} if rule else {}, ranks, 5)
    with tempfile.TemporaryDirectory() as scratch:
        run = prepare(read([plant.write_nsys(faulty.machines, Path(scratch) / "nsys")]))
    return run, graphs_of(run, paced=loader(run) != "single-process"), faulty


def error(graphs: tuple[Graph, ...]) -> float:
    recorded = sum(graph.step_ns for graph in graphs) / len(graphs)
    return simulate(graphs).step_ns / recorded - 1


def rule_of(rule: str, share: float, ranks: int) -> str:
    return rule


def planted_faults() -> Iterator[tuple[str, float, int]]:
    for rule in ACTIONS:
        for share in (0.1, 0.4):
            for ranks in (1, 4):
                if ranks >= plant.FAULTS[rule].fewest_ranks:
                    yield rule, share, ranks


@pytest.mark.parametrize(("rule", "share", "ranks"), one_of_each(rule_of, planted_faults()))
def test_the_replay_of_a_faulty_training_is_true_to_it(rule, share, ranks):
    _, graphs, _ = planted(rule, share, ranks)
    assert len(graphs) == ranks
    assert abs(error(graphs)) < 0.01


@pytest.mark.parametrize(
    ("rule", "share", "ranks"), one_of_each(rule_of, (each for each in planted_faults() if each[0] in WHOLE))
)
def test_without_all_of_a_fault_the_step_is_shorter_by_what_it_costs(rule, share, ranks):
    run, graphs, faulty = planted(rule, share, ranks)
    finding = Finding(rule, Saving(1, 1, 1), "high", {})
    edit = every_wait if rule == "host-syncs" else edit_of(ACTIONS[rule], finding, run)
    assert won(graphs, edit, 1.0) == pytest.approx(faulty.cost[rule], abs=0.02)


def won(graphs: Sequence[Graph], edit: Edit, share: float) -> float:
    return 1 - simulate([edit(graph, share) for graph in graphs]).step_ns / simulate(graphs).step_ns


def every_wait(graph: Graph, share: float) -> Graph:
    """Also those behind which the device sends, and waits for another rank that waited."""
    return shorter.without_waits(graph, np.ones(len(graph.place.timeline.calls), dtype=bool))


@pytest.mark.parametrize(
    ("rule", "share", "ranks"), one_of_each(rule_of, (each for each in planted_faults() if each[0] not in WHOLE))
)
def test_as_much_as_was_planted_wins_what_it_costs(rule, share, ranks):
    run, graphs, faulty = planted(rule, share, ranks)
    found = only_finding(rule, run)
    pulled = affected_ns(ACTIONS[rule], found, run)
    part = FP32_SHARE if rule == "fp32-matmuls" else shares(found.saving_ns_per_step, pulled)[1]
    expected = faulty.cost[rule] * PREDICTED.get(rule, 1.0)
    assert won(graphs, edit_of(ACTIONS[rule], found, run), part) == pytest.approx(expected, abs=0.02)


def test_a_healthy_training_plays_as_it_was():
    for ranks in (1, 4):
        assert abs(error(planted("", 0.0, ranks)[1])) < 0.01


#: Its ranks wait for some that were not recorded; or a single step is left, and its device is half a step behind its host;
#: or collectives were left out of it, on one rank others than on the other.
INCOMPLETE = {"kineto/dlrm-8rank": 0.30, "wild/k-tr-qcomm2": 0.30, "kineto/sampled-2-of-128": 0.05}
PATHS = [
    parameter(RECORDINGS / case["path"], RECORDINGS / case["path"], INCOMPLETE.get(case["path"], 0.01))
    for case in cases()
    if "fails" not in case and not case["path"].endswith((".qdrep", ".nsys-rep"))  # those need nsys to be read
]


@pytest.mark.recordings
@pytest.mark.parametrize(("path", "most"), PATHS)
def test_the_replay_of_a_real_recording_is_true_to_it(path, most):
    run = recording(path).run
    if graphs := graphs_of(run, paced=loader(run) != "single-process") if run.per_step else ():
        assert -(most + most_hidden_share(run)) <= error(graphs) <= most


def most_hidden_share(run):
    """Of the step: without what recording cost a host that is ahead, its device is idle for less time, down to none."""
    idle = max((place.idle.total_ns / place.window.total_ns for place in run.places), default=1.0)
    return idle if idle <= MOST_IDLE_OF_DEVICE_PACED else 0.0


@pytest.mark.parametrize("rule", ["host-syncs", "item-syncs", "optimizer-syncs"])
def test_reading_in_some_of_the_steps_saves_that_share_of_not_reading(rule):
    """Of reads one behind the other, as an optimizer makes, leaving out four of five would win nothing."""
    run, _, faulty = planted(rule, 0.4, 1)
    replay, found = replay_of(run), only_finding(rule, run)
    fix = replay.fix(rule, "waits", found)
    least, likely, most = (replay.base_ns - replay.simulated_ns([fix], case) for case in range(3))
    assert likely / most == pytest.approx(fix.shares[1], abs=1e-6)
    assert least / most == pytest.approx(fix.shares[0], abs=1e-6)
    assert most / replay.base_ns == pytest.approx(faulty.cost[rule], rel=0.2)


def garbage_in_one_step() -> Run:
    """Seven steps of 2,400 kernels, of which the replay takes the last four; only the second collects garbage."""
    kernels, launches, collecting, marks = "", "", "", ""
    for number in range(8):
        pause = 2400 if number == 2 else 4
        kernels += " " * pause + "#+" * 1200
        launches += " " * (pause - 1) + "l" * 2400 + " "
        collecting += ("g" if number == 2 else " ") * (pause - 1) + " " * 2401
        marks += str(number) * (pause + 2400)
    return prepare(draw(kernels=kernels, host=[launches, collecting, marks], unit_us=10))


def test_last_steps_that_do_not_stand_for_all_are_not_asked_what_a_fix_of_the_others_saves():
    run = garbage_in_one_step()
    replay, found = replay_of(run), only_finding("garbage-collection", run)
    assert replay is not None
    assert replay.why_not("garbage_collection", found) == (
        "only the last 4 of 7 steps can be replayed, and they have another share of it"
    )
    assert replay.why_not("host_pace", found) == replay.why_not("kernels", found) == ""
    saved = predicted_saving(load_rules()["garbage-collection"], found, run, replay)
    assert saved.ns.likely == found.saving_ns_per_step.likely > 0.1 * run.step_ns


def found_by_all_ranks(rule: str, low: int, likely: int, high: int) -> Finding:
    saving = Saving(low, likely, high)
    return Finding(rule=rule, saving_ns_per_step=saving, confidence="high", values={}, evidence=(), by_all_ranks=True)


def test_what_a_replay_of_all_ranks_saves_is_its_share_of_what_other_fixes_leave():
    run, _, _ = planted("launch-bound", 0.3, 2)
    replay = replay_of(run)
    assert replay is not None
    other = replay.fix("launch-bound", "host_pace", only_finding("launch-bound", run))
    tenth = run.step_ns // 10
    stage = replay.fix("pipeline-bubbles", "collectives", found_by_all_ranks("pipeline-bubbles", 0, tenth, 2 * tenth))
    left_ns = replay.step_ns([other])
    assert left_ns < 0.9 * run.step_ns
    assert replay.step_ns([stage]) == pytest.approx(0.9 * run.step_ns, abs=2)
    assert replay.step_ns([other, stage]) == replay.step_ns([stage, other]) == pytest.approx(0.9 * left_ns, abs=2)
    assert replay.step_ns([other, stage], 2) == pytest.approx(0.8 * replay.step_ns([other], 2), abs=2)
    # A cause and its symptom count the same time: the larger one of both.
    symptom = replace(stage, cause=other.cause)
    assert replay.step_ns([other, symptom]) == left_ns


def test_its_saving_is_no_matter_of_the_replay_of_single_ranks():
    run, _, _ = planted("launch-bound", 0.3, 2)
    replay = replay_of(run)
    assert replay is not None
    finding = found_by_all_ranks("pipeline-bubbles", 0, run.step_ns // 10, run.step_ns // 10)
    assert replay.can_replay("collectives", finding)
    assert not replay.gives_saving("collectives", finding)

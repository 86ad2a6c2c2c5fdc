"""What does an action move, how far does a finding pull it, and how much may that win?"""

from __future__ import annotations

import numpy as np
import plant
import pytest
from builders import draw, draw_steps, only_place
from msgspec.structs import replace
from tables import one_of_each

from perfdoctor.detectors import detector
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import merge
from perfdoctor.readers.open import read
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving
from perfdoctor.replay.edits import actions
from perfdoctor.replay.edits.chosen_work import chosen_of
from perfdoctor.replay.graph.graph import Graph
from perfdoctor.replay.graph.ranks import graphs_of
from perfdoctor.replay.graph.simulate import simulate
from perfdoctor.vocabulary.parts import SHRINKS
from perfdoctor.vocabulary.rulebook import Rule, load_rules

MS = 1_000_000
RULES = load_rules()
WITH_WORK = sorted(
    rule.id
    for rule in RULES.values()
    if rule.action in actions.WORK_SIGNALS and rule.id in plant.FAULTS and rule.id != "exposed-communication"
)


def found(rule: Rule, run: Run) -> Finding:
    (finding,) = detector(rule)(run, rule.at)
    return finding


def pulled(rule: Rule, finding: Finding, run: Run, case: int = 1) -> tuple[float, float]:
    """The step as it was, and with the fix."""
    graphs = graphs_of(run)
    saving = finding.saving_ns_per_step
    part = actions.shares(saving, actions.affected_ns(rule.action, finding, run))[case]
    edit = actions.edit_of(rule.action, finding, run)
    return simulate(graphs).step_ns, simulate([edit(graph, part) for graph in graphs]).step_ns


def a_finding(**changes) -> Finding:
    return replace(Finding("x", Saving(1 * MS, 2 * MS, 4 * MS), "high", {}), **changes)


def test_every_rule_names_a_lever_that_exists():
    assert {rule.action for rule in RULES.values()} <= {"", *SHRINKS}


def test_a_fix_goes_no_further_than_all_the_way():
    assert actions.shares(Saving(1, 5, 20), 10) == (0.1, 0.5, 1.0)
    assert actions.shares(Saving(1, 5, 20), 0) == (0.0, 0.0, 0.0)


def two_kernels() -> Run:
    """Steps of 40 ms in which one kernel takes 10 and another one 30, launched one behind the other in a full queue."""
    return prepare(draw_steps(kernels="e" * 10 + "#" * 30))


def test_a_finding_says_of_what_its_saving_is_a_share():
    run = two_kernels()
    place = run.places[0]
    rows = place.kernel_ns <= 10 * MS
    assert actions.affected_ns("kernels", a_finding(), run) == 40 * MS
    assert actions.affected_ns("kernels", a_finding(work={(0, 0): rows}), run) == 10 * MS
    assert actions.affected_ns("kernels", a_finding(work={(0, 0): rows}, affected_ns=8 * MS), run) == 8 * MS
    assert actions.affected_ns("kernels", a_finding(work={(1, 0): rows}), run) == 0


def test_only_the_chosen_kernels_get_shorter():
    run = prepare(draw(kernels="e" * 10 + "#" * 30, repeat=6, unit_us=1000, host="ll", host_ahead=20))
    place = run.places[0]
    finding = a_finding(work={(0, 0): place.kernel_ns <= 10 * MS})
    (graph,) = graphs_of(run)
    shorter = actions.edit_of("kernels", finding, run)(graph, 0.5)
    assert sorted(set(shorter.duration_ns[graph.work_row >= 0].tolist())) == [5 * MS, 30 * MS]


def test_shorter_work_wins_no_more_than_it_is_shorter_and_what_is_not_asked_for_the_hosts_part_too():
    run = prepare(draw(host="l l l l   ", kernels=" # # # #  ", repeat=6))
    graphs = graphs_of(run)
    finding = a_finding(work={(0, 0): np.ones(len(run.places[0].kernels), dtype=bool)}, affected_ns=4 * MS)
    assert actions.most_ns("kernels", finding, run, graphs) == (1 * MS, 2 * MS, 4 * MS)
    assert actions.most_ns("host_pace", finding, run, graphs) == (4 * MS, 4 * MS, 4 * MS)
    # four launches of 100 µs with three gaps of 100, and of the pause of 400 no more than 100
    low, likely, high = actions.most_ns("fused", finding, run, graphs)
    assert (low - 1 * MS, likely - 2 * MS, high - 4 * MS) == pytest.approx((200_000, 400_000, 800_000), rel=0.02)


# ---- each rule on what was planted -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A run with one fault of two fifths of the step, in the form that shows it."""

    def run_of(rule: str) -> Run:
        fault = plant.FAULTS[rule]
        faulty = plant.faulty({rule: 0.4}, fault.fewest_ranks, 5)
        write = plant.write_kineto if "kineto" in fault.forms else plant.write_nsys
        return prepare(read([write(faulty.machines, tmp_path_factory.mktemp(rule))]))

    return run_of


def kind(rule_id: str) -> tuple[str, str]:
    return RULES[rule_id].action, plant.FAULTS[rule_id].plant.__module__


@pytest.mark.parametrize("rule_id", one_of_each(kind, WITH_WORK))
def test_a_rule_chooses_the_work_that_its_saving_counts(rule_id, planted):
    rule, run = RULES[rule_id], planted(rule_id)
    finding = found(rule, run)
    assert set(finding.work) == {(place.rank, place.device) for place in run.places}
    for place in run.places:
        mask = finding.work[place.rank, place.device]
        assert mask.size in (len(place.kernels), len(place.copies), len(place.collectives)) or rule.action == "fused"
        assert chosen_of(place, actions.WORK_SIGNALS[rule.action], finding.work).sum() > 0
        assert mask.sum() < mask.size or rule.action in ("copies", "collectives")
    saving = finding.saving_ns_per_step
    assert 0 < saving.likely <= saving.high <= 1.01 * finding.affected_ns
    before, after = pulled(rule, finding, run)
    # The queue is full: what the kernels take less the step does, or, of what is fused, the gaps between them as well.
    assert 0.8 * saving.likely < before - after < 1.35 * saving.likely
    none_before, none_after = pulled(rule, replace(finding, saving_ns_per_step=Saving(0, 0, 0)), run)
    assert none_before == none_after


def test_the_late_rank_comes_in_time(planted):
    run = planted("rank-skew")
    finding, rule = found(RULES["rank-skew"], run), replace(RULES["rank-skew"], action="lateness")
    before, after = pulled(rule, finding, run)
    assert before - after == pytest.approx(0.4 * before, rel=0.2)


def test_no_rank_is_late_where_no_one_is_the_clear_culprit():
    def rank_of_three(number: int):
        arrives = [30 if step % 3 == number else 10 for step in range(9)]
        return draw(
            kernels="".join("#" * at + " " * (40 - at) for at in arrives),
            nccl="".join(" " * at + "=" * (40 - at) for at in arrives),
            rank=number, unit_us=1000,
        )  # fmt: skip

    finding = found(RULES["rank-skew"], prepare(merge([rank_of_three(number) for number in range(3)])))
    assert not finding.work


def test_a_host_that_is_the_limit_leaves_nothing_for_faster_kernels():
    place = only_place(draw(host="l    l    ", kernels=" ##   ##  ", repeat=6))
    run = Run(place.timeline, (place,))
    (graph,) = graphs_of(run)
    finding = a_finding(work={(0, 0): np.ones(len(place.kernels), dtype=bool)})

    def step(one: Graph) -> float:
        return simulate([one]).step_ns

    assert step(actions.edit_of("kernels", finding, run)(graph, 0.5)) == pytest.approx(step(graph), rel=0.001)
    assert step(actions.edit_of("fused", finding, run)(graph, 0.5)) < 0.95 * step(graph)

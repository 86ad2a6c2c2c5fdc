"""Is a planted fault found, and nothing else? A small part of what `python benchmarks/accuracy.py` runs."""

from __future__ import annotations

import sys

import accuracy
import faults
import parallelism
import plant
import pytest
import scene_faults
import training
from formulas import missed
from tables import one_of_each

from perfdoctor.vocabulary.derivations import SOURCES
from perfdoctor.vocabulary.rulebook import load_rules

#: Found at 10 % of a step, on so many ranks.
CERTAIN = {
    "input-wait": 1,
    "host-syncs": 1,
    "launch-bound": 1,
    "blocking-checkpoint": 1,
    "fp32-matmuls": 1,
    "small-kernels": 1,
    "unfused-optimizer": 1,
    "exposed-copies": 1,
    "pageable-copies": 1,
    "exposed-communication": 2,
    "rank-skew": 4,
    "item-syncs": 1,
    "results-copied-back": 1,
    "many-small-copies": 1,
    "slow-host-link": 1,
    "peer-waits": 8,
    "depthwise-convolutions": 1,
    "fp64-kernels": 1,
    "layout-transposes": 1,
    "sorting-backward": 1,
    "precision-casts": 1,
    "recomputation": 1,
    "gradient-clipping": 1,
    "parameter-loops": 1,
    "late-gathers": 2,
    "late-gradient-bucket": 2,
    "broadcast-buffers": 2,
    "pipeline-bubbles": 4,
    "gpus-differ": 4,
    "peer-copies": 1,
    "uneven-gpus": 1,
    "kernels-far-from-roofline": 1,
    "low-occupancy-kernels": 1,
    "uncoalesced-access": 1,
    "device-throttling": 1,
}
#: Each twin, and the rules that must have checked it: a rule that lacks its files is silent for no reason of its own.
LOOKED = {
    "kernels-near-their-limits": ("kernels-far-from-roofline", "low-occupancy-kernels", "uncoalesced-access"),
    "short-kernels-far-from-limits": ("kernels-far-from-roofline", "low-occupancy-kernels", "uncoalesced-access"),
    "kernels-of-another-program": ("kernels-far-from-roofline", "low-occupancy-kernels", "uncoalesced-access"),
    "passes-that-the-memory-does-not-limit": ("memory-bound-kernels",),
    "cool-gpus": ("device-throttling", "narrow-pcie-link", "shared-gpu"),
    "limits-that-cost-nothing": ("device-throttling", "narrow-pcie-link"),
    "a-boards-own-power-limit": ("device-throttling", "narrow-pcie-link"),
    "visitors": ("shared-gpu",),
    "links-and-network-in-order": ("nccl-socket-fallback", "nccl-slow-path", "distant-nic", "distant-gpus"),
    "one-machine-without-a-network": ("nccl-socket-fallback", "nccl-slow-path", "nccl-failures"),
    "settings-that-change-nothing": ("nccl-socket-fallback", "nccl-slow-path", "nccl-failures"),
    "machines-with-ethernet-alone": ("nccl-socket-fallback", "nccl-slow-path"),
    "pcie-machines": ("nccl-slow-path", "distant-gpus"),
    "a-ring-through-a-cube": ("nccl-slow-path", "distant-gpus", "distant-nic"),
    "memory-that-is-enough": ("out-of-memory", "allocator-fragmentation"),
}


def kind(rule: str, *_: object) -> str:
    """Faults of one module are planted by the same means, and show in the same place of a recording."""
    return plant.FAULTS[rule].plant.__module__


@pytest.mark.parametrize(("rule", "ranks"), one_of_each(kind, CERTAIN.items()))
def test_a_fault_of_a_tenth_of_the_step_is_found_first_and_nothing_else_is(rule, ranks):
    results = faults.judge(faults.Case({rule: 0.1}, ranks, 5))
    for result in results:
        assert rule in result.found, result.form
        assert not result.false, result.form
        assert not result.wrong_first, result.form
    assert list(faults.differences(results)) == []


#: Rules with formulas whose fault can be planted: each in a form that shows it.
DERIVED = [rule for rule in faults.known() if load_rules()[rule].derivation and not plant.FAULTS[rule].informs]


@pytest.mark.parametrize("rule", one_of_each(kind, DERIVED))
def test_the_formulas_of_a_planted_fault_give_what_its_detector_expects(rule):
    """From the inputs as they are shown."""
    fault = plant.FAULTS[rule]
    case = faults.Case({rule: 0.1}, fault.fewest_ranks, 5, fault.forms[:1])
    for result in faults.judge(case):
        assert {each.source for each in result.derived[rule].inputs} <= set(SOURCES) - {"machine"}
        assert {rule: wrong for rule, how in result.derived.items() if (wrong := missed(how))} == {}


@pytest.mark.parametrize(("ranks", "seed"), one_of_each(lambda ranks, _: ranks, [(1, 0), (1, 1), (1, 2), (4, 3)]))
def test_a_healthy_training_has_no_finding_worth_three_percent(ranks, seed):
    for result in faults.judge(faults.Case({}, ranks, seed)):
        assert not result.false
        assert "failed" not in result.unable


@pytest.mark.parametrize("twin", one_of_each(LOOKED.get, plant.TWINS))
def test_nothing_is_found_in_a_healthy_training_that_looks_faulty_though_its_rules_were_checked(twin):
    for result in faults.judge(faults.Case({}, 4, 1, twin=twin)):
        assert not result.false, result.form
        assert not {rule for rule in LOOKED[twin] if rule in result.found}, result.form
        assert not {rule: why for rule, why in result.unable.items() if rule in LOOKED[twin]}, result.form


UNPROMISED = [(rule, seed) for rule, fault in plant.FAULTS.items() if fault.unpromised for seed in range(fault.kinds)]


@pytest.mark.parametrize(("rule", "seed"), one_of_each(lambda rule, _: rule, UNPROMISED))
def test_what_costs_time_that_nobody_can_promise_is_found_at_every_level_and_in_each_of_its_kinds(rule, seed):
    for result in faults.judge(faults.Case({rule: 0.02}, plant.FAULTS[rule].fewest_ranks, seed)):
        assert result.cost[rule] == pytest.approx(0.02, abs=0.005)
        assert result.asked == {rule: 0.02}
        assert rule in result.found, result.form
        assert not result.false, result.form


def test_the_wait_for_a_rank_that_saves_is_no_transfer():
    """The collective at the window's edge, in which all others stand, is not matched."""
    for result in faults.judge(faults.Case({"blocking-checkpoint": 0.4}, 8, 4)):
        assert not result.false


@pytest.mark.parametrize("rule", one_of_each(kind, (rule for rule, fault in plant.FAULTS.items() if not fault.informs)))
def test_a_fault_costs_what_was_asked_for(rule):
    """The truth that rules are held against: planted shares are of the step as it is with the fault."""
    faulty = plant.faulty({rule: 0.1}, plant.FAULTS[rule].fewest_ranks)
    assert faulty.cost[rule] == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("rule", one_of_each(kind, (rule for rule, fault in plant.FAULTS.items() if fault.informs)))
def test_what_only_informs_costs_nothing_and_is_found_all_the_same(rule):
    results = faults.judge(faults.Case({rule: 0.01}, plant.FAULTS[rule].fewest_ranks, 3))
    for result in results:
        assert result.cost[rule] == pytest.approx(0, abs=0.001)
        assert result.asked == {rule: 0.01}
        assert result.found[rule] == 0
        assert not result.false
        assert not result.wrong_first
    assert list(faults.differences(results)) == []


def test_what_informs_of_nothing_is_a_false_finding():
    case, cost = faults.Case({"input-wait": 0.1}), {"input-wait": 0.1}
    found = {"input-wait": 0.1, "memory-growth": 0.0}
    result = faults.Result(case, "nsys", cost, found, "input-wait", {}, {}, ())
    assert result.false == {"memory-growth": 0.0}


def test_a_finding_without_a_promise_is_a_false_one_wherever_it_was_not_planted():
    case, cost = faults.Case({"input-wait": 0.1}), {"input-wait": 0.1}
    found = {"input-wait": 0.1, "nccl-slow-path": 0.0}
    result = faults.Result(case, "nsys", cost, found, "input-wait", {}, {}, ())
    assert result.false == {"nccl-slow-path": 0.0}


def test_two_faults_that_need_other_networks_are_no_pair():
    network = {rule for rule, fault in plant.FAULTS.items() if fault.carrier == "network"}
    assert len(network) > 3
    pairs = [set(case.shares) for case in faults.all_cases() if len(case.shares) == 2]
    assert not [pair for pair in pairs if pair <= network]
    assert {rule for pair in pairs for rule in pair & network} == network


def test_cases_can_be_chosen_by_what_is_planted():
    chosen = faults.all_cases(["shared-gpu"])
    assert {frozenset(case.shares) for case in chosen if len(case.shares) == 1} == {frozenset({"shared-gpu"})}
    assert all("shared-gpu" in case.shares for case in chosen)
    healthy = faults.all_cases(["healthy"])
    assert {case.twin for case in healthy} == {"", *plant.TWINS}
    assert not any(case.shares for case in healthy)


def test_a_fault_that_nobody_planted_is_an_error_that_says_what_to_write(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["accuracy.py", "--rule", "host-sync"])
    with pytest.raises(SystemExit) as stopped:
        accuracy.main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "no fault is planted for host-sync: write one of host-syncs" in said
    assert '@fault("host-sync")' in said


def test_only_a_form_that_can_tell_a_fault_is_asked_to_tell_it_first():
    case, cost = faults.Case({"managed-memory": 0.1}), {"managed-memory": 0.1}
    nsys, kineto = (faults.Result(case, form, cost, {}, "", {}, {}, ()) for form in faults.FORMS)
    assert (nsys.wrong_first, kineto.wrong_first) == ("nothing", "")


def test_what_hides_behind_a_slower_loader_costs_nothing():
    faulty = plant.faulty({"input-wait": 0.4, "exposed-copies": 0.1})
    assert faulty.cost["input-wait"] == pytest.approx(0.4, abs=0.02)
    assert faulty.cost["exposed-copies"] == pytest.approx(0.0, abs=0.01)


def test_the_ranks_of_a_job_leave_a_collective_together():
    machines = training.Training(ranks=3, seed=1).play()
    ends = [[row["end"] for row in rank.kernels if "elements" in row] for rank in machines]
    assert ends[0]
    assert ends[0] == ends[1] == ends[2]


def test_the_same_seed_plays_the_same_training():
    one, other = (plant.faulty({"host-syncs": 0.1}, 2, 3).machines for _ in range(2))
    assert [rank.kernels for rank in one] == [rank.kernels for rank in other]


def test_what_the_report_hangs_under_a_planted_fault_is_no_false_finding():
    found = {"input-wait": 0.1, "host-syncs": 0.05}
    case, cost = faults.Case({"input-wait": 0.1}), {"input-wait": 0.1}
    assert faults.Result(case, "nsys", cost, found, "input-wait", {}, {}, ()).false == {"host-syncs": 0.05}
    assert faults.Result(case, "nsys", cost, found, "input-wait", {"host-syncs": "input-wait"}, {}, ()).false == {}


def test_a_missed_and_a_false_finding_are_counted():
    case = faults.Case({"input-wait": 0.1})
    result = faults.Result(case, "nsys", {"input-wait": 0.1}, {"host-syncs": 0.05}, "host-syncs", {}, {}, ())
    scores = faults.scores([result])
    assert scores["input-wait"].recall(0.1) == 0
    assert scores["host-syncs"].precision == 0
    assert [text.split(":")[0] for text in faults.mistakes([result])] == [
        "missed input-wait",
        "false host-syncs (5.0%)",
        "first is host-syncs",
    ]


def test_the_page_says_what_was_found_and_keeps_what_was_written_by_hand(monkeypatch, tmp_path, capsys):
    page = tmp_path / "docs" / "accuracy.md"
    page.parent.mkdir()
    page.write_text(f"outdated\n{accuracy.BY_HAND}\n\n## Cross-checks\n", "utf-8")
    monkeypatch.setattr(accuracy, "PAGE", page)
    monkeypatch.setattr(accuracy, "recordings", lambda: None)
    monkeypatch.setattr(faults, "all_cases", lambda _: [faults.Case({}), faults.Case({"input-wait": 0.1})])
    monkeypatch.setattr(scene_faults, "takes", lambda _: [scene_faults.Take("first-launches", 0.1)])
    monkeypatch.setattr(
        scene_faults, "judge_all", lambda takes: [one for take in takes for one in scene_faults.judge(take)]
    )
    monkeypatch.setattr(faults, "judge_all", lambda cases: [result for case in cases for result in faults.judge(case)])
    spread = parallelism.Case("experts", "tokens", 0.1, 8), parallelism.Case("experts", "rank", 0.0, 8)
    monkeypatch.setattr(parallelism, "cases", lambda: spread)
    monkeypatch.setattr(parallelism, "judge_all", lambda cases: [parallelism.judge(case) for case in cases])
    monkeypatch.setattr(sys, "argv", ["accuracy.py"])
    assert accuracy.main() == 0
    text = page.read_text("utf-8")
    assert "outdated" not in text
    assert text.endswith(f"{accuracy.BY_HAND}\n\n## Cross-checks\n")
    assert "| `input-wait` | – | – | – | 100% | – | 100% | 100% | 0 |" in text
    assert "| healthy | 2 | – | 2 of 2 clean | – |" in text
    assert (
        "| first-launches | 1, 10, 1,000 ms in all | `one-time-costs` | – | 100% | – | – | 100% | 0 | 0 of 0 clean |"
        in text
    )
    assert "| experts | 8 | tokens | 1 of 1 | 1 of 1 | yes |" in text
    assert "8 diagnoses" in capsys.readouterr().out

"""A recording without steps that holds what comes once: named as such, with no saving, and first where it holds no more."""

from __future__ import annotations

from builders import draw, findings, only_finding, summary

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.start import what
from perfdoctor.model.timeline import Timeline
from perfdoctor.records.savings import Saving
from perfdoctor.report.words.wording import verdict
from perfdoctor.vocabulary.rulebook import load_rules

LONG = {"c": ("calls", "cudaLaunchKernel"), "p": ("ops", "aten::add")}


def start(loading: int, steady: int = 0) -> Timeline:
    """A kernel is loaded for so many units of 10 µs; then so many launches follow, 50 µs from one to the next."""
    return draw(
        kernels="e" + " " * (loading + 1) + "S" + "  + #" * (4 + steady),
        host=["l" + " " + "c" * loading + " " + "  l  " * (4 + steady), "p" * (loading + 2) + "ppppp" * steady],
        legend=LONG,
        unit_us=10,
    )


def test_a_recording_of_first_calls_says_so_first_and_promises_nothing():
    drawn = start(2_000)
    finding = only_finding("one-time-costs", drawn)
    assert finding.values["lost_ms"] == 20.03  # with the pauses before the first of two more kernels
    assert finding.values["name"] == "cudaLaunchKernel"
    assert finding.saving_ns_per_step == Saving(0, 0, 0)
    assert finding.situation == "first_calls"
    diagnosis = diagnose(drawn, list(load_rules().values()))
    assert diagnosis.findings[0].rule == "one-time-costs"
    assert verdict(diagnosis).startswith("This recording holds first calls only, and says nothing")
    assert {"launch-bound", "recompilation"}.isdisjoint(advice.rule for advice in diagnosis.findings)
    assert all(symptom.saving_ns_per_step == Saving(0, 0, 0) for symptom in diagnosis.findings[0].symptoms)


def test_a_single_step_that_loads_kernels_is_a_first_call_and_no_recompilation_of_steady_steps():
    drawn = draw(
        kernels="e" + " " * 2_001 + "S" + "  + #" * 4,
        host=["l" + " " + "c" * 2_000 + " " + "  l  " * 4, "0" * 2_025],
        legend=LONG,
        unit_us=10,
    )
    assert only_finding("one-time-costs", drawn).situation == "first_calls"
    assert findings("recompilation", drawn) == []
    assert prepare(drawn).per_step


def test_what_belongs_to_a_start_is_promised_to_nobody():
    """A third of the recording is host code before the first kernel of its name."""
    drawn = draw(
        kernels="e" + " " * 3_001 + "S",
        host=["l" + " " * 1_000 + "c" * 2_000 + " ", " f" + "f" * 998],
        legend=LONG,
        unit_us=10,
    )
    (first, *others) = diagnose(drawn, list(load_rules().values())).findings
    assert (first.rule, first.is_verdict) == ("one-time-costs", True)
    assert [each.rule for each in (*others, *first.symptoms) if each.saving_ns_per_step.high] == []
    assert "30.0 of 30.0 ms" in first.summary


def test_in_steady_work_host_code_before_the_first_kernel_of_its_name_is_found_as_ever():
    """Nothing is initialised or loaded: the recording began somewhere in the program."""
    drawn = draw(
        kernels="e" + " " * 1_001 + "S" + " e S" * 20,
        host=["l" + " " * 1_000 + "l" + " l l" * 20, " f" + "f" * 998],
        legend=LONG,
        unit_us=10,
    )
    assert len(findings("host-work", drawn)) == 1


def test_where_work_is_launched_again_and_again_it_is_a_note():
    finding = only_finding("one-time-costs", start(1_000, steady=150))
    assert finding.situation == ""
    assert "10.0 of 17.7 ms recorded (57 %) come once in a program" in summary(finding)
    found = [advice.rule for advice in diagnose(start(1_000, steady=150), list(load_rules().values())).findings]
    assert found.index("launch-bound") < found.index("one-time-costs")


def test_it_stays_silent_just_below_the_threshold():
    assert findings("one-time-costs", start(60, steady=400)) == []


def test_with_steps_the_steps_tell_whether_it_comes_again():
    host = ["l" + " " * 39, " " * 19 + "x" * 21]
    assert findings("one-time-costs", draw(kernels="#" * 20 + " " * 20, host=host, repeat=6, unit_us=1000)) == []


def started(units: int, steps: int = 8, doing: str = "x") -> Timeline:
    """A compiler (or what `doing` draws) at work for so many ms, then steps of 10 ms that leave the GPU idle for half of them."""
    marks = "".join(str(step) * 10 for step in range(steps))
    return draw(
        kernels=("#" if doing.startswith("l") else " ").ljust(units) + " #####    " * steps,
        host=[(doing * units)[:units] + "l         " * steps, " " * units + marks],
        unit_us=1000,
    )


def test_what_comes_before_the_first_step_is_a_note_behind_every_finding_about_steps():
    finding = only_finding("one-time-costs", started(200))
    assert (finding.situation, finding.saving_ns_per_step) == ("before_steps", Saving(0, 0, 0))
    assert (finding.values["lost_ms"], finding.values["most_ms"]) == (200.0, 200.0)
    assert "ms of them come once in a program, for 200.0 ms code is compiled or tuned" in summary(finding)
    diagnosis = diagnose(started(200), list(load_rules().values()))
    assert len(diagnosis.findings) > 1
    assert diagnosis.findings[-1].rule == "one-time-costs"
    assert [fix.title for fix in diagnosis.findings[-1].fixes] == ["Make the start shorter, where it matters"]
    assert "One-time" not in verdict(diagnosis)


def test_a_start_that_is_shorter_than_a_step_is_not_worth_a_line():
    assert findings("one-time-costs", started(8)) == []


def test_the_first_allocation_before_any_launch_initialises_cuda():
    finding = only_finding("one-time-costs", started(200, doing="a"))
    assert "for 200.0 ms CUDA is initialised (`cudaMalloc`)" in summary(finding)
    later = only_finding("one-time-costs", started(200, doing="l" + "a" * 199))
    assert "ms memory is allocated (`cudaMalloc`)" in summary(later)


def test_code_that_the_driver_loads_by_its_own_account_comes_once():
    loads = {"P": ("overheads", "Lazy Function Loading"), "F": ("overheads", "Command Buffer Full")}
    drawn = draw(
        kernels="#" + " " * 51 + "#" * 8,
        host=[" " + "P" * 30 + "F" * 20, "l" + " " * 50 + "l"],
        legend=loads,
        unit_us=1000,
    )
    assert only_finding("one-time-costs", drawn).values["lost_ms"] == 30.0
    assert findings("profiler-overhead", drawn) == []


def test_the_model_on_its_way_to_the_gpu_is_a_one_time_cost_and_no_fault():
    one_by_one = "H" * 9 + " "
    drawn = draw(
        kernels=" " * 62 + "#" * 40, copies=one_by_one * 6, host=one_by_one.replace("H", "C") * 6 + " l", unit_us=1000
    )
    finding = only_finding("one-time-costs", drawn)
    assert (finding.values["what"], finding.values["most_ms"]) == (what("model"), 59.0)
    assert findings("pageable-copies", drawn) == findings("exposed-copies", drawn) == []
    assert len(prepare(drawn).places) == 1


def test_copies_between_kernels_are_judged_as_before():
    drawn = draw(kernels="###" + " " * 60 + "#" * 40, copies="   " + "H" * 58, host="l" + "C" * 58 + " l", unit_us=1000)
    assert findings("one-time-costs", drawn) == []
    assert len(findings("pageable-copies", drawn)) == 1

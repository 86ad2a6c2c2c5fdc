"""Rules about one cause of idle time: each fires on its own cause, nearly does, and stays silent on the others'."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, pauses_ns, summary
from idle_cause_cases import ALLOCATES, CASES, COLLECTS_GARBAGE, COMPILES, WAITS_FOR_PEERS, WORKS, IdleCauseCase

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Timeline

MS = 1_000_000


def each(*cases: IdleCauseCase) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.rule)


@each(*CASES)
def test_it_fires_where_the_device_waits_for_it(case: IdleCauseCase) -> None:
    finding = only_finding(case.rule, case.step(10), **case.thresholds)
    assert finding.values[f"{case.number}_ms"] == 10.0
    assert finding.values["step_ms"] == 40.0
    assert finding.values[f"{case.number}_percent"] == 25.0
    low, likely = case.shares or (0.0, 0.0)
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely) == (low * 10 * MS, likely * 10 * MS)
    assert saving.high == (10 * MS if case.shares else 0), "without the profiler there is nothing to save"
    assert finding.values.get("name", case.name) == case.name
    assert "10.0 ms of a 40.0 ms step (25 %)" in summary(finding)


@each(*CASES)
def test_it_stays_silent_just_below_the_threshold(case: IdleCauseCase) -> None:
    assert findings(case.rule, case.step(1, of=40)) == []  # 2.5 %
    assert len(findings(case.rule, case.step(1, of=33))) == 1  # 3.03 %


@each(*CASES)
def test_it_stays_silent_where_the_device_is_busy_meanwhile(case: IdleCauseCase) -> None:
    """The host runs ahead: it does this for most of the step, and the device never notices."""
    host = ["l" + " " * 39, "  " + case.char * 36]
    assert findings(case.rule, draw(kernels="#" * 40, host=host, host_ahead=45, repeat=6, unit_us=1000)) == []


@each(*CASES)
def test_it_stays_silent_where_the_host_does_something_else(case: IdleCauseCase) -> None:
    assert [other for other in case.others if findings(case.rule, case.step(10, other))] == []


@each(*CASES)
def test_the_number_is_what_plain_counting_gives(case: IdleCauseCase) -> None:
    drawn = case.step(7)
    lost_ms = _plainly_counted_ns(drawn, case.name) / len(prepare(drawn).places) / 1e6
    assert only_finding(case.rule, drawn).values[f"{case.number}_ms"] == pytest.approx(lost_ms)


def _plainly_counted_ns(drawn: Timeline, name: str) -> float:
    """A step's share of: each pause of the device, as far as the host's rows of this name cover it, summed up by hand."""
    (place,) = prepare(drawn).places
    rows = [
        (int(start), int(end))
        for signal in ("calls", "ops", "ranges", "functions", "overheads")
        for start, end, of_row in zip(drawn[signal].start_ns, drawn[signal].end_ns, drawn[signal].name, strict=True)
        if of_row == name
    ]
    covered = (min(end, until) - max(start, begin) for start, end in pauses_ns(drawn) for begin, until in rows)
    return sum(max(0, ns) for ns in covered) / place.units


@each(COMPILES, WAITS_FOR_PEERS, COLLECTS_GARBAGE, WORKS)
def test_without_a_gpu_the_training_thread_plays_the_device(case: IdleCauseCase) -> None:
    assert only_finding(case.rule, case.without_gpu()).values[f"{case.number}_ms"] == pytest.approx(10.0)


@each(COMPILES, ALLOCATES)
def test_what_comes_in_one_step_only_saves_nothing(case: IdleCauseCase) -> None:
    finding = only_finding(case.rule, case.one_step_of_six())
    assert finding.situation == "once"
    assert (finding.values["steps_hit"], finding.confidence) == (1, "low")
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (0, 0)
    assert "no saving is predicted" in summary(finding)


def test_without_steps_a_compiler_is_a_one_time_cost() -> None:
    assert findings(COMPILES.rule, COMPILES.without_steps()) == []
    assert only_finding("one-time-costs", COMPILES.without_steps()).saving_ns_per_step.high == 0


@each(ALLOCATES)
def test_without_steps_what_may_come_once_saves_nothing(case: IdleCauseCase) -> None:
    assert findings(case.rule, case.without_steps()) == [], "a single call does not come again and again"
    thrice = ["l" + " " * 38 + "l", " " * 9 + f"{case.char * 9}  " * 3]
    finding = only_finding(case.rule, draw(kernels="#" * 10 + " " * 29 + "+" * 10, host=thrice, unit_us=1000))
    assert (finding.situation, finding.saving_ns_per_step.likely) == ("window", 0)
    assert "No steps were found" in summary(finding)


@each(WAITS_FOR_PEERS, COLLECTS_GARBAGE)
def test_without_steps_the_numbers_are_for_the_window(case: IdleCauseCase) -> None:
    finding = only_finding(case.rule, case.without_steps())
    assert finding.situation == "window"
    assert "ms recorded" in summary(finding)

"""busy-machine: other programs take the cores that the training waits for."""

from __future__ import annotations

import math

import pytest
from builders import draw, findings, only_finding, summary
from machine_builders import on_cores

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.host import cpu_use
from perfdoctor.model.timeline import Timeline
from perfdoctor.report.words import wording
from perfdoctor.vocabulary.rulebook import load_rules


def training(**picture: object) -> Timeline:
    return draw(
        host=["l" + "o" * 29 + " " * 10] if picture else ["o" * 30 + " " * 10], repeat=6, unit_us=1000, **picture
    )


#: Two threads on two cores, of which others have half.
CROWDED = {"program_cores": 1.0, "waiting_threads": 1.0}


def test_waiting_for_cores_that_others_use_is_said_before_all_else():
    drawn = on_cores(training(), waited=0.5, **CROWDED)
    finding = only_finding("busy-machine", drawn)
    assert (finding.situation, finding.confidence) == ("without-gpu", "high")
    assert finding.saving_ns_per_step.high == 0
    assert finding.values["waiting_ms"] == pytest.approx(20, rel=0.02)
    assert finding.values["others"] == 1.0
    diagnosis = diagnose(drawn, list(load_rules().values()))
    assert [each.rule for each in diagnosis.findings] == ["busy-machine", "host-work"]
    assert wording.verdict(diagnosis).startswith(
        "The times of this recording are doubtful: other programs used 1.0 of 2.0 cores"
    )
    assert "other programs took the processor's cores" in diagnosis.findings[1].confidence_because
    assert diagnosis.findings[1].confidence == "medium"


def test_on_a_gpu_it_is_a_note_behind_the_findings():
    drawn = on_cores(training(kernels="#" * 20 + " " * 20), waited=0.5, **CROWDED)
    diagnosis = diagnose(drawn, list(load_rules().values()))
    assert diagnosis.findings[-1].rule == "busy-machine"
    assert len(diagnosis.findings) > 1
    assert "doubtful" not in wording.verdict(diagnosis)
    assert summary(only_finding("busy-machine", drawn)).startswith("Other programs used 1.0 of 2.0 cores")


@pytest.mark.parametrize("waited", [0.0, 0.09])
def test_it_stays_silent_where_the_training_hardly_waits_however_much_others_use(waited):
    assert findings("busy-machine", on_cores(training(), waited=waited, **CROWDED)) == []


def test_it_stays_silent_where_the_training_has_more_threads_than_cores():
    drawn = on_cores(training(), waited=0.5, program_cores=1.8, waiting_threads=14)
    assert findings("busy-machine", drawn) == []


def test_it_stays_silent_where_nothing_is_known_of_others():
    assert findings("busy-machine", on_cores(training(), waited=0.5, program_cores=math.nan)) == []
    assert findings("busy-machine", training()) == []


def test_what_the_machine_below_took_counts_as_others():
    drawn = on_cores(training(), waited=0.5, program_cores=1.0, busy_cores=1.0, steal_cores=1.0, waiting_threads=0.5)
    assert only_finding("busy-machine", drawn).values["others"] == 1.0


def test_what_the_recorder_uses_is_no_other_programs():
    drawn = on_cores(training(), waited=0.5, program_cores=1.0, recorder_cores=1.0)
    assert findings("busy-machine", drawn) == []


def test_a_thread_that_waits_while_cores_are_idle_waits_for_no_other_program():
    """From being woken until an idle core has it, or behind a thread of its own on the same core."""
    slow_to_wake = {"busy_cores": 0.42, "idle_cores": 1.58, "program_cores": 0.4, "waiting_threads": 0.12}
    assert findings("busy-machine", on_cores(training(), waited=0.12, **slow_to_wake)) == []


def test_others_explain_no_more_waiting_than_they_ran():
    used = {"busy_cores": 2.0, "program_cores": 1.8, "waiting_threads": 0.6}
    drawn = on_cores(training(), waited=0.5, **used)
    lost_ms = only_finding("busy-machine", drawn).values["waiting_ms"]
    assert 0.1 * 40 <= lost_ms < 0.2 * 40  # a third of 0.5 × 40 ms is theirs by who wants cores
    assert findings("busy-machine", on_cores(training(), waited=0.5, **used, recorder_cores=0.15)) == []


def test_waiting_for_a_quota_is_waiting_for_nobody():
    drawn = on_cores(training(), waited=0.5, throttled_share=0.45, **CROWDED)
    assert findings("busy-machine", drawn) == []


def test_behind_a_larger_fault_it_is_a_note_and_the_faults_saving_reaches_down_by_what_others_explain():
    slow = draw(host=["o" * 4 + " " * 36], repeat=6, unit_us=1000)
    alone, beside = (diagnose(each, list(load_rules().values())) for each in (
        on_cores(slow), on_cores(slow, waited=0.3, busy_cores=2.0, program_cores=0.7, waiting_threads=0.3),
    ))  # fmt: skip
    assert [each.rule for each in beside.findings] == [alone.findings[0].rule, "busy-machine"]
    assert not beside.findings[1].is_verdict
    before, after = (each.findings[0].saving_ns_per_step for each in (alone, beside))
    assert (after.likely, after.high) == (before.likely, before.high)
    assert after.low == pytest.approx(0.7 * before.low, rel=0.01)


def test_other_findings_are_doubted_by_the_same_limit():
    assert load_rules()["busy-machine"].thresholds["min_lost_share"].value == cpu_use.MOST_WAITING

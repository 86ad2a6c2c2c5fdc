"""cpu-oversubscription: the training has more threads than cores."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary
from machine_builders import on_cores
from msgspec.structs import replace

from perfdoctor.model.timeline import RecordedProcess

TRAINING = draw(host=["o" * 39 + " "], repeat=6, unit_us=1000)
#: Sixteen threads on two cores.
MANY = {"program_cores": 1.9, "waiting_threads": 13.0, "torch_threads": 16}


def test_threads_of_its_own_that_wait_for_a_core_are_found_and_save_no_more_than_they_wait():
    finding = only_finding("cpu-oversubscription", on_cores(TRAINING, waited=0.6, **MANY))
    saving = finding.saving_ns_per_step
    assert saving.low == 0, "what it brings is not known before it is tried"
    assert saving.likely == pytest.approx(0.3 * 40_000_000, rel=0.02)
    assert saving.high == pytest.approx(0.6 * 40_000_000, rel=0.02)
    assert finding.values["wanted"] == pytest.approx(14.9)
    assert (finding.values["torch_threads"], finding.values["cores"]) == (16, 2)
    assert "1 × training process, with up to 16 threads for each op" in summary(finding)


def test_several_ranks_on_the_same_cores_are_found():
    drawn = on_cores(TRAINING, waited=0.5, program_cores=2.0, waiting_threads=6, processes=4)
    finding = only_finding("cpu-oversubscription", drawn)
    assert finding.values["processes"] == 4
    likely = 0.25 * 0.5 * 40_000_000
    assert finding.saving_ns_per_step.likely == pytest.approx(likely, rel=0.02), (
        "half of them wait with one thread, too"
    )


def test_trainings_of_one_command_that_run_at_the_same_time_count_together():
    begins = {1: 1_000, 2: 50_000, 3: 200_000}  # the third begins when the others have ended
    trainings = tuple(
        RecordedProcess(number, number, "", (), 1, 10, 10, 100_000, diagnosed=number == 1, start_unix_ns=begin)
        for number, begin in begins.items()
    )
    drawn = on_cores(TRAINING, waited=0.5, program_cores=2.0, waiting_threads=2, torch_threads=2)
    assert only_finding("cpu-oversubscription", replace(drawn, processes=trainings)).values["processes"] == 2


def test_a_quota_below_the_threads_holds_the_program_back():
    drawn = on_cores(
        TRAINING, waited=0.4, allowed_cores=1.5, program_cores=1.5, busy_cores=1.5, waiting_threads=0, torch_threads=8,
        throttled_share=0.5,
    )  # fmt: skip
    finding = only_finding("cpu-oversubscription", drawn)
    assert finding.situation == "quota"
    assert "A quota allows the training 1.5 cores" in summary(finding)


def test_it_stays_silent_where_the_training_hardly_waits():
    assert findings("cpu-oversubscription", on_cores(TRAINING, waited=0.09, **MANY)) == []


def test_it_stays_silent_where_others_have_the_cores():
    drawn = on_cores(TRAINING, waited=0.6, program_cores=0.5, waiting_threads=2.0)
    assert findings("cpu-oversubscription", drawn) == []


def test_it_stays_silent_where_as_many_threads_as_cores_want_to_run():
    assert (
        findings("cpu-oversubscription", on_cores(TRAINING, waited=0.2, program_cores=1.8, waiting_threads=0.2)) == []
    )


def test_it_stays_silent_where_it_was_not_recorded():
    assert findings("cpu-oversubscription", TRAINING) == []

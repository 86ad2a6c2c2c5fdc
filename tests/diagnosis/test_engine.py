"""Does a diagnosis rank what was found, say what was not checked, and predict no more than there is?"""

from __future__ import annotations

import sys

import pytest
from builders import ELEMENTWISE, SGEMM, draw, draw_steps, findings, timeline
from folders import FIXTURES
from hypothesis import given
from hypothesis import strategies as st
from measured_builders import H100, matmuls, measurement, with_rates
from msgspec.structs import replace
from recorded import of_recordings, recording
from whole_runs import EVALUATION, whole_run

import perfdoctor.detectors.copies.exposed_copies
import perfdoctor.detectors.input.input_wait
from perfdoctor.detectors import detector
from perfdoctor.diagnosis.engine import diagnose, examine, missing
from perfdoctor.diagnosis.prediction import speedup
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Device, Source, Timeline, UserValues, merge
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving
from perfdoctor.report import html, json_report
from perfdoctor.report.words import skipped_rules
from perfdoctor.report.words.wording import machines, verdict
from perfdoctor.views.build import views
from perfdoctor.vocabulary.rulebook import load_rules, with_thresholds

RULES = list(load_rules().values())
EVERYTHING = ["kernels", "copies", "collectives", "calls", "ops", "ranges", "functions", "os_calls", "overheads"]


def waiting_for_input(**more) -> Timeline:
    kernels = "#" * 30 + " " * 10
    host = ["l" + " " * 39, " " * 29 + "i" * 11, "o"]
    return draw(**{"kernels": kernels, "host": host, "repeat": 6, "unit_us": 1000, "recorded": EVERYTHING, **more})


def healthy(**more) -> Timeline:
    """99 % busy, tensor cores, communication hidden, the host far ahead."""
    return draw(
        **{
            "kernels": "G" * 99 + " ",
            "nccl": "   " + "=" * 20,
            "copies": " " * 40 + "hhh",
            "launched_us_before": 50,
            "host": ["o" * 100],
            "repeat": 8,
            "unit_us": 100,
            "recorded": EVERYTHING,
            **more,
        }
    )


def outcomes(diagnosis: Diagnosis) -> dict[str, str]:
    return {outcome.rule: outcome.status for outcome in diagnosis.outcomes}


def flat(diagnosis: Diagnosis) -> list:
    return [advice for cause in diagnosis.findings for advice in (cause, *cause.symptoms)]


# Outcomes


def test_a_healthy_run_has_nothing_to_fix():
    diagnosis = diagnose(healthy(), RULES)
    assert diagnosis.findings == ()
    assert diagnosis.prediction is None
    assert set(outcomes(diagnosis).values()) <= {"clear", "skipped"}
    assert outcomes(diagnosis)["input-wait"] == "clear"


def test_every_rule_has_an_outcome_whatever_was_recorded():
    for recorded in (timeline(), timeline(kernels=[]), healthy(), waiting_for_input()):
        assert [outcome.rule for outcome in diagnose(recorded, RULES).outcomes] == [rule.id for rule in RULES]


def test_a_rule_that_raises_has_failed_and_the_others_go_on(monkeypatch):
    def broken(run, at):
        yield next(iter(findings("exposed-copies", run)), None)
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(perfdoctor.detectors.copies.exposed_copies, "detect", broken)
    diagnosis = diagnose(waiting_for_input(), RULES)
    failed = next(outcome for outcome in diagnosis.outcomes if outcome.rule == "exposed-copies")
    assert failed.status == "failed"
    assert failed.error
    assert outcomes(diagnosis)["input-wait"] == "found"


def test_a_rule_that_raises_says_what(monkeypatch):
    def broken(run, at):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(perfdoctor.detectors.copies.exposed_copies, "detect", broken)
    failed = next(o for o in diagnose(waiting_for_input(), RULES).outcomes if o.rule == "exposed-copies")
    assert failed.error == "ZeroDivisionError: by zero"


def test_a_placeholder_that_nothing_delivers_is_a_failure_of_the_rule():
    rule = replace(load_rules()["input-wait"], summary="{nobody_knows}", summaries={})
    diagnosis = diagnose(waiting_for_input(), [rule])
    assert outcomes(diagnosis) == {"input-wait": "failed"}
    assert "nobody_knows" in diagnosis.outcomes[0].error
    assert diagnosis.findings == ()


def test_what_was_not_recorded_is_skipped_and_says_what_is_missing():
    diagnosis = diagnose(timeline(["kernels"], kernels=[{"start_ns": 0, "end_ns": 9, "name": "k"}]), RULES)
    by_rule = {outcome.rule: outcome for outcome in diagnosis.outcomes}
    assert (by_rule["exposed-copies"].status, by_rule["exposed-copies"].missing) == ("skipped", ("copies",))
    assert by_rule["rank-skew"].missing == ("collectives", "ranks")
    assert by_rule["launch-bound"].missing == ("calls",)
    assert by_rule["idle-unknown"].status == "clear"


def test_recorded_and_empty_is_clear_and_not_skipped():
    assert outcomes(diagnose(draw(kernels="##"), RULES))["exposed-copies"] == "clear"


@pytest.mark.parametrize("recorded", ["ops", "ranges", "os_calls"])
def test_a_need_with_alternatives_is_met_by_any(recorded):
    run = prepare(draw(kernels="##", recorded=["kernels", "calls", recorded]))
    assert missing(load_rules()["launch-bound"], run) == ()


def test_steps_and_ranks_count_as_found_or_not():
    rule = replace(load_rules()["input-wait"], needs=("steps", "ranks", "places"))
    assert missing(rule, prepare(draw(kernels="##"))) == ("steps", "ranks")
    assert missing(rule, prepare(timeline())) == ("steps", "ranks", "places")
    assert missing(rule, prepare(merge([waiting_for_input(rank=0), waiting_for_input(rank=1)]))) == ()


def test_on_a_run_without_a_gpu_a_rule_may_need_other_signals():
    rule = load_rules()["unfused-optimizer"]
    assert missing(rule, prepare(draw(host="oo  oo"))) == ()
    assert missing(rule, prepare(draw(host="rrrr  ", repeat=4))) == ("ops",)
    assert missing(rule, prepare(draw(kernels="##", host="o"))) == ("calls",)
    assert missing(rule, prepare(timeline())) == ("places", "kernels", "calls", "ranges|ops")


# Ranking


def several_diseases() -> Timeline:
    """Per step of 100 units: 10 of a pinned copy, 40 of fp32 matmul, 20 of waiting for a batch, the rest computes."""
    return draw(
        copies="h" * 10 + " " * 90,
        kernels=" " * 10 + "S" * 40 + "G" * 30 + " " * 20,
        host=["cll" + " " * 97, " " * 70 + "i" * 29 + " ", "o"],
        host_ahead=5,
        repeat=6,
        unit_us=1000,
        recorded=EVERYTHING,
    )


def test_findings_are_sorted_by_what_they_likely_save():
    diagnosis = diagnose(several_diseases(), RULES)
    likely = [advice.saving_ns_per_step.likely for advice in diagnosis.findings]
    assert len(likely) >= 3
    assert likely == sorted(likely, reverse=True)
    assert [advice.rank for advice in flat(diagnosis)] == list(range(1, len(flat(diagnosis)) + 1))


def launch_bound_with_small_kernels() -> Timeline:
    names = {"e": ELEMENTWISE, "f": ELEMENTWISE + "2"}
    kernels = "".join(f" {'ef'[n % 2]}  " for n in range(25))
    host = ["l   " * 25, "o" * 100]
    return draw(kernels=kernels, kernel_names=names, host=host, repeat=6, unit_us=5, recorded=EVERYTHING)


def test_a_symptom_is_listed_under_its_cause_and_numbered_after_it():
    diagnosis = diagnose(launch_bound_with_small_kernels(), RULES)
    cause = next(advice for advice in diagnosis.findings if advice.rule == "launch-bound")
    assert sorted(symptom.rule for symptom in cause.symptoms) == ["cuda-graph-opportunity", "small-kernels"]
    assert [symptom.rank for symptom in cause.symptoms] == [cause.rank + 1, cause.rank + 2]
    assert "small-kernels" not in [advice.rule for advice in diagnosis.findings]


def test_a_symptom_without_its_cause_stands_for_itself():
    chain = "".join("ef"[n % 2] for n in range(40))
    drawn = draw(
        kernels=chain + "G" * 60,
        kernel_names={"e": ELEMENTWISE, "f": ELEMENTWISE + "2"},
        launched_us_before=3,
        repeat=6,
        unit_us=5,
    )
    assert [advice.rule for advice in diagnose(drawn, RULES).findings] == ["small-kernels"]


def test_savings_are_never_more_than_the_step():
    diagnosis = diagnose(several_diseases(), RULES)
    assert sum(advice.saving_ns_per_step.likely for advice in flat(diagnosis)) <= diagnosis.base_ns
    for advice in flat(diagnosis):
        assert advice.saving_ns_per_step.high <= diagnosis.base_ns


def lane(chars: str) -> st.SearchStrategy[str]:
    """A lane of 24 units, in runs of one to eight."""
    runs = st.lists(st.tuples(st.sampled_from(chars), st.integers(1, 8)), min_size=1, max_size=12)
    return runs.map(lambda found: "".join(char * length for char, length in found)[:24].ljust(24))


#: One rank's picture: several streams of everything.
pictures = st.fixed_dictionaries(
    {
        "kernels": st.lists(lane("#SGTeDF  "), min_size=1, max_size=3),
        "nccl": st.lists(lane("=-as   "), max_size=2),
        "copies": st.lists(lane("hHdDx    "), max_size=2),
        "host": st.tuples(lane("osraguf     "), lane("iIo       ")),
        "launched_us_before": st.sampled_from([3, 10, 300]),
    }
)
jobs = st.lists(pictures, min_size=1, max_size=3)
units_us = st.sampled_from([5, 100, 1000])


def job(ranks: list[dict], unit_us: float) -> Diagnosis:
    """The diagnosis of five steps on each of these ranks."""
    drawn = [
        draw(**picture, unit_us=unit_us, rank=rank, repeat=5, recorded=EVERYTHING) for rank, picture in enumerate(ranks)
    ]
    return diagnose(merge(drawn), RULES)


@given(jobs, units_us)
def test_whatever_was_recorded_no_rule_fails_and_nothing_is_more_than_the_step(ranks, unit_us):
    """Neither a saving, nor a share, nor what findings promise together; the fix of a cause takes symptoms along."""
    diagnosis = job(ranks, unit_us)
    assert [outcome.error for outcome in diagnosis.outcomes if outcome.error] == []
    for advice in flat(diagnosis):
        assert advice.saving_ns_per_step.high <= diagnosis.base_ns, advice.rule
        shares = {name: value for name, value in advice.values.items() if name.endswith("_percent")}
        assert all(0 <= value <= 100.000001 for value in shares.values()), (advice.rule, shares)
    promised = {advice.rule: advice.saving_ns_per_step.likely for advice in diagnosis.findings}
    assert sum(promised.values()) <= diagnosis.base_ns, promised


def test_together_pinned_and_pageable_copies_promise_no_more_than_the_time_they_share():
    """Two copies at the same moment, one from pinned and one from pageable memory, and nothing else."""
    drawn = draw_steps(copies=["h" * 20, "H" * 20], recorded=EVERYTHING)
    diagnosis = diagnose(drawn, RULES)
    assert sum(advice.saving_ns_per_step.likely for advice in flat(diagnosis)) <= diagnosis.base_ns


def test_together_an_optimizer_that_multiplies_matrices_is_promised_once():
    """Muon: matrix multiplications, many, in 32 bits, launched inside the optimizer's step."""
    drawn = draw(
        kernels=" " + "ST" * 45 + "  ",
        kernel_names={"T": SGEMM},
        host=["l" * 90, "u" * 92, "o"],
        repeat=6,
        unit_us=20,
        recorded=EVERYTHING,
    )
    diagnosis = diagnose(drawn, RULES)
    assert sum(advice.saving_ns_per_step.likely for advice in diagnosis.findings) <= diagnosis.base_ns


def test_a_speedup_follows_amdahl():
    assert speedup(100, 50) == 2.0
    assert speedup(100, 0) == 1.0
    assert speedup(100, 100) == speedup(0, 0) == 1.0


def test_the_prediction_of_one_finding_is_the_step_less_its_saving():
    diagnosis = diagnose(several_diseases(), [load_rules()["input-wait"]])
    first = diagnosis.findings[0]
    saving = first.saving_ns_per_step
    assert diagnosis.prediction.fixed == (first.rule,)
    assert diagnosis.prediction.step_ns == tuple(
        diagnosis.base_ns - saved for saved in (saving.high, saving.likely, saving.low)
    )
    low, likely, high = diagnosis.prediction.speedup
    assert 1 <= low <= likely <= high


def test_a_finding_that_saves_no_time_comes_last_and_predicts_nothing():
    moments = range(10_000_000_000, 10_000_000_010)
    growing = {
        "memory": [
            {"start_ns": at, "end_ns": at, "allocated_bytes": (at - moments[0]) << 24, "name": "cuda"} for at in moments
        ]
    }
    memory = timeline(**growing)["memory"]
    both = several_diseases()
    both = replace(both, frames={**both.frames, "memory": memory}, recorded=both.recorded | {"memory"})
    found = diagnose(both, RULES).findings
    behind = found[[each.rule for each in found].index("memory-growth") :]
    assert not any(each.saving_ns_per_step.likely for each in behind)
    assert all(each.saving_ns_per_step.likely for each in found[: -len(behind)])
    alone = healthy()
    alone = replace(alone, frames={**alone.frames, "memory": memory}, recorded=alone.recorded | {"memory"})
    diagnosis = diagnose(alone, RULES)
    assert [advice.rule for advice in diagnosis.findings] == ["memory-growth"]
    assert diagnosis.prediction is None


def test_advice_has_the_rules_words_and_the_fixes_that_fit():
    first = diagnose(waiting_for_input(), RULES).findings[0]
    rule = load_rules()["input-wait"]
    assert (first.title, first.why, first.category) == (rule.title, rule.why, "input")
    assert "10.0 ms of a 40.0 ms step" in first.summary
    fitting = [fix.title for fix in rule.fixes if fix.fits("workers", frozenset({"torch", "gpu"}))]
    assert [fix.title for fix in first.fixes] == fitting
    assert 0 < len(fitting) < len(rule.fixes)


# While a loader is the limit


def limited_by_workers(char: str) -> Timeline:
    kernels = "S" * 60 + " " * 40
    host = ["l" + "s" * 59 + " " * 40, " " * 60 + char * 39 + " ", "o"]
    return draw(kernels=kernels, host=host, repeat=6, unit_us=1000, recorded=EVERYTHING)


def test_while_workers_are_the_limit_faster_kernels_are_not_promised():
    diagnosis = diagnose(limited_by_workers("i"), RULES)
    (matmuls,) = (advice for advice in diagnosis.findings if advice.rule == "fp32-matmuls")
    assert matmuls.saving_ns_per_step == Saving(0, 0, 0)
    assert diagnosis.findings[0].rule == "input-wait"
    assert any("loader is the limit" in note for note in diagnosis.notes)


def test_with_a_loader_in_the_training_process_faster_kernels_are_promised():
    diagnosis = diagnose(limited_by_workers("I"), RULES)
    (matmuls,) = (advice for advice in diagnosis.findings if advice.rule == "fp32-matmuls")
    assert matmuls.saving_ns_per_step.likely > 0
    assert not any("loader is the limit" in note for note in diagnosis.notes)


# What a report gets beside the findings


def test_notes_say_how_many_ranks_of_the_job_were_recorded():
    diagnosis = diagnose(waiting_for_input(world_size=8), RULES)
    assert "1 of 8 ranks were recorded" in " ".join(diagnosis.notes)
    assert diagnosis.world_size == 8
    assert "ranks were recorded" not in " ".join(diagnose(waiting_for_input(world_size=1), RULES).notes)


def test_the_world_is_at_least_as_large_as_the_ranks_seen():
    both = merge([waiting_for_input(rank=0), waiting_for_input(rank=1)])
    assert diagnose(both, RULES).world_size == 2


def test_notes_of_the_reader_come_first_and_stay():
    noted = waiting_for_input().with_notes("3 rows were dropped: no end.")
    assert diagnose(noted, RULES).notes[0] == "3 rows were dropped: no end."


def test_notes_say_from_where_on_steps_of_the_run_were_not_noted():
    run = whole_run(EVALUATION)
    cut = replace(run, ends_ns=run.ends_ns[:100], sites=run.sites[:100])
    whole, part = (diagnose(replace(healthy(), whole_runs=(each,)), RULES).notes for each in (run, cut))
    assert [note for note in part if note not in whole] == [
        "Steps behind step 100 of the run were not noted: what it does between its steps is known until there."
    ]


def test_notes_say_that_no_steps_were_found():
    diagnosis = diagnose(draw(kernels="## ++"), RULES)
    assert not diagnosis.per_step
    assert any("No steps were found" in note for note in diagnosis.notes)
    assert not any("repeats" in note for note in diagnosis.notes)


def test_what_repeats_in_a_small_part_of_a_recording_is_named_as_a_part():
    layer = {chr(0x4E00 + n): f"kernel_of_layer_{n}" for n in range(19)}
    *repeating, other = layer
    drawn = draw(kernels="".join(repeating) * 6 + other * 18 * 6, copies=("h" + " " * 17) * 6, kernel_names=layer)
    (note,) = (each for each in diagnose(drawn, RULES).notes if "repeats" in each)
    assert note.startswith("A part of it repeats: 5 times ")
    assert "with 42 % of the kernels' time" in note


def test_notes_say_which_steps_were_left_out():
    assert any(note.startswith("1 step at the edge") for note in diagnose(waiting_for_input(), RULES).notes)


def test_notes_say_that_the_training_thread_stands_in_for_the_device():
    diagnosis = diagnose(draw(host="oooo oo", repeat=3), RULES)
    assert any("No GPU activity" in note for note in diagnosis.notes)
    assert diagnosis.time[0].device is None


def test_notes_say_that_nothing_can_be_accounted_for():
    diagnosis = diagnose(timeline(), RULES)
    assert any("No GPU activity was recorded, and no framework ops" in note for note in diagnosis.notes)
    assert set(outcomes(diagnosis).values()) == {"skipped"}


def test_notes_say_that_graphs_were_recorded_whole():
    assert any("CUDA graphs" in note for note in diagnose(draw(kernels="@@##"), RULES).notes)


def test_what_runs_inside_graphs_is_not_called_checked_where_most_of_the_time_is_in_them():
    mostly, half = (diagnose(draw(kernels=kernels), RULES) for kernels in ("@@@#", "@@##"))
    skipped = {outcome.rule: outcome.missing for outcome in mostly.outcomes if outcome.status == "skipped"}
    assert skipped["elementwise-chains"] == skipped["fp32-matmuls"] == ("single_kernels",)
    assert not any("single_kernels" in outcome.missing for outcome in half.outcomes)
    assert verdict(mostly).startswith("What runs inside CUDA graphs was not recorded (75 % of the kernels' time): ")
    assert "record with nsys --cuda-graph-trace=node" in skipped_rules.to_record(("single_kernels",))
    assert verdict(half).startswith("Nothing worth fixing")


def test_the_kernel_table_counts_what_ran_in_the_windows_with_family_and_path():
    drawn = draw(kernels="GGGGSSe", nccl="       =", launched_us_before=50, repeat=4, unit_us=1000)
    rows = {row.family: row for row in diagnose(drawn, RULES).kernels}
    gemms = [row for row in diagnose(drawn, RULES).kernels if row.family == "gemm"]
    assert [(row.math_path, row.count, row.total_ns) for row in gemms] == [
        ("tensor_core", 3, 12_000_000),
        ("no_tensor_core", 3, 6_000_000),
    ]
    assert gemms[0].mean_ns == 4_000_000
    assert rows["communication"].math_path == ""
    assert rows["elementwise"].count == 3


def test_the_kernel_table_is_thirty_rows_at_most():
    many = timeline(kernels=[{"start_ns": n, "end_ns": n + 1, "name": f"kernel_{n}"} for n in range(50)])
    assert len(diagnose(many, RULES).kernels) == 30


def test_gpus_and_sources_are_reported():
    drawn = draw(kernels="##", gpu="NVIDIA H100 80GB HBM3")
    sourced = Timeline.build(
        drawn.frames, drawn.recorded, devices=[*drawn.devices, Device(0, 1, "unused")],
        sources=[Source("kineto", "trace.json", "2.5", (0,))],
    )  # fmt: skip
    diagnosis = diagnose(sourced, RULES)
    assert [(gpu.name, gpu.known_peaks) for gpu in diagnosis.gpus] == [("NVIDIA H100 80GB HBM3", True)]
    assert [(source.kind, source.file, source.ranks) for source in diagnosis.sources] == [
        ("kineto", "trace.json", (0,))
    ]


def test_time_and_recording_have_a_row_for_each_place():
    both = merge([waiting_for_input(rank=0), waiting_for_input(rank=1)])
    diagnosis = diagnose(both, RULES)
    assert [row.rank for row in diagnosis.time] == [row.rank for row in diagnosis.recording] == [0, 1]
    assert diagnosis.recording[0].window_ns > diagnosis.time[0].window_ns


# Thresholds of the user


def test_an_overridden_threshold_silences_a_finding(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.perfdoctor.thresholds.input-wait]\nmin_share_of_step = 0.26\n")
    changed = list(with_thresholds(load_rules(), tmp_path / "pyproject.toml").values())
    assert outcomes(diagnose(waiting_for_input(), changed))["input-wait"] == "clear"
    assert outcomes(diagnose(waiting_for_input(), RULES))["input-wait"] == "found"


def test_findings_of_one_saving_are_in_alphabetical_order(monkeypatch):
    def same(rule_id: str):
        def detect(run, at):
            yield Finding(rule_id, Saving(1, 2, 3), "low", dict.fromkeys(["x"], 1.0))

        return detect

    rules = [
        replace(load_rules()[name], summary="{x}", summaries={}, action="") for name in ("input-wait", "exposed-copies")
    ]
    monkeypatch.setattr(perfdoctor.detectors.input.input_wait, "detect", same("input-wait"))
    monkeypatch.setattr(perfdoctor.detectors.copies.exposed_copies, "detect", same("exposed-copies"))
    assert [advice.rule for advice in diagnose(waiting_for_input(), rules).findings] == ["exposed-copies", "input-wait"]


def test_a_symptom_of_a_symptom_is_listed_under_the_root(monkeypatch):
    def found(rule_id):
        def detect(run, at):
            yield Finding(rule_id, Saving(0, 1_000, 1_000), "high", {})

        return detect

    chain = ("exposed-copies", "input-wait", "host-syncs")
    rules = []
    for place, rule_id in enumerate(chain):
        module = sys.modules[detector(load_rules()[rule_id]).__module__]
        monkeypatch.setattr(module, "detect", found(rule_id))
        above = (chain[place - 1],) if place else ()
        rules.append(replace(load_rules()[rule_id], summary="", summaries={}, needs=(), symptom_of=above))
    (only,) = diagnose(waiting_for_input(), rules).findings
    assert only.rule == "exposed-copies"
    assert {symptom.rule for symptom in only.symptoms} == {"input-wait", "host-syncs"}


def test_rules_that_name_each_other_lose_no_finding(monkeypatch):
    def detect(run, at):
        yield Finding("exposed-copies", Saving(0, 1_000, 1_000), "high", {})

    monkeypatch.setattr(perfdoctor.detectors.copies.exposed_copies, "detect", detect)
    rule = load_rules()["exposed-copies"]
    pair = [
        replace(rule, summary="", summaries={}, symptom_of=("input-wait",)),
        replace(load_rules()["input-wait"], symptom_of=("exposed-copies",)),
    ]
    assert sorted(advice.rule for advice in flat(diagnose(waiting_for_input(), pair))) == [
        "exposed-copies",
        "input-wait",
    ]


# While the host is the limit


def in_fp32(waits: str) -> Timeline:
    """30 of 40 units are matrix math in fp32. Until it is done the host waits, then it does something else."""
    host = ["l" + waits.rjust(29) + " " * 10, "o" * 40]
    return draw(kernels="S" * 30 + " " * 10, host=host, repeat=8, unit_us=100, recorded=EVERYTHING)


def test_faster_kernels_gain_no_more_than_the_host_has_to_spare():
    diagnosis = diagnose(in_fp32(waits="s" * 2), RULES)
    (found,) = [each for each in flat(diagnosis) if each.rule == "fp32-matmuls"]
    # Two units a step in which it waits for the device, less two casts: each product reads fp32, as nothing else runs.
    assert found.saving_ns_per_step.likely == pytest.approx(200_000 - 2 * 32_000, rel=0.1)
    assert found.saving_ns_per_step.high <= 200_000
    assert any("nearly the limit: it could launch the same work in 5 % less time" in note for note in diagnosis.notes)


def test_a_host_with_more_to_spare_is_not_called_nearly_the_limit():
    notes = diagnose(in_fp32(waits="s" * 8), RULES).notes
    assert any(
        "The host limits what faster kernels save: it could launch the same work in 20 %" in note for note in notes
    )


def test_a_host_that_waits_for_the_device_hides_nothing():
    diagnosis = diagnose(in_fp32(waits="s" * 29), RULES)
    (found,) = [each for each in flat(diagnosis) if each.rule == "fp32-matmuls"]
    assert found.saving_ns_per_step.likely > 1_000_000
    assert not any(note.startswith("The host ") for note in diagnosis.notes)


MEASURED = (
    *matmuls(bf16={512: 30e12, 8192: 712e12}, fp32={8192: 51.2e12}),
    measurement("memory_copy", 3.1e12),
    measurement("h2d_pinned", 52e9),
)


def test_a_note_says_which_measured_rates_are_used_beside_the_data_sheets():
    drawn = with_rates(draw(kernels="##  ", launched_us_before=50, repeat=4, gpu=H100), *MEASURED)
    (note,) = [note for note in diagnose(drawn, []).notes if "measured" in note]
    assert note == (
        "Rates measured on the recorded machine on 2026-11-22 are used for predicted savings: fp32 51.2 TFLOP/s (data "
        "sheet 66.9), bf16 712 TFLOP/s (data sheet 989), memory 3100 GB/s (data sheet 3350), pinned copies 52.0 GB/s (data "
        "sheet 63.0). MFU and rooflines are shares of the data sheet's."
    )


def test_rates_that_the_user_gave_are_not_said_to_be_measured():
    drawn = with_rates(draw(kernels="##  ", launched_us_before=50, repeat=4, gpu=H100), *MEASURED)
    given = replace(drawn, user_values=UserValues(peaks={"bf16": 8e14, "memory": 3e12}))
    (note,) = [note for note in diagnose(given, []).notes if "measured" in note]
    assert "bf16" not in note
    assert "memory" not in note
    assert not [
        note
        for note in diagnose(replace(drawn, user_values=UserValues(gpu="NVIDIA L4")), []).notes
        if "measured" in note
    ]


def test_peaks_that_shares_are_of_stay_the_data_sheets():
    drawn = draw(kernels="##  ", launched_us_before=50, repeat=4, gpu=H100)
    assert diagnose(with_rates(drawn, *MEASURED), []).efficiency == diagnose(drawn, []).efficiency


def test_a_gpu_that_was_used_and_not_recorded_is_said_first():
    """The program's launches were recorded, and no kernel: a processor's run has no launches."""
    launches = {"n": ("calls", "cudaLaunchKernel")}
    drawn = draw(host=["n n n n n ", "oooooooooo"], recorded=("calls", "ops"), legend=launches)
    diagnosis = diagnose(drawn, list(load_rules().values()))
    assert diagnosis.gpu_not_recorded
    assert verdict(diagnosis).startswith("No GPU activity was recorded")
    assert machines(diagnosis)[0] == "no GPU activity recorded"
    assert not diagnose(draw(host="oooooooooo"), list(load_rules().values())).gpu_not_recorded


def test_a_file_that_ends_before_its_gpu_activity_is_not_explained_by_the_machine():
    drawn = draw(host=["n n n n n ", "oooooooooo"], legend={"n": ("calls", "cudaLaunchKernel")})
    diagnosis = diagnose(replace(drawn, sources=(Source("kineto", "a.json", "1", (0,), cut_off=True),)), [])
    assert verdict(diagnosis).startswith("The file is cut off in front of its GPU activity")
    assert not any("held CUPTI" in note for note in diagnosis.notes)


@pytest.mark.parametrize(("cut_off", "gpu"), [(True, H100), (True, ""), (False, H100)])
def test_of_a_file_that_ends_in_its_ops_and_names_a_gpu_the_host_alone_can_be_judged(cut_off, gpu):
    """Kineto writes launches and kernels behind the ops, and the GPUs in front of them."""
    source = Source("kineto", "a.json", "1", (0,), cut_off=cut_off)
    drawn = replace(draw(host="oooooooooo"), sources=(source,), devices=(Device(0, 0, gpu),))
    assert diagnose(drawn, []).gpu_not_recorded == bool(cut_off and gpu)


@pytest.mark.parametrize(
    ("op", "on_gpu"),
    [("aten::cudnn_convolution", True), ("aten::miopen_batch_norm", True), ("aten::cudnn_is_acceptable", False)],
)
def test_ops_that_only_a_gpu_has_say_that_one_was_used(op, on_gpu):
    drawn = draw(host="oooo nnn oooo", legend={"n": ("ops", op)})
    assert diagnose(drawn, []).gpu_not_recorded is on_gpu


def test_without_a_gpu_the_training_thread_runs_no_op_and_no_gpu_is_idle():
    drawn = draw(host=["o" * 30 + " " * 10, " " * 30 + "f" * 10], repeat=6, unit_us=1000)
    (advice,) = [each for each in diagnose(drawn, list(load_rules().values())).findings if each.rule == "host-work"]
    assert advice.summary.startswith("The training thread runs no op for 10.0 ms")


@of_recordings(
    [FIXTURES / "launch-bound" / "torch", FIXTURES / "fp32-matmuls" / "torch", FIXTURES / "straggler" / "torch"]
)
def test_a_recording_so_long_that_results_are_dropped_has_the_same_diagnosis_and_pages(path, monkeypatch):
    def rendered():  # not the diagnosis that other tests share: theirs may be calibrated
        run = prepare(recording(path).timeline)
        diagnosis = examine(run, RULES).diagnosis
        return json_report.render(diagnosis), html.render(diagnosis, views(run, diagnosis))

    expected = rendered()
    monkeypatch.setattr("perfdoctor.model.run._LONG_ROWS", 0)
    assert rendered() == expected

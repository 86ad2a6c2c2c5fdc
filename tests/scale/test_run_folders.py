"""What `perfdoctor run` recorded on many machines: does the job say by summaries what it says in full?"""

from __future__ import annotations

import json
import shutil

import pytest
from folders import FIXTURES, recorded_again
from planet import Job, write, write_runs

from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.machine.gpu_samples import gpus
from perfdoctor.scale.read import read_run
from perfdoctor.system.processors import JOBS
from perfdoctor.vocabulary.rulebook import load_rules

RULES = list(load_rules().values())
STRAGGLER = FIXTURES / "straggler" / "nsys" / "profile.sqlite"
TWO_RANKS = ("ddp-late-rank", "exposed-communication", "fsdp2-blocks", "one-reports", "sent-each-time", "uneven-rows")


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    """Which is faster for so few."""
    monkeypatch.setenv(JOBS, "1")


def found(paths, most_in_full):
    run = read_run(paths, lambda _: None, most_in_full=most_in_full)
    diagnosis = examine(run, RULES).diagnosis
    assert [each.rule for each in diagnosis.outcomes if each.status == "failed"] == []
    return run, diagnosis


def said(advice):
    return advice.rule, advice.summary, advice.saving_ns_per_step, [said(symptom) for symptom in advice.symptoms]


def is_the_same(in_full, reduced):
    assert [said(each) for each in reduced.findings] == [said(each) for each in in_full.findings]
    for what in ("time", "steps", "outcomes", "world_size", "real_time", "base_ns", "kind_of_work", "processes"):
        assert getattr(reduced, what) == getattr(in_full, what), what


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Four machines with four ranks each, of which one is slow."""
    return write_runs(Job.of(16, "rank"), tmp_path_factory.mktemp("runs"))


def test_machines_are_one_job_by_summaries_as_in_full(machines):
    (whole, in_full), (run, reduced) = found(machines, None), found(machines, 0)
    assert whole.summaries is None
    assert len(run.places) < len(run.job.places) == 16
    assert "rank-skew" in [each.rule for each in in_full.findings]
    is_the_same(in_full, reduced)


def test_what_was_recorded_beside_the_ranks_joins_them(machines):
    """Samples of all machines, also of those whose ranks are not read in full, on the clock of their ranks."""
    (whole, _), (run, _) = found(machines, None), found(machines, 0)
    for column in ("start_ns", "device", "is_on_clock"):
        assert run.timeline["device_samples"][column].tolist() == whole.timeline["device_samples"][column].tolist()
    assert whole.timeline["device_samples"]["is_on_clock"].all()
    assert set(run.timeline["memory"]["rank"]) == {place.rank for place in run.places}
    assert run.timeline.world_size == 16


def test_gpus_of_equal_numbers_in_several_machines_are_not_mixed(machines):
    run, _ = found(machines, 0)
    sampled = gpus(run.timeline)
    assert len(sampled) == 16
    assert {gpu.file for gpu in sampled} == {f"{folder.name}/samples.csv" for folder in machines}
    assert len({len(gpu.samples) for gpu in sampled}) == 1


@pytest.mark.parametrize("name", TWO_RANKS)
def test_recorded_runs_say_the_same_by_summaries(name):
    folder = FIXTURES / "pairs" / name
    (_, in_full), (run, reduced) = found([folder], None), found([folder], 0)
    assert run.summaries is not None
    is_the_same(in_full, reduced)


def test_each_process_counts_for_the_processor_whoever_is_read_in_full(tmp_path):
    """A rule that counts processes must not count those that are read in full alone."""
    folder = shutil.copytree(FIXTURES / "pairs" / "ddp-late-rank", tmp_path / "run")
    for rank in range(2, 5):
        recorded_again(folder / "torch" / "rank0.pt.trace.json.gz", folder / "torch" / f"rank{rank}.pt.trace.json.gz")
        reports = [json.loads(file.read_text()) for file in folder.glob("agents/*.json")]
        report = next(each for each in reports if each["rank"] == 0 and each["trace"])
        report |= {"rank": rank, "pid": 100 + rank, "trace": f"rank{rank}.pt.trace.json"}
        (folder / "agents" / f"torch-{report['pid']}.json").write_text(json.dumps(report))
    (whole, _), (run, _) = found([folder], None), found([folder], 0)
    assert len(run.places) < len(run.job.places) == 5
    used, all_used = run.job.timeline["cpu_processes"], whole.timeline["cpu_processes"]
    for column in ("rank", "process", "cpu_ns"):
        assert sorted(used[column].tolist()) == sorted(all_used[column].tolist())


def of_nsys(folder, number):
    """A machine's run folder with a report of nsys, of four ranks."""
    (folder / "nsys").mkdir(parents=True)
    recorded_again(STRAGGLER, folder / "nsys" / "profile.sqlite")
    manifest = {"format": 1, "perfdoctor": "0.1.0", "passes": [{"name": "nsys", "state": "done", "exit_code": 0}]}
    (folder / "run.json").write_text(json.dumps(manifest))
    return folder


def test_reports_of_nsys_are_summarised_by_machine(tmp_path):
    folders = [of_nsys(tmp_path / f"node{number}", number) for number in range(3)]
    (_, in_full), (run, reduced) = found(folders, None), found(folders, 0)
    assert run.ranks == tuple(range(12))
    assert 0 < len(run.places) < 12
    assert sum(run.stands_for) == 12
    assert reduced.time == in_full.time
    assert reduced.steps == in_full.steps
    skew = {each.rule: each.summary for each in in_full.findings}["rank-skew"]
    assert skew == {each.rule: each.summary for each in reduced.findings}["rank-skew"]


def test_exports_of_several_gpus_beside_each_other_are_one_job(tmp_path):
    for number in range(3):
        recorded_again(STRAGGLER, tmp_path / f"node{number}.sqlite")
    (_, in_full), (run, reduced) = found([tmp_path], None), found([tmp_path], 0)
    assert 0 < len(run.places) < len(run.job.places) == 12
    assert reduced.time == in_full.time
    skew = {each.rule: each.summary for each in in_full.findings}["rank-skew"]
    assert skew == {each.rule: each.summary for each in reduced.findings}["rank-skew"]


def test_where_a_report_of_nsys_cannot_be_read_its_machine_has_what_torch_recorded(tmp_path):
    machines = write_runs(Job.of(10, "rank"), tmp_path)
    (machines[1] / "nsys").mkdir()
    (machines[1] / "nsys" / "profile.sqlite").write_bytes(b"SQLite format 3\0 and no more")
    run, diagnosis = found(machines, 0)
    assert run.ranks == tuple(range(10))
    assert any(
        "1 of 11 files was left out: node00005: " in note and "profile.sqlite" in note for note in diagnosis.notes
    )


def test_machines_that_number_their_ranks_alike_are_told_apart(tmp_path):
    """As of a job whose ranks nobody reported: in both ways the second machine's ranks follow."""
    machines = write_runs(Job.of(10, "none"), tmp_path)
    for file in machines[1].glob("agents/*.json"):
        report = json.loads(file.read_text())
        file.write_text(json.dumps(report | {"rank": report["rank"] - 5, "trace": report["trace"]}))
    (whole, in_full), (run, reduced) = found(machines, None), found(machines, 0)
    assert whole.ranks == run.ranks == tuple(range(10))
    assert reduced.time == in_full.time


def test_run_folders_say_what_their_traces_alone_say(machines, tmp_path):
    write(Job.of(16, "rank"), tmp_path)
    (_, traces), (_, runs) = found([tmp_path], 0), found(machines, 0)
    assert [each.rule for each in runs.findings] == [each.rule for each in traces.findings]
    assert runs.time == traces.time

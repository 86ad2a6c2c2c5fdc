"""A hundred ranks, some of whose files cannot be read: those are named and left out, and the others diagnosed."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest
from folders import recorded_again
from planet import Job, write
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.diagnosis.engine import examine
from perfdoctor.report import json_report
from perfdoctor.scale.read import read_run
from perfdoctor.system import pool
from perfdoctor.system.pool import ItemOutcome, WorkerDiedError
from perfdoctor.system.processors import JOBS
from perfdoctor.system.progress import silent
from perfdoctor.vocabulary.rulebook import load_rules

RANKS = 100
JOB = Job.of(RANKS, "rank")
RULES = list(load_rules().values())


def file(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank:05}.json.gz"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    write(JOB, folder)
    return folder


@pytest.fixture
def job(whole, tmp_path, monkeypatch):
    """A job of its own to damage, read by one process if nothing else is said: that is faster here."""
    monkeypatch.setenv(JOBS, "1")
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(whole, tmp_path / "job"))


def diagnosed(paths, progress=silent):
    run = read_run(paths, progress)
    diagnosis = examine(run, RULES).diagnosis
    assert [each.rule for each in diagnosis.outcomes if each.status == "failed"] == []
    return run, diagnosis


def names_the_slow_rank(diagnosis):
    return any(f"Rank {JOB.slow_rank} is the straggler" in each.summary for each in diagnosis.findings)


def test_damaged_files_are_named_and_left_out(job):
    packed = file(job, 3).read_bytes()
    file(job, 3).write_bytes(packed[:12])
    file(job, 5).write_bytes(b"")
    file(job, 7).write_bytes(random.Random(7).randbytes(5_000))
    file(job, 9).write_text("no JSON at all")
    file(job, 11).unlink()
    file(job, 11).symlink_to(job / "gone")
    run, diagnosis = diagnosed([job])
    assert set(range(RANKS)) - set(run.ranks) == {3, 5, 7, 9, 11}
    (note,) = [note for note in diagnosis.notes if "files were left out" in note]
    assert note.startswith("5 of 100 files were left out: ")
    for rank in (3, 5, 7, 9):  # four are named, and of the others their number
        assert file(job, rank).name in note
    assert names_the_slow_rank(diagnosis)


def test_a_trace_cut_in_the_middle_is_read_as_far_as_it_goes_and_named(job):
    packed = file(job, 3).read_bytes()
    file(job, 3).write_bytes(packed[: len(packed) * 3 // 4])
    run, diagnosis = diagnosed([job])
    assert 3 in run.ranks
    assert any("1 file was read with remarks (rank00003.json.gz)" in note for note in diagnosis.notes)
    assert names_the_slow_rank(diagnosis)


def test_a_copy_of_a_rank_is_left_out(job):
    shutil.copy(file(job, 8), job / "rank00008-again.json.gz")
    run, _ = diagnosed([job])
    assert run.ranks == tuple(range(RANKS))


def test_a_rank_that_is_there_twice_gets_a_number_of_its_own(job):
    recorded_again(file(job, 8), job / "rank00008-again.json.gz")
    run, diagnosis = diagnosed([job])
    assert run.ranks == tuple(range(RANKS + 1))
    assert Counter(place.rank for place in run.job.places).most_common(1)[0][1] == 1
    assert names_the_slow_rank(diagnosis)


def test_a_file_that_may_not_be_read_is_left_out(job, monkeypatch):
    opened = Path.open

    def refusing(path, *how, **more):
        if path.name == file(job, 13).name:
            raise PermissionError(13, "Permission denied")
        return opened(path, *how, **more)

    monkeypatch.setattr(Path, "open", refusing)
    run, diagnosis = diagnosed([job])
    assert 13 not in run.ranks
    assert any("rank00013.json.gz cannot be opened: Permission denied" in note for note in diagnosis.notes)


@pytest.mark.parametrize("when", ["Summarising the ranks", "Comparing the ranks"])
def test_files_that_disappear_meanwhile_are_left_out(job, when):
    """Before they are summarised; and of those to be read in full, afterwards."""

    def removing(said):
        if said == when:
            file(job, JOB.slow_rank).unlink()

    run, diagnosis = diagnosed([job], removing)
    assert (JOB.slow_rank in run.ranks) == (when == "Comparing the ranks") == names_the_slow_rank(diagnosis)
    assert any(f"{file(job, JOB.slow_rank).name} cannot be opened" in note for note in diagnosis.notes)
    assert any("left out" in note for note in diagnosis.notes)


def _children() -> list[int]:
    return [int(pid) for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()]


def test_a_killed_worker_changes_no_byte(job, monkeypatch):
    _, expected = diagnosed([job])
    killed = []

    def killing(said):
        if "(20 of 100)" in said:
            killed.append(_children()[0])
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setenv(JOBS, "3")
    _, diagnosis = diagnosed([job], killing)
    assert len(killed) == 1
    assert json_report.render(diagnosis) == json_report.render(expected)


def test_a_file_that_ends_every_worker_is_named(job, monkeypatch):
    each = pool.each

    def deadly(*how, **more):
        for outcome in each(*how, **more):
            yield ItemOutcome(4, error=WorkerDiedError("by SIGKILL")) if outcome.index == 4 else outcome

    monkeypatch.setattr(pool, "each", deadly)
    run, diagnosis = diagnosed([job])
    assert 4 not in run.ranks
    assert any("rank00004.json.gz could not be read: by SIGKILL" in note for note in diagnosis.notes)


def test_the_order_in_which_files_are_given_changes_no_finding(job):
    def said(diagnosis):
        return [(each.rule, each.summary, each.saving_ns_per_step) for each in diagnosis.findings], diagnosis.time

    files = sorted(job.iterdir())
    _, expected = diagnosed(files)
    random.Random(1).shuffle(files)
    _, diagnosis = diagnosed(files)
    assert said(diagnosis) == said(expected)


def test_the_exit_code_is_0_where_some_ranks_are_left_out_and_1_where_all_are(job):
    file(job, 5).write_bytes(b"")
    result = CliRunner().invoke(app, ["analyze", str(job), "--no-html", "--quiet"])
    assert result.exit_code == 0, result.output
    for rank in range(RANKS):
        file(job, rank).write_text('{"traceEvents": []}')
    result = CliRunner().invoke(app, ["analyze", str(job), "--no-html", "--quiet"])
    assert result.exit_code == 1
    assert result.output.splitlines()[0] == "perfdoctor: `rank00000.json.gz` holds no events"


def test_of_few_ranks_damaged_ones_are_left_out_as_well(whole, tmp_path):
    for rank in range(4):
        shutil.copy(file(whole, rank), file(tmp_path, rank))
    file(tmp_path, 2).write_bytes(b"")
    run, diagnosis = diagnosed([tmp_path])
    assert run.summaries is None
    assert run.ranks == (0, 1, 3)
    assert "1 of 4 files was left out: rank00002.json.gz is empty." in diagnosis.notes

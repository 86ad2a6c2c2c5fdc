"""A folder of several runs is no job, and the folders of a job's machines are one."""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw
from folders import FIXTURES, recorded_again
from msgspec.structs import replace
from whole_runs import whole_run

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Source
from perfdoctor.model.whole_run import WatchedRun
from perfdoctor.readers import recorded_run
from perfdoctor.readers.open import read
from perfdoctor.system.run_folder import Manifest, PassRecord, RunFolder, TimedSteps

TORCH = FIXTURES / "cpu-slow-input" / "torch" / "rank0.pt.trace.json.gz"
SECOND = 1_000_000_000
NOON = 1_767_268_800 * SECOND


def run_folder(path, begins_s, rank=0, seconds=10.0):
    at = NOON + begins_s * SECOND
    passes = [PassRecord("torch", state="done", started_unix_ns=at, seconds=seconds)]
    made = RunFolder.create(
        path, Manifest(perfdoctor="1", started_unix_ns=at, passes=passes, ranks=[{"pass": "torch", "rank": rank}])
    )
    recorded_again(TORCH, made.make("torch") / f"rank{rank}.pt.trace.json.gz")
    return path


def test_runs_recorded_one_after_the_other_are_refused_and_the_newest_is_named(tmp_path):
    runs = [run_folder(tmp_path / "runs" / name, at) for name, at in (("a", 0), ("b", 60), ("c", 30))]
    for given, said in (([tmp_path / "runs"], "runs holds 3 runs, recorded"), (runs, "3 runs were given, recorded")):
        with pytest.raises(PerfdoctorError, match=said) as error:
            read(given)
        assert str(tmp_path / "runs" / "b") in error.value.do
    assert read(runs[:1]).ranks == (0,)


@pytest.mark.parametrize(
    "other", [{"begins_s": 5}, {"begins_s": 60, "rank": 1}, {"begins_s": 60, "seconds": None}], ids=str
)
def test_folders_that_may_be_of_one_job_are_read_together(tmp_path, other):
    folders = [run_folder(tmp_path / "job" / "node0", 0), run_folder(tmp_path / "job" / "node1", **other)]
    assert len(read(folders).ranks) == 2
    assert len(read([tmp_path / "job"]).ranks) == 2


def test_what_is_known_of_whole_runs_is_kept_of_all_machines_under_the_numbers_of_their_ranks(tmp_path, monkeypatch):
    known = replace(
        draw(kernels="##"), sources=(Source("kineto", "a", ""),), whole_runs=(whole_run(),), timed_steps={0: TimedSteps(NOON, (5, 6))},
        unrecorded_step_ns={0: 7}, unrecorded_steps={0: 3}, watched_run=WatchedRun(0, *[np.arange(2)] * 4, np.zeros(2, dtype=bool)),
    )  # fmt: skip
    monkeypatch.setattr(recorded_run, "read", lambda *_: known)
    found = read([run_folder(tmp_path / name, 0) for name in ("node0", "node1")])
    assert [each.rank for each in found.whole_runs] == [0, 1]
    assert (list(found.timed_steps), found.unrecorded_step_ns) == ([0, 1], {0: 7, 1: 7})
    assert found.unrecorded_steps == {0: 3, 1: 3}
    assert found.watched_run == known.watched_run

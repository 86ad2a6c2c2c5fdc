"""A folder of several runs is no job, and the folders of a job's machines are one."""

from __future__ import annotations

import pytest
from folders import FIXTURES, recorded_again

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.open import read
from perfdoctor.system.run_folder import Manifest, PassRecord, RunFolder

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

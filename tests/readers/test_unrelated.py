"""Are recordings of several programs called so, and those of one job never?"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from folders import FIXTURES, public

import perfdoctor
from perfdoctor.model.timeline import Source
from perfdoctor.readers.open import read
from perfdoctor.readers.unrelated import RecordingFacts, earlier, notes
from perfdoctor.scale.read import read_run
from perfdoctor.system.progress import silent

HOUR = 3_600_000_000_000
NOON = 1_767_268_800_000_000_000
ONE_JOB = "do not belong together"
STRAGGLER = FIXTURES / "straggler" / "torch"


def known(name, *, size=0, version="schemaVersion 1", at=None, epoch=None):
    return RecordingFacts([Source("kineto", name, version)], size, None if at is None else (at, at + 1_000_000), epoch)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({"size": 2}, {"size": 8}, "a.json is of a job of 2 ranks, b.json of a job of 8 ranks"),
        (
            {"version": "schemaVersion 1, CUDA 12.4"},
            {"version": "CUDA 11.8"},
            "a.json is of CUDA 12.4, b.json of CUDA 11.8",
        ),
        ({"version": "CUDA 12.4"}, {"version": "HIP 6.2"}, "a.json is of CUDA 12.4, b.json of HIP 6.2"),
        ({"at": NOON + 3 * HOUR}, {"at": NOON}, "b.json ends 3.0 hours before a.json begins"),
        ({"at": NOON}, {"at": 5, "epoch": NOON + 72 * HOUR}, "a.json ends 3 days before b.json begins"),
    ],
)
def test_what_proves_it_is_said_with_the_names_of_the_files(one, other, said):
    (note,) = notes([known("a.json", **one), known("b.json", **other)])
    assert said in note
    assert "perfdoctor compare" in note


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"size": 2}, {"size": 0}),
        ({"version": "schemaVersion 1, CUDA 12.4"}, {"version": "schemaVersion 1"}),
        ({"at": NOON}, {"at": NOON + HOUR // 3}),  # clocks may be off, and windows one behind the other
        ({"at": 5}, {"at": NOON}),  # since when the first machine was started, or any other instant
        ({"at": 5}, {"at": 9 * HOUR}),
        ({"at": NOON}, {}),
    ],
)
def test_what_is_not_known_proves_nothing(one, other):
    assert notes([known("a.json", **one), known("b.json", **other)]) == []


def test_a_gap_is_one_in_which_none_is_recorded():
    """One that lasts all day lies beside both."""
    whole = RecordingFacts([Source("nsys", "whole", "")], 0, (NOON, NOON + 24 * HOUR), None)
    assert notes([known("a", at=NOON + HOUR), whole, known("b", at=NOON + 20 * HOUR)]) == []


def test_it_is_the_first_note_of_a_diagnosis_and_one_however_they_are_read(tmp_path):
    shutil.copytree(STRAGGLER, tmp_path / "job")
    (odd,) = (tmp_path / "job").glob("rank3*")
    document = json.loads(gzip.decompress(odd.read_bytes()))
    document["distributedInfo"]["world_size"] = 16
    odd.write_bytes(gzip.compress(json.dumps(document).encode()))
    found = perfdoctor.analyze(tmp_path / "job").notes
    assert ONE_JOB in found[0]
    assert "a job of 4 ranks" in found[0]
    assert "a job of 16 ranks" in found[0]
    by_summaries = read_run([tmp_path / "job"], silent, most_in_full=2).timeline.notes
    assert sum(ONE_JOB in note for note in by_summaries) == 1


# --- one after the other ---


def of_rank(rank, begin_s, end_s, epoch=NOON):
    source = Source("kineto", "a.json", "", (rank,))
    return RecordingFacts([source], 0, (begin_s * 1_000_000_000, end_s * 1_000_000_000), epoch)


@pytest.mark.parametrize(
    ("recordings", "left_out"),
    [
        ([of_rank(0, 0, 9), of_rank(1, 8, 17)], []),
        ([of_rank(0, 0, 9), of_rank(1, 20, 29)], []),
        ([of_rank(0, 0, 9), of_rank(0, 8, 17)], []),  # no rank records twice at one time: these are of two
        ([of_rank(0, 0, 9), of_rank(0, 20, 29, epoch=None)], []),  # of no known time
        ([of_rank(0, 0, 0), of_rank(0, 0, 0)], []),
        ([of_rank(0, 0, 20), of_rank(0, 19, 40)], [0]),  # a range of the first ends in the second
        ([of_rank(0, 20, 29), of_rank(0, 9, 18), of_rank(0, 0, 9)], [1, 2]),
        ([of_rank(0, 0, 9), of_rank(1, 0, 9), of_rank(0, 20, 29), of_rank(1, 21, 28)], [0, 1]),
        ([of_rank(0, 0, 9), of_rank(1, 0, 9), of_rank(0, 20, 29)], [0, 1]),  # rank 1 did not record again
    ],
)
def test_of_recordings_of_the_same_ranks_one_after_the_other_those_before_the_newest_are_left_out(recordings, left_out):
    found, notes = earlier([Path(f"{number}.json") for number in range(len(recordings))], recordings)
    assert sorted(found) == left_out
    assert len(notes) == bool(left_out)


def test_a_schedule_that_repeats_leaves_no_further_ranks_however_they_are_read(tmp_path):
    for number, trace in enumerate(sorted(STRAGGLER.glob("*.gz"))):
        document = json.loads(gzip.decompress(trace.read_bytes()))
        for window in range(2):
            document["baseTimeNanoseconds"] += HOUR // 60 * window
            (tmp_path / f"host_{number}.{window}.pt.trace.json").write_text(json.dumps(document))
    whole, by_summaries = read([tmp_path]), read_run([tmp_path], silent, most_in_full=1)
    assert whole.ranks == by_summaries.job.timeline.ranks == (0, 1, 2, 3)
    assert [source.file for source in whole.sources] == [f"host_{number}.1.pt.trace.json" for number in range(4)]
    for timeline in (whole, by_summaries.timeline):
        (note,) = [each for each in timeline.notes if "one after the other" in each]
        assert (
            "analysed. Give the others by themselves: host_0.0.pt.trace.json, host_1.0.pt.trace.json and 2 more; "
        ) in note


@pytest.mark.parametrize(
    "folder", [STRAGGLER, FIXTURES / "straggler" / "nsys", FIXTURES / "communication-exposed" / "torch"]
)
def test_ranks_of_one_job_belong_together(folder):
    assert not any(ONE_JOB in note for note in read([folder]).notes)


@pytest.mark.recordings
@pytest.mark.parametrize("folder", ["kineto/dlrm-8rank", "kineto/sampled-2-of-128", "wild/speedrun-8rank"])
def test_ranks_of_real_jobs_belong_together(folder):
    assert not any(ONE_JOB in note for note in read([public(folder)]).notes)


@pytest.mark.recordings
def test_real_recordings_of_two_jobs_do_not():
    files = [public(f"kineto/{name}") for name in ("ddp-a100-rank3-of-8.json.gz", "ddp-v100-rank1-of-2.json.gz")]
    assert "is of a job of 8 ranks, ddp-v100-rank1-of-2.json.gz of a job of 2 ranks" in read(files).notes[0]

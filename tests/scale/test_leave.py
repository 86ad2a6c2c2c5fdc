"""Is a job diagnosed from what its nodes left of their ranks as it is from their recordings?"""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from folders import FIXTURES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfdoctor.diagnosis.engine import examine
from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Text
from perfdoctor.readers import packed
from perfdoctor.readers.open import read, read_file
from perfdoctor.scale.leave import left_of, written
from perfdoctor.scale.read import read_run
from perfdoctor.system import remote
from perfdoctor.system.progress import silent
from perfdoctor.vocabulary.rulebook import load_rules

STRAGGLER = FIXTURES / "straggler" / "torch"
NSYS = FIXTURES / "healthy" / "nsys" / "profile.sqlite"
TRACES = sorted(STRAGGLER.glob("*.json.gz"))
RULES = list(load_rules().values())
LOG = "host:1:2 [0] NCCL INFO Using network IB\n"


def diagnosed(paths, **how):
    run = read_run(paths, silent, **how)
    diagnosis = examine(run, RULES).diagnosis
    assert [each.rule for each in diagnosis.outcomes if each.status == "failed"] == []
    return run, diagnosis


def said(advice):
    return advice.rule, advice.summary, advice.saving_ns_per_step, [said(symptom) for symptom in advice.symptoms]


def left(folder, *nodes):
    return [file for node in nodes for file in written(left_of(node, silent), str(folder))]


@pytest.mark.parametrize("nodes", [[[STRAGGLER]], [TRACES[:2], TRACES[2:]]], ids=["one node", "two nodes"])
def test_the_job_is_diagnosed_as_from_its_recordings(tmp_path, nodes):
    files = left(tmp_path, *nodes)
    assert len(files) == len(TRACES)
    _, in_full = diagnosed([STRAGGLER])
    run, from_left = diagnosed([tmp_path])
    assert run.ranks == (0, 1, 2, 3)
    assert [said(each) for each in from_left.findings] == [said(each) for each in in_full.findings]
    assert from_left.time == in_full.time
    assert from_left.steps == in_full.steps


def test_a_rank_that_stands_out_nowhere_is_left_as_a_few_kb(tmp_path):
    alone = [file for file in left(tmp_path, [STRAGGLER]) if not file.is_whole]
    assert alone
    assert all(len(file.content) < 10_000 for file in alone)
    assert sum(len(file.content) for file in alone) < 0.2 * sum(path.stat().st_size for path in TRACES)
    with pytest.raises(PerfdoctorError, match="is the summary of a rank"):
        read_file(tmp_path / alone[0].name, silent)
    for file in tmp_path.iterdir():
        if file.name not in [each.name for each in alone]:
            file.unlink()
    with pytest.raises(PerfdoctorError, match="more than a summary"):
        read_run([tmp_path], silent)


@pytest.mark.parametrize("path", [TRACES[0], NSYS], ids=["torch", "nsys"])
def test_a_whole_rank_is_what_it_was(tmp_path, path):
    timeline = read_file(path, silent)
    (tmp_path / "x.rank").write_bytes(packed.of_rank(b"", timeline))
    found = read_file(tmp_path / "x.rank", silent)
    for signal, frame in timeline.frames.items():
        for name, column in frame.columns.items():
            again = found[signal].columns[name]
            if isinstance(column, Text):
                assert list(again) == list(column)
            else:
                np.testing.assert_array_equal(again, column)
    others = [name for name in timeline.__struct_fields__ if name != "frames"]
    assert {name: getattr(found, name) for name in others} == {name: getattr(timeline, name) for name in others}


def test_what_lies_beside_the_ranks_comes_along(tmp_path):
    shutil.copytree(STRAGGLER, tmp_path / "node")
    (tmp_path / "node" / "nccl.log").write_text(LOG)
    left(tmp_path / "left", [tmp_path / "node"])
    assert "IB" in read_run([tmp_path / "left"], silent).timeline["nccl_facts"].text("value")


def test_nodes_write_to_an_address_that_is_read_from_anywhere(tmp_path):
    pytest.importorskip("fsspec")
    files = left("memory://bucket/job-17", TRACES[:2], TRACES[2:])
    with remote.at_hand(["memory://bucket/job-17"]) as paths:
        assert len([path for path in paths[0].iterdir() if path.suffix == ".rank"]) == len(files)
        assert read_run(paths, silent).ranks == (0, 1, 2, 3)


@pytest.mark.parametrize(("content", "said"), [
    (b"perfdoctor rank 99\nabc", "another version"), (b"perfdoctor rank 1\nabc", "is damaged"),
])  # fmt: skip
def test_a_file_that_cannot_be_used_says_why(tmp_path, content, said):
    (tmp_path / "x.rank").write_bytes(content)
    with pytest.raises(PerfdoctorError, match=said):
        read([tmp_path / "x.rank"])
    with pytest.raises(PerfdoctorError, match=said):
        read_run([tmp_path / "x.rank"], silent)


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_read_or_refused(tmp_path, data):
    timeline = read_file(TRACES[0], silent)
    for content, reads in (
        (packed.of_rank(b"", timeline), packed.read_rank),
        (packed.of_machine(timeline), packed.read_machine),
    ):
        damaged = bytearray(content[: data.draw(st.integers(len(content) // 2, len(content)))])
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
        (tmp_path / "x").write_bytes(damaged)
        try:
            reads(tmp_path / "x")
        except PerfdoctorError as error:
            assert "x" in error.what

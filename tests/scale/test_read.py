"""Do rules about several ranks find by summaries what they find in full, and who is read in full?"""

from __future__ import annotations

import gzip
import json
import shutil

import pytest
from folders import FIXTURES

from perfdoctor.diagnosis.engine import examine
from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.longest import analysed_span
from perfdoctor.records.findings import Span
from perfdoctor.scale.read import read_run
from perfdoctor.vocabulary.rulebook import load_rules

STRAGGLER = FIXTURES / "straggler" / "torch"
RULES = list(load_rules().values())
#: A rank that is no outlier, and not kept in full.
EARLY = 2


def silent(_: str) -> None:
    """Where progress goes."""


def found(paths, most_in_full):
    run = read_run(paths, silent, most_in_full=most_in_full)
    diagnosis = examine(run, RULES).diagnosis
    assert [each.rule for each in diagnosis.outcomes if each.status == "failed"] == []
    return run, diagnosis


def said(advice):
    return advice.rule, advice.summary, advice.saving_ns_per_step, [said(symptom) for symptom in advice.symptoms]


def test_the_straggler_is_found_by_summaries_as_in_full():
    _, in_full = found([STRAGGLER], None)
    run, reduced = found([STRAGGLER], 0)
    assert run.summaries is not None
    assert run.ranks == (0, 1, 2, 3)
    assert "rank-skew" in [each.rule for each in in_full.findings]
    assert [said(each) for each in reduced.findings] == [said(each) for each in in_full.findings]
    assert in_full.time == reduced.time
    assert in_full.steps == reduced.steps
    assert sum(run.stands_for) == len(run.job.places)
    assert any("kept in full: rank" in note for note in reduced.notes)


def test_moments_count_from_the_earliest_rank_also_of_those_that_are_not_kept(tmp_path):
    for file in STRAGGLER.iterdir():
        trace = json.loads(gzip.decompress(file.read_bytes()))
        if trace["distributedInfo"]["rank"] == EARLY:
            for event in trace["traceEvents"]:
                event["ts"] -= 200
        (tmp_path / file.name.removesuffix(".gz")).write_text(json.dumps(trace), "utf-8")
    _, in_full = found([tmp_path], None)
    run, reduced = found([tmp_path], 0)
    assert EARLY not in {place.rank for place in run.places}
    zero, _ = analysed_span(run)
    assert zero == min(split.window_start_ns for split in reduced.time)
    assert moments(reduced) == moments(in_full) != []


def moments(diagnosis):
    """The moments of findings about the late rank, which both keep."""
    advice = next(each for each in diagnosis.findings if each.rule == "rank-skew")
    return [each for each in advice.evidence if isinstance(each, Span)]


def test_a_file_that_cannot_be_read_is_named_and_left_out(tmp_path):
    shutil.copytree(STRAGGLER, tmp_path / "job")
    (tmp_path / "job" / "rank9.json").write_text('{"traceEvents": [], "distributedInfo": {"rank": 9}}')
    run, diagnosis = found([tmp_path / "job"], 0)
    assert 9 not in run.ranks
    assert any("1 of 5 files was left out: `rank9.json` holds no events" in note for note in diagnosis.notes)


def test_where_no_file_can_be_read_the_reason_is_said(tmp_path):
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text('{"traceEvents": []}')
    with pytest.raises(PerfdoctorError, match="holds no events"):
        read_run([tmp_path], silent, most_in_full=0)

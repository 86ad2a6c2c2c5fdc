"""What can be asked of a job that is known by summaries: the same as of all its ranks, or a line that says why not."""

from __future__ import annotations

import pytest
from folders import FIXTURES
from planet import Job, write

from perfdoctor.diagnosis.engine import examine
from perfdoctor.diagnosis.questions import questions
from perfdoctor.errors import UsageError
from perfdoctor.scale.read import read_run
from perfdoctor.vocabulary.rulebook import load_rules

STRAGGLER = FIXTURES / "straggler" / "torch"
KNOWN = load_rules()


def run_of(path, most_in_full):
    run = read_run([path], lambda _: None, most_in_full=most_in_full)
    assert (run.summaries is None) == (most_in_full is None)
    return run


def predicted(run, asked: str):
    return examine(run, list(KNOWN.values()), questions(asked, KNOWN)).diagnosis.prediction


@pytest.fixture(scope="module")
def straggler():
    """In full, and by summaries with three of four ranks in full."""
    return run_of(STRAGGLER, None), run_of(STRAGGLER, 0)


@pytest.mark.parametrize(
    "asked", ["ranks=1", "ranks=2", "ranks=3", "ranks=16@50GB/s", "batch=2x", "synthetic-data", "rank-skew"]
)
def test_another_size_takes_as_long_by_summaries_as_by_all_ranks(straggler, asked):
    """Links and the spread of steps are those of all ranks, the typical one counts for those that are not in full."""
    whole, reduced = (predicted(run, asked) for run in straggler)
    assert reduced.step_ns[1] == pytest.approx(whole.step_ns[1], rel=1e-3)
    assert reduced.recorded_ns == whole.recorded_ns
    if whole.scaling:
        assert reduced.scaling.recorded == whole.scaling.recorded == 4
        assert reduced.scaling.efficiency == pytest.approx(whole.scaling.efficiency, rel=1e-3)


def test_a_fix_of_what_all_ranks_wait_for_is_its_findings_saving_or_refused_in_one_line(straggler):
    """Replays of some ranks know nothing of what the others would do."""
    alone = [predicted(run, "exposed-communication") for run in straggler]
    assert alone[0].step_ns == alone[1].step_ns
    for asked in ("exposed-communication=50%", "exposed-communication,rank-skew"):
        assert predicted(straggler[0], asked).asked
        with pytest.raises(UsageError) as caught:
            predicted(straggler[1], asked)
        assert "collectives wait for all 4 ranks, and only 3 of them can be replayed" in caught.value.what
        assert "ranks=1 to ranks=4" in caught.value.do
        assert "\n" not in caught.value.what + caught.value.do


def test_a_rank_by_itself_is_the_usual_one_where_slow_ones_are_read_in_full(tmp_path):
    write(Job.of(40, "rank"), tmp_path)
    whole, reduced = (predicted(run_of(tmp_path, most), "ranks=1") for most in (None, 0))
    assert reduced.step_ns[1] == pytest.approx(whole.step_ns[1], rel=0.01)

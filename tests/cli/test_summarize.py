"""Does the command leave what `analyze` diagnoses the job from?"""

from __future__ import annotations

from folders import FIXTURES
from typer.testing import CliRunner

from perfdoctor.cli.main import app

STRAGGLER = FIXTURES / "straggler" / "torch"


def invoke(*arguments: object):
    return CliRunner().invoke(app, [*map(str, arguments)], prog_name="perfdoctor")


def test_a_job_is_diagnosed_from_what_was_left_of_its_ranks(tmp_path):
    done = invoke("summarize", STRAGGLER, "-o", tmp_path / "left")
    assert done.exit_code == 0
    assert done.stdout.startswith("Of 4 ranks 1 are left as summaries, ")
    found = [invoke("analyze", path, "--no-html", "--format", "brief") for path in (tmp_path / "left", STRAGGLER)]
    assert [each.exit_code for each in found] == [0, 0]
    verdicts = [each.stdout.splitlines()[0] for each in found]
    assert verdicts[0] == verdicts[1]


def test_where_no_rank_is_nothing_is_written(tmp_path):
    (tmp_path / "nccl.log").write_text("host:1:2 [0] NCCL INFO Using network IB\n")
    done = invoke("summarize", tmp_path, "-o", tmp_path / "left")
    assert done.exit_code == 1
    assert "there is no rank in these files" in done.output
    assert not (tmp_path / "left").exists()

"""Is `--what-if` read as it is meant, and refused in two lines where it means nothing?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perfdoctor.cli import what_if
from perfdoctor.cli.main import app
from perfdoctor.errors import AskedWronglyError
from perfdoctor.replay.prediction import Question
from perfdoctor.rulebook import load_rules

RULES = load_rules()
FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDING = FIXTURES / "input-bound-single-process" / "torch"


def run(*arguments):
    return CliRunner().invoke(app, ["analyze", *map(str, arguments)])


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("input-wait", [Question("input-wait")]),
        (" input-wait , launch-bound,", [Question("input-wait"), Question("launch-bound")]),
        ("input-wait=low", [Question("input-wait", "low")]),
        ("input-wait = 50 %", [Question("input-wait", "50 %", 0.5)]),
        ("host-syncs=12.5%", [Question("host-syncs", "12.5%", 0.125)]),
        ("fp32-matmuls=bf16, host-syncs=100%", [Question("fp32-matmuls", "bf16"), Question("host-syncs", "100%", 1.0)]),
    ],
)
def test_rules_and_how_far_their_cures_go(text, meant):
    assert what_if.questions(text, RULES) == tuple(meant)


@pytest.mark.parametrize(
    ("text", "what", "right"),
    [
        ("", "--what-if names no rule", "Ask like this"),
        ("input-wiat", "--what-if 'input-wiat': there is no such rule", "Did you mean input-wait"),
        ("qqqq", "--what-if 'qqqq': there is no such rule", "What can be asked: "),
        ("memory-growth", "--what-if memory-growth: what its cure brings cannot be played", "What can be asked: "),
        ("input-wait=", "--what-if input-wait=: there is no such choice", "Choices of input-wait: low, likely, high"),
        ("input-wait=fast", "--what-if input-wait=fast: there is no such choice", "or a share from 1% to 100%."),
        ("input-wait=0%", "--what-if input-wait=0%: there is no such choice", "Choices of input-wait"),
        ("input-wait=101%", "--what-if input-wait=101%: there is no such choice", "Choices of input-wait"),
        ("input-wait=bf16", "--what-if input-wait=bf16: there is no such choice", "Choices of input-wait"),
        ("fp32-matmuls=tf32", "--what-if fp32-matmuls=tf32: there is no such choice", "bf16, fp16, low, likely, high"),
        ("input-wait, input-wait=low", "--what-if names input-wait twice", "Name each rule once."),
        ("ranks=64", "--what-if ranks=64: ", "Record on so many ranks"),
    ],
)
def test_what_means_nothing_is_said_in_one_line_and_the_right_ones_in_another(text, what, right):
    with pytest.raises(AskedWronglyError) as error:
        what_if.questions(text, RULES)
    assert error.value.what.startswith(what)
    assert right in error.value.do
    assert "\n" not in error.value.what + error.value.do


def test_a_wrong_question_ends_with_2_before_anything_is_read():
    result = run("no-such-file.json", "--what-if", "input-wiat")
    assert result.exit_code == 2
    what, do = result.stderr.splitlines()
    assert what == "perfdoctor: --what-if 'input-wiat': there is no such rule"
    assert do.startswith("  → Did you mean input-wait")
    assert result.stdout == ""


def test_a_rule_that_found_nothing_here_ends_with_2_and_names_those_that_did(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(RECORDING, "--what-if", "garbage-collection")
    assert result.exit_code == 2
    what, do = result.stderr.splitlines()
    assert what == "perfdoctor: --what-if garbage-collection: not found in this recording"
    assert "input-wait" in do
    assert list(tmp_path.iterdir()) == []


def test_an_answer_is_in_every_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(RECORDING, "--what-if", "input-wait=50%", "--json", "answer.json", "--html", "answer.html")
    assert result.exit_code == 0, result.output
    assert "What if: fixed one after the other\nas recorded" in result.stdout
    prediction = json.loads(Path("answer.json").read_text("utf-8"))["prediction"]
    assert (prediction["fixed"], prediction["asked"]) == (["input-wait"], True)
    assert prediction["steps"][0]["choice"] == "50%"
    assert prediction["steps"][0]["step_ns"] == prediction["step_ns"]["likely"] < prediction["recorded_step_ns"]
    assert "input-wait=50%" in Path("answer.html").read_text("utf-8")


def test_a_recording_that_cannot_be_played_again_ends_with_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(FIXTURES / "cpu-slow-input" / "torch", "--what-if", "input-wait")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0].endswith("cannot be played again: it holds no work of a GPU")

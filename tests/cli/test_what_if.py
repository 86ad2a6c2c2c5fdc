"""`--what-if` is read correctly, and refused in two lines where it is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from folders import FIXTURES
from pairs import public
from tables import of_each
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.diagnosis import questions as what_if
from perfdoctor.diagnosis.questions import Question
from perfdoctor.errors import UsageError
from perfdoctor.vocabulary.rulebook import load_rules

RULES = load_rules()
RECORDING = FIXTURES / "input-bound-single-process" / "torch"


def run(*arguments):
    return CliRunner().invoke(app, ["analyze", *map(str, arguments)])


@of_each(
    ("text", "meant"),
    [
        ("input-wait", [Question("input-wait")]),
        (" input-wait , launch-bound,", [Question("input-wait"), Question("launch-bound")]),
        ("input-wait=low", [Question("input-wait", "low")]),
        ("input-wait = 50 %", [Question("input-wait", "50 %", 0.5)]),
        ("host-syncs=12.5%", [Question("host-syncs", "12.5%", 0.125)]),
        ("batch=2x", [Question("batch", "2x", amount=2.0)]),
        ("ranks=64@50GB/s", [Question("ranks", "64@50GB/s", amount=64.0, network_bytes_per_second=50e9)]),
        ("ranks=64@400Gbit/s", [Question("ranks", "64@400Gbit/s", amount=64.0, network_bytes_per_second=50e9)]),
        ("ranks=16@800 MB/s", [Question("ranks", "16@800 MB/s", amount=16.0, network_bytes_per_second=0.8e9)]),
        ("batch = 0.5 x, ranks=64", [Question("batch", "0.5 x", amount=0.5), Question("ranks", "64", amount=64.0)]),
        ("synthetic-data, input-wait", [Question("synthetic-data"), Question("input-wait")]),
        ("fp32-matmuls=bf16, host-syncs=100%", [Question("fp32-matmuls", "bf16"), Question("host-syncs", "100%", 1.0)]),
    ],
)
def test_rules_and_how_far_their_fixes_go(text, meant):
    assert what_if.questions(text, RULES) == tuple(meant)


@of_each(
    ("text", "what", "right"),
    [
        ("", "--what-if names no rule", "Examples: "),
        ("input-wiat", "--what-if 'input-wiat': there is no such rule", "Did you mean input-wait"),
        ("qqqq", "--what-if 'qqqq': there is no such rule", "There are: "),
        ("memory-growth", "--what-if memory-growth: its fix cannot be simulated: it saves no time", "There are: "),
        ("input-wait=", "--what-if input-wait=: there is no such choice", "Choices of input-wait: low, likely, high"),
        ("input-wait=fast", "--what-if input-wait=fast: there is no such choice", "or a share from 1% to 100%."),
        ("input-wait=0%", "--what-if input-wait=0%: there is no such choice", "Choices of input-wait"),
        ("input-wait=101%", "--what-if input-wait=101%: there is no such choice", "Choices of input-wait"),
        ("input-wait=bf16", "--what-if input-wait=bf16: there is no such choice", "Choices of input-wait"),
        ("fp32-matmuls=tf32", "--what-if fp32-matmuls=tf32: there is no such choice", "bf16, fp16, low, likely, high"),
        ("input-wait, input-wait=low", "--what-if names input-wait twice", "Give each one once."),
        ("ranks=8, ranks=64", "--what-if names ranks twice", "Give each one once."),
        ("ranks", "--what-if ranks: that is no number of ranks", "ranks=8"),
        ("ranks=8@0GB/s", "--what-if ranks=8@0GB/s: that is no number of ranks", "ranks=64@50GB/s"),
        ("ranks=8@fast", "--what-if ranks=8@fast: that is no number of ranks", "ranks=64@50GB/s"),
        ("ranks=0", "--what-if ranks=0: that is no number of ranks", "ranks=8"),
        ("ranks=8x", "--what-if ranks=8x: that is no number of ranks", "ranks=8"),
        ("batch", "--what-if batch: that is no factor", "batch=2x"),
        ("batch=2", "--what-if batch=2: that is no factor", "0.1x to 64x of the recorded batch"),
        ("batch=65x", "--what-if batch=65x: that is no factor", "0.1x to 64x"),
        ("batch=0x", "--what-if batch=0x: that is no factor", "0.1x to 64x"),
        (
            "synthetic-data=50%",
            "--what-if synthetic-data=50%: synthetic-data has no value",
            "Use --what-if synthetic-data.",
        ),
        ("sintetic-data", "--what-if 'sintetic-data': there is no such rule", "Did you mean synthetic-data"),
        ("memory-growth", "--what-if memory-growth: its fix", "batch=2x"),
    ],
)
def test_a_usage_error_has_one_line_and_another_with_valid_values(text, what, right):
    with pytest.raises(UsageError) as error:
        what_if.questions(text, RULES)
    assert error.value.what.startswith(what)
    assert right in error.value.do
    assert "\n" not in error.value.what + error.value.do


def test_every_pair_of_public_recordings_can_be_asked():
    parsed = [what_if.questions(", ".join(each["fixed"]), RULES) for each in public()]
    assert {question.rule for questions in parsed for question in questions} >= {"batch", "ranks", "synthetic-data"}


def test_a_usage_error_exits_with_2_before_anything_is_read():
    result = run("no-such-file.json", "--what-if", "input-wiat")
    assert result.exit_code == 2
    what, do = result.stderr.splitlines()
    assert what == "perfdoctor: --what-if 'input-wiat': there is no such rule"
    assert do.startswith("  → Did you mean input-wait")
    assert result.stdout == ""


def test_a_rule_that_found_nothing_here_exits_with_2_and_names_those_that_did(tmp_path, monkeypatch):
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


@pytest.mark.parametrize("question", ["batch=2x", "synthetic-data", "input-wait=50%, batch=2x"])
def test_another_size_of_the_run_is_answered_in_every_report(question, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(RECORDING, "--what-if", question, "--json", "answer.json", "--html", "answer.html")
    assert result.exit_code == 0, result.output
    assert "What if: one after the other\nas recorded" in result.stdout
    prediction = json.loads(Path("answer.json").read_text("utf-8"))["prediction"]
    samples = 2.0 if "batch" in question else 1.0
    assert prediction["samples"] == prediction["steps"][-1]["samples"] == samples
    assert prediction["scaling"] is None
    recorded, step = prediction["recorded_step_ns"], prediction["step_ns"]["likely"]
    assert prediction["speedup"]["likely"] == pytest.approx(samples * recorded / step)
    assert question.split(", ")[-1] in Path("answer.html").read_text("utf-8")


def test_ranks_that_cannot_be_predicted_exit_with_2_and_those_that_can(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(RECORDING, "--what-if", "ranks=8")
    assert result.exit_code == 2
    what, do = result.stderr.splitlines()
    assert what == "perfdoctor: --what-if ranks=8: it holds no communication, which alone shows how fast links are"
    assert "batch=2x, synthetic-data" in do
    assert list(tmp_path.iterdir()) == []


def test_another_size_cannot_be_predicted_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(FIXTURES / "cpu-slow-input" / "torch", "--what-if", "batch=2x")
    assert result.exit_code == 1
    assert "without a GPU" in result.stderr.splitlines()[0]


def test_a_recording_that_cannot_be_played_again_ends_with_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    Path("trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [alone]}), "utf-8")
    result = run("trace.json", "--what-if", "input-wait")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0].endswith("cannot be replayed: no steps were found in it")

"""Is a diagnosis.json read again what was written, word for word? And what of one that is damaged?"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from folders import FIXTURES
from msgspec.structs import replace
from recorded import recording
from report.samples import INPUT_BOUND, POISONED, SAMPLES
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.errors import PerfdoctorError
from perfdoctor.report import brief, json_report, markdown
from perfdoctor.report.stored_diagnosis import stored
from perfdoctor.system.run_folder import Manifest, RunFolder
from perfdoctor.vocabulary.basis import EXECUTION

TORCH = FIXTURES / "unfused-optimizer" / "torch"
REAL = [TORCH, *(FIXTURES / name for name in ("cpu-slow-input", "straggler/nsys", "launch-bound/nsys"))]


def again(diagnosis, folder):
    file = folder / "any.json"
    file.write_text(json_report.render(diagnosis), "utf-8")
    return stored("any.json", file)


@pytest.mark.parametrize(
    "made", [*SAMPLES, *REAL], ids=lambda made: made if isinstance(made, str) else made.parent.name
)
def test_what_was_stored_is_printed_as_when_it_was_made(made, tmp_path):
    made = SAMPLES[made] if isinstance(made, str) else recording(made).diagnosis
    read = again(made, tmp_path)
    assert json_report.render(read) == json_report.render(made)
    if made is not POISONED:  # JSON has no lone surrogates
        assert brief.render(read) == brief.render(made)
        assert markdown.render(read) == markdown.render(made)


def test_what_numbers_are_for_one_of_is_said_as_when_it_was_made(tmp_path):
    made = replace(INPUT_BOUND, basis=EXECUTION)
    read = again(made, tmp_path)
    assert read.basis == EXECUTION
    assert brief.render(read) == brief.render(made)
    assert markdown.render(read) == markdown.render(made)
    assert " execution of the range" in markdown.render(read)


def places(value, path=()):
    """Where each value of the document is."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inside:
        yield (*path, name)
        yield from places(each, (*path, name))


WRONG = (None, -5, 0, 10**25, "\x1b[31m</script>", [], {"\x1b[31m": 1})


@pytest.mark.parametrize("made", ["input_bound", "asked", "larger"])
def test_whatever_a_stranger_wrote_into_it_is_an_error_of_one_line_or_harmless(made, tmp_path):
    """Every third value of the whole document, in turn with each wrong one."""
    text = json_report.render(SAMPLES[made])
    file = tmp_path / "any.json"
    for number, path in enumerate([*places(json.loads(text))][::3]):
        document = json.loads(text)
        inner = document
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = WRONG[number % len(WRONG)]
        file.write_text(json.dumps(document))
        try:
            read = stored("any.json", file)
        except PerfdoctorError as error:
            assert "any.json" in error.what
            continue
        if read is not None:
            assert "\x1b" not in brief.render(read) + markdown.render(read)


def test_one_of_an_earlier_version_is_called_so(tmp_path):
    document = json.loads(json_report.render(INPUT_BOUND))
    del document["base_ns"]
    (tmp_path / "any.json").write_text(json.dumps(document))
    with pytest.raises(PerfdoctorError, match="earlier version"):
        stored("any.json", tmp_path / "any.json")


# --- the commands ----------------------------------------------------------------------------------------------------


def run(*words):
    return CliRunner().invoke(app, ["analyze", *map(str, words)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run folder whose recordings are no more."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(TORCH, tmp_path / "recording")
    (tmp_path / "run").mkdir()
    assert run("recording", "--quiet", "--no-html", "--json", "run/diagnosis.json").exit_code == 0
    return tmp_path / "run"


def test_it_is_printed_in_every_format_and_by_its_folder_alone(folder):
    for words in (("--format", "brief"), ("--format", "markdown"), ("--json", "-"), ("--quiet",), ("--all",)):
        fresh = run("recording", "--no-html", *words)
        assert fresh.exit_code == 0
        assert run("run/diagnosis.json", *words).stdout == fresh.stdout
        assert run("run", *words).stdout == fresh.stdout
    assert [each.name for each in folder.iterdir()] == ["diagnosis.json"]
    assert run("run", "--quiet", "--fail-on", "unfused-optimizer").exit_code == 3


def test_what_is_not_ours_is_not_written_over(folder):
    Path("notes.json").write_text("mine", "utf-8")
    done = run("run", "--json", "notes.json")
    assert (done.exit_code, Path("notes.json").read_text("utf-8")) == (1, "mine")
    assert run("run/diagnosis.json", "--json", "run/diagnosis.json").exit_code == 1
    assert run("run/diagnosis.json", "--json", "again.json").exit_code == 0
    assert Path("again.json").read_bytes() == Path("run/diagnosis.json").read_bytes()


def test_what_needs_the_recording_says_so(folder):
    for words in (
        ("--what-if", "unfused-optimizer"),
        ("--html", "x.html"),
        ("--steps", "1..2"),
        ("--rule", "input-wait"),
    ):
        done = run("run", *words)
        assert done.exit_code == 2
        assert f"{words[0]} asks for the recording, and run holds its diagnosis alone" in done.stderr


def test_with_a_recording_beside_it_the_recording_is_read(folder):
    shutil.copytree(FIXTURES / "launch-bound" / "torch", folder / "torch")
    assert "launch-bound" in run("run", "--no-html", "--format", "brief").stdout


def test_explain_prints_of_a_run_what_was_found_there_with_its_own_numbers(tmp_path):
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    made = SAMPLES["input_bound"]
    (folder / "diagnosis.json").write_text(json_report.render(made), "utf-8")
    done = CliRunner().invoke(app, ["explain", str(folder)])
    assert done.exit_code == 0, done.output
    words = " ".join(done.stdout.split())
    for advice in made.findings:
        assert " ".join(advice.summary.split()) in words
        assert all(" ".join(fix.title.split()) in words for fix in advice.fixes)
    assert "How it is detected" not in done.stdout
    only_fixes = CliRunner().invoke(app, ["explain", str(folder / "diagnosis.json"), "--quiet"]).stdout
    assert "Fix: " in only_fixes
    assert "Not a problem when" not in only_fixes


def test_explain_of_a_folder_without_a_diagnosis_says_how_to_write_one(tmp_path):
    done = CliRunner().invoke(app, ["explain", str(tmp_path)])
    assert done.exit_code == 2
    assert "perfdoctor analyze" in done.output


def test_a_folder_above_several_runs_lists_them_and_above_one_is_that_run(tmp_path):
    for name in ("first", "second"):
        RunFolder.create(tmp_path / "runs" / name, Manifest(perfdoctor="1", command=["python", f"{name}.py"]))
        (tmp_path / "runs" / name / "diagnosis.json").write_text(json_report.render(SAMPLES["input_bound"]), "utf-8")
    several = CliRunner().invoke(app, ["analyze", str(tmp_path), "--no-html"])
    assert several.exit_code == 2
    assert "first.py" in several.output
    assert "second.py" in several.output
    shutil.rmtree(tmp_path / "runs" / "second")
    one = CliRunner().invoke(app, ["explain", str(tmp_path) + "/"])
    assert one.exit_code == 0, one.output
    assert str(tmp_path / "runs" / "first") in one.output

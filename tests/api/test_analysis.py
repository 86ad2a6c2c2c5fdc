"""A call from Python says what the command says, and refuses what the command refuses, in words of arguments."""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import FIXTURES
from msgspec.structs import replace
from own_rule_files import write
from recorded import recording
from report.samples import SAMPLES
from tables import of_each
from typer.testing import CliRunner

import perfdoctor
from perfdoctor.api.arguments import changes_only
from perfdoctor.cli.main import app
from perfdoctor.model.columns import Text
from perfdoctor.model.timeline import Frame

ONE = FIXTURES / "input-bound-single-process" / "torch"
RANKS = FIXTURES / "straggler" / "torch"


@pytest.fixture(scope="module")
def diagnosis() -> perfdoctor.Diagnosis:
    return perfdoctor.analyze(ONE)


def of_command(*arguments: str) -> str:
    return CliRunner().invoke(app, ["analyze", *arguments, "--no-html"], prog_name="perfdoctor").stdout


@pytest.mark.parametrize("path", [ONE, RANKS, FIXTURES / "cuda-graphs" / "nsys"], ids=lambda path: path.parent.name)
def test_json_and_markdown_are_those_of_the_command(path: Path) -> None:
    diagnosis = perfdoctor.analyze(path)
    assert diagnosis.to_json() == of_command(str(path), "--json", "-")
    assert diagnosis.to_markdown() == of_command(str(path), "--format", "markdown")
    assert diagnosis.to_brief() == of_command(str(path), "--format", "brief")


def test_fields_are_those_of_the_json(diagnosis: perfdoctor.Diagnosis) -> None:
    document = json.loads(diagnosis.to_json())
    assert [outcome.rule for outcome in diagnosis.outcomes] == [each["rule"] for each in document["outcomes"]]
    assert diagnosis.findings[0].saving_ns_per_step.likely == document["findings"][0]["saving_ns_per_step"]["likely"]
    assert [split.window_ns for split in diagnosis.time] == [each["window_ns"] for each in document["time"]]
    assert diagnosis.steps.median_ns == document["run"]["steps"]["median_ns"]
    assert diagnosis.unit == "step"
    assert diagnosis.verdict.startswith("Training waits for data")
    assert diagnosis.find("input-wait") == diagnosis.findings[0]
    assert diagnosis.find("pageable-copies") is None
    symptom = SAMPLES["input_bound"].findings[0].symptoms[0]
    of_sample = perfdoctor.Diagnosis(replace(diagnosis._examination, diagnosis=SAMPLES["input_bound"]))
    assert of_sample.find(symptom.rule) == symptom


def test_a_stored_diagnosis_is_the_diagnosis_without_its_recording(
    diagnosis: perfdoctor.Diagnosis, tmp_path: Path
) -> None:
    file = tmp_path / "diagnosis.json"
    file.write_text(diagnosis.to_json(), "utf-8")
    stored = perfdoctor.analyze(file)
    assert (stored.verdict, stored.findings) == (diagnosis.verdict, diagnosis.findings)
    assert [split.idle_ns for split in stored.time] == [split.idle_ns for split in diagnosis.time]
    assert stored.to_json() == of_command(str(file), "--json", "-")
    assert perfdoctor.compare(stored, diagnosis).verdict == perfdoctor.compare(file, diagnosis).verdict == "no change"
    for asked in (lambda: stored.timeline, lambda: stored.what_if("input-wait"), lambda: stored.table("steps")):
        with pytest.raises(perfdoctor.PerfdoctorError, match="without its recording"):
            asked()
    with pytest.raises(perfdoctor.PerfdoctorError, match="gpu asks for the recording"):
        perfdoctor.analyze(file, gpu="H100 SXM")


def test_tables_and_answers_are_those_of_the_command(diagnosis: perfdoctor.Diagnosis, tmp_path: Path) -> None:
    sql = "SELECT id, name, phase, step_id, duration_ns FROM kernels"
    printed = json.loads(CliRunner().invoke(app, ["query", str(ONE), sql, "--format", "json"]).stdout)
    assert [list(row) for row in diagnosis.query(sql).rows] == printed["rows"]
    assert perfdoctor.query(ONE, sql) == diagnosis.query(sql)
    kernels = diagnosis.table("kernels")
    assert kernels["step_id"].tolist() == [-1 if row[3] is None else row[3] for row in printed["rows"]]
    assert list(kernels.text("name")) == [row[1] for row in printed["rows"]]
    assert diagnosis.table("findings").text("rule")[0] == diagnosis.findings[0].rule
    diagnosis.export(sqlite=tmp_path / "train.db")
    assert perfdoctor.query(tmp_path / "train.db", sql) == diagnosis.query(sql)
    with pytest.raises(perfdoctor.PerfdoctorError, match="no table 'kernel'") as refused:
        diagnosis.table("kernel")
    assert "kernels" in refused.value.do


def test_columns_of_frames_have_the_names_of_tables(diagnosis: perfdoctor.Diagnosis) -> None:
    collectives = diagnosis.timeline["collectives"]
    assert len(collectives.text("group_name")) == len(collectives["duration_ns"]) == len(collectives)
    with pytest.raises(perfdoctor.PerfdoctorError, match="no column 'step_id'") as refused:
        diagnosis.timeline["kernels"]["step_id"]
    assert "table(NAME)" in refused.value.do


def test_what_a_notebook_shows_of_lists_and_frames_runs_nothing(diagnosis: perfdoctor.Diagnosis) -> None:
    evil = Frame({"start_ns": np.zeros(30, np.int64), "name": Text.of(["<script>\u202e"] * 30)})
    shown = evil._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert "\u202e" not in shown
    assert "30 rows, the first 20 are shown" in shown
    assert "input-wait" in diagnosis.findings._repr_html_()  # type: ignore[attr-defined]
    assert "input-wait" in diagnosis.query("SELECT rule FROM findings")._repr_html_()


def test_rules_are_chosen_by_the_same_patterns_as_by_the_command() -> None:
    ours = perfdoctor.analyze(ONE, rules=["*-copies", "input-wait"], ignore="exposed-*").outcomes
    options = ["--rule", "*-copies", "--rule", "input-wait", "--ignore", "exposed-*", "--json", "-"]
    theirs = json.loads(of_command(str(ONE), *options))["outcomes"]
    assert [each.rule for each in ours] == [each["rule"] for each in theirs]
    assert len(ours) > 1


def test_another_question_has_the_answer_of_a_new_analysis(diagnosis: perfdoctor.Diagnosis) -> None:
    anew = perfdoctor.analyze(ONE, what_if="input-wait=50%")
    assert diagnosis.what_if("input-wait=50%") == anew.prediction
    assert diagnosis.what_if(["input-wait=50%"]) == anew.prediction
    assert diagnosis.what_if({"input-wait": "50%"}) == anew.prediction
    assert diagnosis.prediction != anew.prediction


def test_only_the_rules_asked_for_are_checked() -> None:
    found = perfdoctor.analyze(ONE, rules=["input-wait", "*-copies"], ignore="exposed-*")
    checked = [outcome.rule for outcome in found.outcomes]
    assert "input-wait" in checked
    assert "pageable-copies" in checked
    assert "exposed-copies" not in checked
    assert all(rule == "input-wait" or rule.endswith("-copies") for rule in checked)


def test_rules_of_ones_own_are_used_where_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "rules")
    config = tmp_path / "pyproject.toml"
    config.write_text(
        '[tool.perfdoctor]\nrules = ["rules"]\n[tool.perfdoctor.thresholds.input-wait]\nmin_share_of_step = 0.9\n'
    )
    recorded = FIXTURES / "unfused-optimizer" / "torch"
    for given in ({"own_rules": folder}, {"own_rules": [str(folder)]}, {"config": config}):
        found = perfdoctor.analyze(recorded, rules="acme/*", **given)  # type: ignore[arg-type]
        assert [outcome.rule for outcome in found.outcomes] == ["acme/slow-add"]
    assert found.findings[0].origin
    assert perfdoctor.compare(found, recorded, config=config).findings
    assert perfdoctor.analyze(ONE, rules="input-wait", config=config).findings == ()
    monkeypatch.chdir(tmp_path)  # rules are code: none that lies here is run
    assert "acme/slow-add" not in {outcome.rule for outcome in perfdoctor.analyze(recorded).outcomes}


def test_a_part_of_the_steps_is_that_of_the_command() -> None:
    assert perfdoctor.analyze(ONE, steps=(2, 3)).to_json() == of_command(str(ONE), "--steps", "2..3", "--json", "-")
    assert perfdoctor.analyze(ONE, steps="2..3").to_json() == perfdoctor.analyze(ONE, steps=(2, 3)).to_json()
    assert perfdoctor.analyze(ONE, steps=2).to_json() == of_command(str(ONE), "--steps", "2", "--json", "-")
    values = ["--gpu", "H100 SXM", "--peak", "bf16=500T", "--tokens-per-step", "16k", "--parameters", "7B"]
    given = perfdoctor.analyze(ONE, gpu="H100 SXM", peaks={"bf16": 5e14}, tokens_per_step=16e3, parameters=7e9)
    assert given.to_json() == of_command(str(ONE), *values, "--json", "-")


@pytest.mark.parametrize(
    ("arguments", "what", "do"),
    [
        ({"rules": "input-wiat"}, "rules: there is no rule 'input-wiat'", "Did you mean input-wait"),
        ({"ignore": ["no-such-*"]}, "ignore: there is no rule 'no-such-*'", "`perfdoctor rules`"),
        ({"rules": "input-wait", "ignore": "*"}, "rules and ignore leave no rule", ""),
        ({"what_if": "input-wiat"}, "what_if 'input-wiat': there is no such rule", "Did you mean input-wait"),
        ({"what_if": "garbage-collection"}, "what_if garbage-collection: not found in this recording", ""),
        ({"rules": "perf/rules"}, "rules: there is no rule 'perf/rules'", "own_rules=FOLDER"),
        ({"own_rules": "no/rules"}, "the folder of rules no/rules does not exist", ""),
        ({"config": "no.toml"}, "config no.toml: there is no such file", ""),
        ({"steps": (3, 2)}, "steps=(3, 2): that names no steps", "steps=(3, 5)"),
        ({"range": " "}, "range names nothing", ""),
        ({"gpu": "Z99"}, "gpu 'Z99' names no single GPU", "peaks bf16=989T"),
        ({"peaks": {"bf61": 1e15}}, "peaks: there is no peak 'bf61'", "bf16"),
        ({"peaks": "bf16=989T"}, "peaks='bf16=989T' is no mapping", '{"bf16": 989e12}'),
        ({"peaks": {"bf16": "989T"}}, "peaks: bf16='989T' is no rate", ""),
        ({"tokens_per_step": "16k"}, "tokens_per_step='16k': that is no number above zero", "tokens_per_step=16e3"),
        ({"steps": "first"}, "steps='first': that names no steps", ""),
        ({"peaks": {"bf16": 989}}, "peaks: bf16=989 is no rate", ""),
        ({"parameters": 7e9}, "parameters needs tokens_per_step", ""),
        ({"tokens_per_step": -1}, "tokens_per_step=-1: that is no number above zero", ""),
        ({"process": 1}, "process 1: what was given is no folder of perfdoctor run", "Leave out process"),
        ({"cluster": "here"}, "cluster here: that names no Dask cluster", "cluster tcp://"),
    ],
)
def test_a_wrong_argument_is_one_error_that_names_it(arguments: dict[str, object], what: str, do: str) -> None:
    with pytest.raises(perfdoctor.PerfdoctorError) as error:
        perfdoctor.analyze(ONE, **arguments)  # type: ignore[arg-type]
    assert error.value.what.startswith(what)
    assert do in error.value.do
    assert "--" not in error.value.what + error.value.do
    assert type(error.value) is perfdoctor.PerfdoctorError
    assert str(error.value) == f"{error.value.what} → {error.value.do}"


@pytest.mark.parametrize("given", [None, 3, b"run", {"run": 1}, [ONE, 3]], ids=repr)
def test_what_is_no_path_is_one_error(given: object) -> None:
    for call in (perfdoctor.analyze, perfdoctor.read, lambda paths: perfdoctor.compare(ONE, paths)):
        with pytest.raises(perfdoctor.PerfdoctorError, match="is no path → Give a run folder"):
            call(given)  # type: ignore[arg-type]


def test_what_perfdoctor_returned_is_no_path(diagnosis: perfdoctor.Diagnosis) -> None:
    for given in (diagnosis, diagnosis.timeline):
        with pytest.raises(perfdoctor.PerfdoctorError, match="is no path"):
            perfdoctor.analyze(given)  # type: ignore[arg-type]
    with pytest.raises(perfdoctor.PerfdoctorError, match="a Timeline is no path"):
        perfdoctor.compare(diagnosis.timeline, diagnosis)  # type: ignore[arg-type]


def test_tables_of_findings_hold_numbers_of_python() -> None:
    (found,) = perfdoctor.analyze(RANKS, rules="exposed-communication").findings
    tables = [each for each in found.evidence if isinstance(each, perfdoctor.Rows)]
    assert {type(value) for table in tables for row in table.rows for value in row} <= {str, int, float}
    assert tables


def test_a_diagnosis_and_a_timeline_are_the_same_in_another_process(diagnosis: perfdoctor.Diagnosis) -> None:
    rule = diagnosis.findings[0].rule
    before = diagnosis.what_if(rule)
    sent = pickle.loads(pickle.dumps(diagnosis))
    assert sent.to_json() == diagnosis.to_json()
    assert (sent.what_if(rule), sent.to_html()) == (before, diagnosis.to_html())
    assert sent.timeline["kernels"].name[0] == diagnosis.timeline["kernels"].name[0]


def test_what_cannot_be_read_is_the_same_error() -> None:
    for call in (perfdoctor.analyze, perfdoctor.read):
        with pytest.raises(perfdoctor.PerfdoctorError, match="no-such-folder"):
            call("no-such-folder")
        with pytest.raises(perfdoctor.PerfdoctorError, match="no path is given"):
            call([])


def test_a_comparison_takes_recordings_diagnoses_and_their_json(
    tmp_path: Path, diagnosis: perfdoctor.Diagnosis
) -> None:
    written = tmp_path / "diagnosis.json"
    written.write_text(diagnosis.to_json(), "utf-8")
    slower = FIXTURES / "input-bound-workers" / "torch"
    results = [perfdoctor.compare(before, slower) for before in (ONE, diagnosis, written)]
    assert {result.verdict for result in results} == {results[0].verdict}
    assert {result.before_ns for result in results[:2]} == {results[0].before_ns}
    assert sum(cause.delta_ns for cause in results[0].causes) == results[0].after_ns - results[0].before_ns
    assert json.loads(results[0].to_json())["verdict"] == results[0].verdict
    assert results[0].summary.removesuffix(".") in results[0].to_html()
    several = perfdoctor.compare([diagnosis, ONE], [slower, slower])
    assert json.loads(several.to_json())["step"]["before"]["runs"] == 2


def test_what_is_read_is_what_is_diagnosed(diagnosis: perfdoctor.Diagnosis) -> None:
    timeline = perfdoctor.read([str(ONE)])
    expected = recording(ONE).timeline
    assert timeline.recorded == expected.recorded
    assert all(
        (timeline["kernels"][name] == expected["kernels"][name]).all() for name in ("start_ns", "end_ns", "stream")
    )
    assert len(diagnosis.timeline["kernels"]) == len(timeline["kernels"])
    assert repr(timeline).startswith("<Timeline of 1 rank: ")
    assert len(repr(timeline)) < 500


def test_what_is_read_cannot_be_changed_by_chance() -> None:
    kernels = perfdoctor.read(ONE)["kernels"]
    with pytest.raises(ValueError, match="read-only"):
        kernels.start_ns[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        kernels.name.codes[0] = 0


def test_what_newcomers_try_is_answered_by_what_works() -> None:
    timeline = perfdoctor.read(ONE)
    for attempt, what, do in (
        (lambda: timeline["kernel"], "there is no signal 'kernel'", "kernels"),
        (lambda: timeline["kernels"]["name"], "the column 'name' is text", "frame.text('name')"),
        (lambda: timeline["kernels"]["duration"], "there is no column 'duration'", "Here it is called duration_ns."),
        (lambda: timeline["memcpy"], "there is no signal 'memcpy'", "Here it is called copies."),
        (lambda: timeline["kernels"].of(stage=1), "there is no column 'stage'", "start_ns, end_ns"),
        (lambda: perfdoctor.compare([], ONE), "no run is given", "several"),
        (lambda: timeline["kernels"][:5], "there is no column slice", "frame.take("),
        (lambda: timeline["kernels"][timeline["kernels"].start_ns > 0], "there is no column", "frame.take("),
        (lambda: list(timeline["kernels"]), "there is no column 0", "frame.take("),
    ):
        with pytest.raises(perfdoctor.PerfdoctorError) as error:
            attempt()
        assert error.value.what.startswith(what)
        assert do in error.value.do


def test_rows_are_chosen_as_numpy_and_as_the_columns_allow() -> None:
    kernels = perfdoctor.read(ONE)["kernels"]
    names = kernels.to_numpy()["name"]
    some = names[3]
    assert list(kernels.of(name=some, rank=0).start_ns) == list(
        kernels.start_ns[(names == some) & (kernels["rank"] == 0)]
    )
    assert list(kernels.take(slice(2, 9, 3)).start_ns) == list(kernels.start_ns[2:9:3])
    assert list(kernels.take([5, 1]).start_ns) == list(kernels.start_ns[[5, 1]])
    assert len(kernels.take([])) == 0
    assert list(kernels.name.matches("gemm")) == ["gemm" in name for name in names]


def test_several_threads_diagnose_at_once_and_leave_the_process_as_it_was() -> None:
    """As in a server, or a tool of an assistant."""
    before = (dict(os.environ), gc.isenabled(), signal.getsignal(signal.SIGINT), Path.cwd())
    alone = {path: perfdoctor.analyze(path).to_json() for path in (ONE, RANKS)}
    with ThreadPoolExecutor(4) as pool:
        both = list(pool.map(lambda path: (path, perfdoctor.analyze(path).to_json()), [ONE, RANKS] * 3))
    assert all(alone[path] == found for path, found in both)
    assert before == (dict(os.environ), gc.isenabled(), signal.getsignal(signal.SIGINT), Path.cwd())


def test_progress_is_told() -> None:
    said: list[str] = []
    perfdoctor.analyze(ONE, rules="input-wait", progress=said.append)
    assert any(text.startswith("Reading ") for text in said)
    assert all(text != following for text, following in pairwise(said))


def test_what_is_done_now_is_not_said_twice_in_a_row() -> None:
    said: list[str] = []
    progress = changes_only(said.append)
    assert progress is not None
    for text in ("Reading a", "Reading a", "Reading b", "Reading a"):
        progress(text)
    assert said == ["Reading a", "Reading b", "Reading a"]


def test_a_script_without_a_guard_may_read_many_ranks(tmp_path: Path) -> None:
    """Processes that read for us must not run the script again."""
    script = tmp_path / "script.py"
    script.write_text(
        f"import perfdoctor\nprint('once')\nprint(perfdoctor.analyze({str(RANKS)!r}, cluster=None).world_size)\n"
        "from perfdoctor.scale.read import read_run\nfrom pathlib import Path\n"
        f"print(len(read_run([Path({str(RANKS)!r})], lambda _: None, most_in_full=1).ranks))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split().count("once") == 1


# --- thresholds, steps, and a prediction in a cell -------------------------------------------------------------------

UNFUSED = FIXTURES / "unfused-optimizer" / "torch"


def test_thresholds_given_come_before_those_of_a_file(tmp_path: Path) -> None:
    config = tmp_path / "pyproject.toml"
    config.write_text("[tool.perfdoctor.thresholds.unfused-optimizer]\nmin_share_of_step = 1\n")
    assert perfdoctor.analyze(UNFUSED, config=config).find("unfused-optimizer") is None
    least = {"unfused-optimizer": {"min_share_of_step": 0.01}}
    found = perfdoctor.analyze(UNFUSED, config=config, thresholds=least).find("unfused-optimizer")
    assert found is not None
    assert (
        perfdoctor.analyze(UNFUSED, thresholds={"unfused-optimizer": {"min_share_of_step": 1}}).find(found.rule) is None
    )
    changes = perfdoctor.compare(UNFUSED, UNFUSED, thresholds={found.rule: {"min_share_of_step": 1}}).findings
    assert found.rule not in [each.rule for each in changes]


@of_each(
    ("given", "what"),
    [
        ({"unfused-optimiser": {}}, "no rule named 'unfused-optimiser'"),
        ({"unfused-optimizer": {"min_share": 0.1}}, "no threshold of unfused-optimizer named 'min_share'"),
        ({"unfused-optimizer": {"min_share_of_step": 5}}, "a fraction of step time"),
        ({"unfused-optimizer": {"min_share_of_step": float("nan")}}, "in thresholds is nan"),
        ({"unfused-optimizer": {"min_share_of_step": "much"}}, "in thresholds is 'much'"),
        ({"unfused-optimizer": 0.1}, "no mapping of mappings"),
    ],
)
def test_thresholds_that_are_none_are_an_error(given: Any, what: str) -> None:
    with pytest.raises(perfdoctor.PerfdoctorError, match=re.escape(what)):
        perfdoctor.analyze(UNFUSED, thresholds=given)


@of_each("fixture", ["unfused-optimizer/torch", "straggler/nsys", "cpu-slow-input"])
def test_the_steps_of_a_device_are_those_of_its_row_of_time(fixture: str) -> None:
    diagnosis = perfdoctor.analyze(FIXTURES / fixture)
    for split in diagnosis.time:
        spans = diagnosis.step_spans_ns(split.rank, split.device)
        assert spans.shape == (diagnosis.steps.used, 2)
        assert int((spans[:, 1] - spans[:, 0]).sum()) == split.window_ns
        assert spans[0, 0] == split.window_start_ns
    first = diagnosis.time[0]
    assert (diagnosis.step_spans_ns() == diagnosis.step_spans_ns(first.rank, first.device)).all()
    with pytest.raises(perfdoctor.PerfdoctorError, match="nothing was analysed of rank 99"):
        diagnosis.step_spans_ns(99)


def test_a_prediction_is_shown_in_a_cell_with_each_of_its_stages() -> None:
    diagnosis = perfdoctor.analyze(UNFUSED)
    asked = diagnosis.what_if("unfused-optimizer, batch=2x")
    cell = asked._repr_html_()
    assert "unfused-optimizer" in cell
    assert "batch=2x" in cell
    assert "the samples a second" in cell
    assert not re.search(r"<script|https?://", cell)
    assert asked == diagnosis.what_if(["unfused-optimizer", "batch=2x"])
    assert pickle.loads(pickle.dumps(asked)) == asked
    assert diagnosis.prediction is not None
    assert diagnosis.prediction._repr_html_()


def test_two_stored_diagnoses_are_compared_on_a_page(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / f"{name}.json").write_text(perfdoctor.analyze(UNFUSED).to_json(), "utf-8")
    page = perfdoctor.compare(tmp_path / "before.json", tmp_path / "after.json").to_html()
    assert page.startswith("<!doctype html>")


def test_a_series_is_that_of_the_command() -> None:
    given = {1: FIXTURES / "healthy" / "torch", 4: RANKS}
    series = perfdoctor.scaling(given)
    paths = [f"{ranks}={path}" for ranks, path in given.items()]
    done = CliRunner().invoke(app, ["compare", "--scaling", *paths, "--json", "-", "--no-html"])
    theirs, ours = json.loads(done.stdout), json.loads(series.to_json())
    assert ours["rungs"] == theirs["rungs"]
    assert [each.ranks for each in series.rungs] == [1, 4]
    with pytest.raises(perfdoctor.PerfdoctorError, match="two recordings or more"):
        perfdoctor.scaling([RANKS])


def test_a_command_is_recorded_and_found_in_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERFDOCTOR_HISTORY", str(tmp_path / "history.db"))
    with pytest.raises(perfdoctor.PerfdoctorError, match="no history yet"):
        perfdoctor.runs()
    with pytest.raises(perfdoctor.PerfdoctorError, match="ended with 4"):
        perfdoctor.run([sys.executable, "-c", "raise SystemExit(4)"])
    with pytest.raises(perfdoctor.PerfdoctorError, match="no list of texts"):
        perfdoctor.run("python train.py")
    monkeypatch.chdir(ONE.parent)
    CliRunner().invoke(app, ["analyze", str(ONE), "--save", "--no-html"])
    (run,) = perfdoctor.runs()
    assert run["source"] == "analyze"
    points = perfdoctor.trend()["points"]
    assert [point["run"] for point in points] == [run["id"]]


def test_a_check_is_that_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERFDOCTOR_HISTORY", str(tmp_path / "history.db"))
    slow, fast = (str(FIXTURES / name) for name in ("cpu-slow-input", "cpu-slow-input-fixed"))
    found = perfdoctor.check(slow, baseline=fast, program="train")
    done = CliRunner().invoke(app, ["check", slow, "--baseline", fast, "--program", "train", "--format", "json"])
    assert found.to_json() == done.stdout
    assert found.failed == (done.exit_code == 3)
    assert found.comparison.change > 0
    with pytest.raises(perfdoctor.PerfdoctorError, match="no history yet"):
        perfdoctor.check(slow)
    with pytest.raises(perfdoctor.PerfdoctorError, match="is a run of the baseline"):
        perfdoctor.check(slow, baseline=slow)


def test_a_rule_that_there_is_not_is_no_rule_that_found_nothing() -> None:
    diagnosis = perfdoctor.analyze(ONE, rules=["host-syncs"])
    assert diagnosis.find("input-wait") is None, "it was not applied"
    with pytest.raises(perfdoctor.PerfdoctorError, match="there is no rule 'input-wiat'") as error:
        diagnosis.find("input-wiat")
    assert error.value.do == "Did you mean input-wait?"


def test_an_answer_and_the_columns_of_a_frame_show_what_they_are() -> None:
    diagnosis = perfdoctor.analyze(ONE)
    answer = diagnosis.query("SELECT id, name, duration_ns FROM kernels ORDER BY id LIMIT 3").to_pandas()
    kernels = diagnosis.table("kernels")
    assert list(answer.columns) == ["id", "name", "duration_ns"]
    assert answer.duration_ns.tolist() == kernels.duration_ns[:3].tolist()
    assert "start_ns, end_ns" in repr(kernels.columns)
    with pytest.raises(AttributeError, match=r"frame\['stream'\]"):
        _ = kernels.stream  # type: ignore[attr-defined]


def test_a_run_that_is_stored_from_python_is_one_that_the_command_stores(tmp_path: Path) -> None:
    of_python, of_command_line = tmp_path / "python.db", tmp_path / "command.db"
    run_id = perfdoctor.analyze(ONE).save(db=of_python)
    environment = {**os.environ, "PERFDOCTOR_HISTORY": str(of_command_line)}
    subprocess.run(
        [sys.executable, "-m", "perfdoctor", "analyze", str(ONE), "--save", "--no-html", "--quiet"],
        check=True, capture_output=True, env=environment,
    )  # fmt: skip
    ours, theirs = (perfdoctor.runs(db=file)[0] for file in (of_python, of_command_line))
    assert ours["id"] == run_id
    differ = {name for name in ours if ours[name] != theirs[name]}
    assert differ <= {"id", "analysed_at", "stored_at"}, {name: (ours[name], theirs[name]) for name in differ}


@of_each("given", [0.05, "5%", "5.0 %"])
def test_the_limit_of_a_check_is_a_share_or_percent(given: float | str) -> None:
    assert perfdoctor.check(ONE, baseline=str(FIXTURES / "healthy" / "torch"), fail_above=given).failed is True


@of_each("given", ["5", "nan%", "much", -0.1, True, float("inf")])
def test_what_is_no_share_is_refused_with_an_example(given: object) -> None:
    with pytest.raises(perfdoctor.PerfdoctorError, match="is no share") as error:
        perfdoctor.check(ONE, baseline="x", fail_above=given)  # type: ignore[arg-type]
    assert error.value.do == 'Give one: fail_above=0.05, or "5%".'

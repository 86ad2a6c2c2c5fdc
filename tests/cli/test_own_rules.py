"""Rules of one's own: `--rules`, `--config` and packages; what is wrong with one costs that rule alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from folders import ROOT
from own_rule_files import DETECTOR, DOCUMENT, write
from tables import of_each
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.cli.shared_options import CONFIG
from perfdoctor.diagnosis import engine, ranking
from perfdoctor.model import run as runs
from perfdoctor.vocabulary.rulebook import load_rules

TRACES = ROOT / "fixtures" / "straggler" / "torch"
#: Of one rank: diagnosed in a third of the time.
SMALL = ROOT / "fixtures" / "input-bound-single-process" / "torch"
NSYS = ROOT / "fixtures" / "cpu-slow-input-nsys" / "nsys"


def run(*arguments, code=0, **environment):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)
    assert done.exit_code == code, done.output
    return done


def diagnosis(*arguments, of=TRACES, **environment):
    return json.loads(run("analyze", of, "--json", "-", "--no-html", *arguments, **environment).stdout)


def outcomes(document):
    return {each["rule"]: each for each in document["outcomes"]}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(CONFIG, raising=False)


@pytest.fixture
def rules(tmp_path):
    return write(tmp_path / "perf" / "rules")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The diagnosis without any rule but ours."""
    os.chdir(tmp_path_factory.mktemp("plain"))
    return diagnosis()


@pytest.fixture(scope="module")
def plain_small(tmp_path_factory):
    os.chdir(tmp_path_factory.mktemp("plain"))
    return diagnosis(of=SMALL)


def same_but_own(document, plain):
    """Is all as it is without the rule, but what is its own?"""
    ours = [each for each in document["outcomes"] if "/" not in each["rule"]]
    assert ours == plain["outcomes"]
    found = {each["rule"]: each["saving_ns_per_step"] for each in document["findings"] if "/" not in each["rule"]}
    assert found == {each["rule"]: each["saving_ns_per_step"] for each in plain["findings"]}
    assert document["time"] == plain["time"]


# --- found and shown ---


def test_a_rule_of_a_named_folder_finds_and_says_where_it_comes_from(rules, plain):
    document = diagnosis("--rules", "perf/rules")
    assert outcomes(document)["acme/slow-add"] == {
        "rule": "acme/slow-add", "status": "found", "missing": [], "error": None, "origin": "perf/rules",
    }  # fmt: skip
    (finding,) = (each for each in document["findings"] if each["rule"] == "acme/slow-add")
    assert finding["origin"] == "perf/rules"
    assert finding["saving_ns_per_step"]["likely"] > 0
    assert finding["derivation"]["formula"]
    assert finding["summary"].endswith("%).")
    assert not [each for each in document["outcomes"] if "/" not in each["rule"] and "origin" in each]
    same_but_own(document, plain)


def test_every_report_names_it_and_its_origin(rules, tmp_path):
    page = tmp_path / "page.html"
    text = run("analyze", TRACES, "--rules", "perf/rules", "--rule", "acme/slow-add", "--html", page).stdout
    assert "acme/slow-add from perf/rules" in " ".join(text.split())
    assert "perfdoctor explain acme/slow-add --rules perf/rules" in " ".join(text.split())
    assert "<code>acme/slow-add</code> from <code>perf/rules</code>" in page.read_text("utf-8")
    markdown = run("analyze", TRACES, "--rules", "perf/rules", "--no-html", "--format", "markdown", "--all").stdout
    assert "`acme/slow-add` from perf/rules" in markdown


def test_explain_and_the_list_show_it_with_its_origin(rules):
    page = run("explain", "acme/slow-add", "--rules", "perf/rules").stdout
    assert "acme/slow-add · kernels · preview, since 1.0.0 · from perf/rules" in page
    assert '[tool.perfdoctor.thresholds."acme/slow-add"]' in " ".join(page.split())
    *_, line = run("rules", "--rules", "perf/rules").stdout.splitlines()
    assert line.split()[0] == "acme/slow-add"
    assert line.endswith("perf/rules")
    *_, listed = json.loads(run("rules", "--rules", "perf/rules", "--format", "json").stdout)
    assert (listed["id"], listed["origin"]) == ("acme/slow-add", "perf/rules")
    assert "is used with --rules DIR" in " ".join(run("explain", "acme/slow-add", code=2).output.split())
    typo = run("explain", "acme/slow-ad", "--rules", "perf/rules", code=2).output
    assert "Did you mean acme/slow-add" in " ".join(typo.split())


def test_several_folders_may_be_named_and_its_fix_be_asked_for(rules, tmp_path):
    write(tmp_path / "more", name="slow-mul")
    asked = ("--rules", "perf/rules", "--rules", "more")
    document = diagnosis(*asked, "--what-if", "acme/slow-mul=50%")
    assert {"acme/slow-add", "acme/slow-mul"} <= set(outcomes(document))
    assert document["prediction"]["fixed"] == ["acme/slow-mul"]
    assert run("analyze", TRACES, *asked, "--no-html", "--fail-on", "acme/slow-mul", code=3)


def test_what_it_prints_never_gets_into_the_json(rules, capfd):
    write(
        rules,
        detector=DETECTOR.replace("def detect(run, at):", "print('loaded')\ndef detect(run, at):\n    print('called')"),
    )
    done = subprocess.run(
        [sys.executable, "-m", "perfdoctor", "analyze", TRACES, "--rules", "perf/rules", "--json", "-", "--no-html"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["findings"]
    assert done.stderr.split() == ["loaded", "called"]


def test_its_folder_is_on_no_path_gets_no_files_and_is_read_anew(rules, tmp_path):
    (rules / "shared.py").write_text("NAME = 'Add|elementwise'\n", "utf-8")
    (rules / "json.py").write_text("raise RuntimeError('shadows')\n", "utf-8")
    text = DETECTOR.replace("import re\n", "import json\nimport re\nfrom .shared import NAME\n")
    write(rules, detector=text.replace('"Add|elementwise"', "NAME"))
    here = [
        sys.executable,
        "-m",
        "perfdoctor",
        "analyze",
        str(TRACES),
        "--rules",
        "perf/rules",
        "--json",
        "-",
        "--no-html",
    ]
    before = json.loads(subprocess.run(here, capture_output=True, text=True, check=True).stdout)
    assert outcomes(before)["acme/slow-add"]["status"] == "found"
    write(rules, detector=text.replace("Add|elementwise", "never"))
    after = json.loads(subprocess.run(here, capture_output=True, text=True, check=True).stdout)
    assert outcomes(after)["acme/slow-add"]["status"] == "clear"
    assert not (rules / "__pycache__" / f"slow_add.{sys.implementation.cache_tag}.pyc").exists()


def test_our_rules_are_compiled_without_it(rules, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    load_rules.cache_clear()
    diagnosis("--rules", "perf/rules")
    kept = b"".join(file.read_bytes() for file in (tmp_path / "cache").rglob("*.bin"))
    assert b"slow-links" in kept
    assert b"slow-add" not in kept
    assert not [name for name in load_rules() if "/" in name]


# --- named, and never by itself ---


def config(folder, text='rules = ["perf/rules"]'):
    file = folder / "pyproject.toml"
    file.write_text(f"[tool.perfdoctor]\n{text}\n", "utf-8")
    return file


def test_a_pyproject_that_lies_here_runs_no_code(rules, tmp_path):
    write(rules, detector="raise SystemExit('run')\n")
    config(tmp_path)
    done = run("analyze", TRACES, "--json", "-", "--no-html")
    assert not [name for name in outcomes(json.loads(done.stdout)) if "/" in name]
    assert "pyproject.toml here names rules, which are code" in done.stderr
    assert "--config pyproject.toml" in done.stderr
    assert run("analyze", TRACES, "--no-html", "--quiet").stderr == ""


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_config_that_is_named_brings_rules_and_thresholds(rules, tmp_path, monkeypatch, by):
    file = config(
        tmp_path, 'rules = ["perf/rules"]\n[tool.perfdoctor.thresholds."acme/slow-add"]\nmin_share_of_step = 1.0'
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    given = ("--config", file) if by == "option" else ()
    found = diagnosis(*given, **({CONFIG: str(file)} if by == "environment" else {}))
    assert outcomes(found)["acme/slow-add"]["status"] == "clear"


def test_thresholds_of_rules_that_are_not_used_are_no_error(rules, tmp_path):
    config(tmp_path, '[tool.perfdoctor.thresholds."acme/slow-add"]\nmin_share_of_stepp = 1.0')
    assert diagnosis()
    done = run("analyze", TRACES, "--rules", "perf/rules", "--no-html", code=1)
    assert "min_share_of_step" in done.output


@of_each(
    "arguments,said",
    {
        "a folder that is not there": (("--rules", "nowhere"), "the folder of rules nowhere does not exist"),
        "a file": (("--rules", "perf/rules/slow-add.toml"), "is a file"),
        "no rule": (("--rules", "perf"), "holds no rule"),
        "a config that is not there": (("--config", "none.toml"), "there is no such file"),
    },
)
def test_what_is_named_and_not_there_is_a_wrong_usage(rules, arguments, said):
    assert said in run("analyze", TRACES, *arguments, code=2).output


@of_each("text", {"a text": 'rules = "perf/rules"', "numbers": "rules = [1]", "empty": 'rules = [" "]'})
def test_rules_of_a_config_are_a_list_of_folders(rules, tmp_path, text):
    assert "is no list of folders" in run("analyze", TRACES, "--config", config(tmp_path, text), code=2).output


# --- broken ---

BROKEN_DOCUMENTS = {
    "no TOML": ("id = ,", "line 1"),
    "empty": ("", "no field 'id'"),
    "no namespace": (DOCUMENT.replace("acme/", ""), "NAMESPACE/NAME"),
    "our namespace": (DOCUMENT.replace("acme/", "perfdoctor/"), "is not yours"),
    "another file's id": (DOCUMENT.replace('"acme/slow-add"', '"acme/other"'), "that of a file other.toml"),
    "a path as id": (DOCUMENT.replace('"acme/slow-add"', '"../../etc/slow-add"'), "NAMESPACE/NAME"),
    "no title": (DOCUMENT.replace("title =", "titel =", 1), "no field 'title'"),
    "a number for a title": (DOCUMENT.replace('"Adds take too long"', "5"), "title is no text"),
    "needs as a text": (DOCUMENT.replace('["kernels", "places"]', '"kernels"'), "needs is no list"),
    "an unknown signal": (DOCUMENT.replace('["kernels", "places"]', '["kernals"]'), "Did you mean kernels"),
    "an unknown category": (DOCUMENT.replace('category = "kernels"', 'category = "kernel"'), "category"),
    "an unknown action": (DOCUMENT.replace('action = "kernels"', 'action = "magic"'), "no action named 'magic'"),
    "a threshold as a text": (DOCUMENT.replace("value = 0.001", 'value = "much"'), "is no number"),
    "a threshold without why": (DOCUMENT.replace('why = "Less', 'reason = "Less'), "reason"),
    "a fix of no effort": (DOCUMENT.replace('effort = "minutes"', 'effort = "none"'), "effort"),
    "a verdict": (DOCUMENT.replace("[thresholds.min", 'verdict = ["x"]\n[thresholds.min', 1), "verdict is for"),
    "another encoding": (DOCUMENT.replace("÷", "").encode("utf-16").decode("latin-1"), ""),
}
BROKEN_DETECTORS = {
    "no file": (None, "there is no slow_add.py"),
    "no Python": ("def detect(run, at)\n", "slow_add.py, line 1: SyntaxError"),
    "nothing to call": ("x = 1\n", "no function detect"),
    "an import that fails": ("\nimport no_such_module_of_acme\n", "slow_add.py, line 2: ModuleNotFoundError"),
    "an error": (DETECTOR.replace("return\n", "pass\n").replace("    found = ", "    1 / 0\n    found = "), "ZeroDivisionError"),
    "a threshold of another name": (DETECTOR.replace("min_share_of_step", "min_share"), "KeyError: 'min_share'"),
    "the end of the program": (DETECTOR.replace("    found = ", "    raise SystemExit(5)\n    found = "), "SystemExit: 5"),
    "no findings": ("def detect(run, at):\n    return 5\n", "it has no `yield`"),
    "something else": ("def detect(run, at):\n    yield 5\n", "yields int, and no Finding"),
    "a rule of ours": (DETECTOR.replace('rule="acme/slow-add"', 'rule="input-wait"'), "is of the rule 'input-wait'"),
    "another confidence": (DETECTOR.replace('"high"', '"sure"'), "confidence is 'sure'"),
    "seconds as a saving": (DETECTOR.replace(".of(found.ns)", ".of(found.ns * 1000)"), "it is in ns a step"),
    "a missing value": (DETECTOR.replace("found.kernel_values()", "{}"), "slow-add.toml: a sentence names kernels_ms"),
    "no number": (DETECTOR.replace("found.kernel_values()", "{'x': float('nan')}"), "finite number"),
    "a list as a value": (DETECTOR.replace("found.kernel_values()", "{'x': []}"), "finite number or a text"),
    "no evidence": (DETECTOR.replace('found.kernel_evidence("adds a step")', "(1,)"), "evidence is a Measure"),
    "writing to the recording": (
        DETECTOR.replace("    found = ", "    run.timeline.kernels.start_ns[:] = 0\n    found = "), "read-only",
    ),
    "writing to a place": (
        DETECTOR.replace("    found = ", "    run.places[0].kernels.start_ns[:] = 0\n    found = "), "read-only",
    ),
    "endless recursion": ("def detect(run, at):\n    return detect(run, at)\n", "RecursionError"),
}  # fmt: skip


@of_each("document,said", BROKEN_DOCUMENTS)
def test_a_broken_document_costs_that_rule_and_one_line(tmp_path, plain_small, document, said):
    folder = write(tmp_path / "rules", name="fine-add")
    (folder / "slow-add.toml").write_text(document, "utf-8")
    (folder / "slow_add.py").write_text(DETECTOR, "utf-8")
    _costs_one_line(diagnosis("--rules", "rules", of=SMALL), plain_small, said)
    assert "slow-add.toml" in run("rules", "--rules", "rules").stdout


@of_each("detector,said", BROKEN_DETECTORS)
def test_a_broken_detector_costs_that_rule_and_one_line(tmp_path, plain_small, detector, said):
    folder = write(tmp_path / "rules", name="fine-add")
    write(folder, detector=detector)
    _costs_one_line(diagnosis("--rules", "rules", of=SMALL), plain_small, said)


def _costs_one_line(document, plain, said):
    failed = [each for each in document["outcomes"] if each["status"] == "failed"]
    assert [each["origin"] for each in failed] == ["rules"]
    (note,) = set(document["notes"]) - set(plain["notes"])
    assert note.startswith(f"The rule {failed[0]['rule']} of rules failed and was left out: slow")
    assert said in note
    assert "\n" not in note
    assert outcomes(document)["acme/fine-add"]["status"] == "found"
    same_but_own(document, plain)


def test_what_breaks_behind_the_detector_costs_the_findings_alone(tmp_path, plain, monkeypatch):
    """A defect that no check of findings knows: here of the code lines."""
    write(tmp_path / "rules")
    known = ranking.code_lines

    def broken(rule, finding, run):
        if rule.id == "acme/slow-add":
            raise IndexError("no such row")
        return known(rule, finding, run)

    monkeypatch.setattr(ranking, "code_lines", broken)
    write(tmp_path / "rules", name="slow-mul")
    document = diagnosis("--rules", "rules")
    assert outcomes(document)["acme/slow-add"]["error"] == "its findings cannot be used: IndexError: no such row"
    assert outcomes(document)["acme/slow-mul"]["status"] == "found"
    same_but_own(document, plain)


def test_what_two_of_them_break_together_costs_the_findings_of_both(tmp_path, plain, monkeypatch):
    write(tmp_path / "rules")
    write(tmp_path / "rules", name="slow-mul")
    known = ranking.ranked

    def broken(found, run):
        if sum("/" in each.rule.id for each in found) > 1:
            raise IndexError("no such row")
        return known(found, run)

    monkeypatch.setattr(engine, "ranked", broken)
    document = diagnosis("--rules", "rules")
    assert {each["status"] for name, each in outcomes(document).items() if "/" in name} == {"failed"}
    same_but_own(document, plain)


def test_whoever_stops_it_reads_in_which_rule_it_was(rules):
    write(rules, detector=DETECTOR.replace("    found = ", "    raise KeyboardInterrupt\n    found = "))
    done = run("analyze", TRACES, "--rules", "perf/rules", "--no-html", code=130)
    assert "perfdoctor: stopped in the rule acme/slow-add: slow_add.py, line 16" in done.stderr


def test_an_id_is_that_of_the_first_folder(tmp_path):
    write(tmp_path / "one")
    write(tmp_path / "two")
    document = diagnosis("--rules", "one", "--rules", "two")
    found = outcomes(document)
    assert found["acme/slow-add"]["origin"] == "one"
    assert "is also that of a rule of one" in found["two/slow-add"]["error"]


def test_several_processes_find_the_same(rules, monkeypatch):
    """Rules are shared out among forked processes where a recording has many rows."""
    write(rules, name="slow-mul", detector=DETECTOR.replace("    found = ", "    1 / 0\n    found = "))
    here = ("--rules", "perf/rules")
    alone = diagnosis(*here, PERFDOCTOR_JOBS="1")
    monkeypatch.setattr(runs, "_WORTH_CHILDREN", 0)
    together = diagnosis(*here, PERFDOCTOR_JOBS="3")
    assert together == alone
    assert outcomes(alone)["acme/slow-mul"]["error"] == "slow_mul.py, line 16: ZeroDivisionError: division by zero"


def test_it_is_about_a_program_without_a_gpu_as_well(rules):
    text = DETECTOR.replace(
        "found = of_kernels(run, adds, at", "assert not run.places[0].kernels\n    found = of_kernels(run, adds, at"
    )
    write(rules, DOCUMENT.replace('["kernels", "places"]', '["places"]'), text)
    done = run("analyze", NSYS, "--rules", "perf/rules", "--json", "-", "--no-html")
    assert outcomes(json.loads(done.stdout))["acme/slow-add"]["status"] in ("clear", "found")


def test_pathlike_origins_never_name_this_machine(rules, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    document = diagnosis("--rules", rules)
    assert outcomes(document)["acme/slow-add"]["origin"] == "rules"
    assert str(Path(tmp_path)) not in json.dumps(document)

"""Do `rules` and `explain` say what is looked for and how it is fixed?"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from perfdoctor import rulebook
from perfdoctor.cli.main import app

FIX = rulebook.RuleFix("Load [in] workers", "loader = DataLoader(\n    d,\n)", "minutes", changes_numerics=False)
INPUT_WAIT = rulebook.Rule(
    id="input-wait",
    title="The GPU waits for the next batch",
    category="input",
    since="0.1.0",
    status="stable",
    needs=("places", "steps"),
    summary="",
    why="Nothing is issued meanwhile.",
    not_a_problem_when="It is a test.",
    references=("https://example.org/loader",),
    thresholds={"min_share": rulebook.Threshold(0.03, "fraction of step time", "Below is noise.")},
    fixes=(FIX,),
    summaries={},
)


@pytest.fixture(autouse=True)
def _rules(monkeypatch):
    monkeypatch.setattr(rulebook, "load_rules", lambda: {"input-wait": INPUT_WAIT})


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_rules_is_one_line_a_rule_when_piped():
    head, line = run("rules").stdout.splitlines()
    assert head.split() == ["rule", "category", "what", "it", "finds", "status"]
    assert line == "input-wait  input     The GPU waits for the next batch  stable"
    assert "places, steps" in run("rules", "--verbose").stdout


def test_quiet_rules_are_ids():
    assert run("rules", "--quiet").stdout == "input-wait\n"


@pytest.mark.parametrize("command", ["explain", "rules"])
def test_a_rule_s_page_has_everything_its_document_says(command):
    page = run(command, "input-wait").stdout
    assert page.startswith("The GPU waits for the next batch\ninput-wait · input · stable, since 0.1.0\n")
    for part in (
        "Nothing is issued meanwhile.",
        "No problem when: It is a test.",
        "min_share = 0.03 (fraction of step time)",
        "    Below is noise.",
        "Fix: Load [in] workers (minutes of work, numerics stay)",
        "    loader = DataLoader(\n        d,\n    )\n",
        "https://example.org/loader",
    ):
        assert part in page


def test_quiet_explain_is_the_fixes():
    assert run("explain", "input-wait", "--quiet").stdout.startswith("Fix: Load [in] workers")


@pytest.mark.parametrize("command", ["explain", "rules"])
def test_an_unknown_rule_is_asked_wrongly(command):
    result = run(command, "input")
    assert result.exit_code == 2
    assert "Did you mean input-wait?" in result.stderr
    assert "`perfdoctor rules` lists them" in run(command, "zzz").stderr

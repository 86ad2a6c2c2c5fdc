"""Do the files that the forge and pre-commit read name what is there?"""

from __future__ import annotations

import pytest
import yaml
from folders import ROOT

TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def document(name):
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_the_workflow_runs_what_any_bare_machine_runs():
    steps = document(".github/workflows/ci.yml")["jobs"]["ci"]["steps"]
    assert any(step.get("run", "").startswith(".ci/run") for step in steps)
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_a_commit_is_checked_by_what_make_lint_calls():
    lint = (ROOT / "Makefile").read_text("utf-8").partition("\nlint:")[2].partition("\n\n")[0]
    hooks = [hook for repo in document(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks} == {
        line.split()[0].removeprefix("$(BIN)/") for line in lint.splitlines()[1:]
    }


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_report_of_a_fault_asks_what_works_on_the_machine(path):
    asked = [part["attributes"]["label"] for part in document(path)["body"]]
    assert any("perfdoctor selftest" in label for label in asked)
    assert len(TEMPLATES) == 2

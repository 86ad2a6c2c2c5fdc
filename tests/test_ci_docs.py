"""Do the example workflows of docs/ci.md work? Their steps are run, in a project with a small training.

Left out are steps of others (`uses:`), and the installation. What a cache does between two jobs is done here: the folder
that it names is kept, all else is gone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import junitparser
import pytest
import yaml
from folders import ROOT
from warm_torch import ALL_AT_ONE, warm_python

PAGE = (ROOT / "docs" / "ci.md").read_text("utf-8")
WORKFLOWS = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]
TRAINING = """
import torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    for _ in range(4):
        model(torch.ones(64, 256)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
#: By the `if:` of a step, or the rule of a job: for which of the two events it is.
EVENTS = {
    "github.event_name == 'pull_request'": "pull request", "github.event_name == 'push'": "main",
    "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH": "main", '$CI_PIPELINE_SOURCE == "merge_request_event"': "pull request",
}  # fmt: skip


@dataclass
class Job:
    """What is run, the folder that the cache keeps, and whether it is stored afterwards."""

    scripts: list[str]
    cached: str
    stores: bool


def of_github(event: str) -> Job:
    (job,) = next(each for each in WORKFLOWS if "jobs" in each)["jobs"].values()
    steps = [step for step in job["steps"] if EVENTS.get(step.get("if", ""), event) == event]
    caches = [step for step in steps if step.get("uses", "").startswith("actions/cache")]
    assert len({step["with"]["path"] for step in caches}) == 1
    stores = any(step["uses"].startswith("actions/cache/save") for step in caches)
    return Job([step["run"] for step in steps if "run" in step], caches[0]["with"]["path"], stores)


def of_gitlab(event: str) -> Job:
    jobs = next(each for each in WORKFLOWS if "jobs" not in each)
    own = next(job for job in jobs.values() if any(EVENTS.get(rule["if"]) == event for rule in job.get("rules", ())))
    whole = merged(jobs[own["extends"]], own)
    (cached,) = whole["cache"]["paths"]
    return Job([*whole["before_script"], *whole["script"]], cached, "push" in whole["cache"]["policy"])


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """As `extends` does it: by keys, at every depth."""
    both = {key: merged(below[key], above[key]) for key in below.keys() & above.keys() if isinstance(below[key], dict)}
    return {**below, **above, **both}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """`perfdoctor` as it is installed; `python` is one with torch."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "perfdoctor").write_text(f'#!/bin/sh\nexec {sys.executable} -m perfdoctor.cli.main "$@"\n')
    (folder / "perfdoctor").chmod(0o755)
    warm_python(folder)
    return folder


def checked_out(folder: Path, cache: Path, job: Job) -> None:
    folder.mkdir()
    (folder / "train.py").write_text(TRAINING)
    (folder / "pyproject.toml").touch()
    if cache.exists():
        shutil.copytree(cache, folder / job.cached)


def run_all(job: Job, folder: Path, tools: Path, **environment: str) -> Iterator[subprocess.CompletedProcess[str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERFDOCTOR_HISTORY", "GITHUB_"))}
    for script in job.scripts:
        if "pip install" in script:
            continue
        yield subprocess.run(
            ["bash", "-e", "-c", script], cwd=folder, capture_output=True, text=True, timeout=280, check=False,
            env={**kept, "PYTHONPATH": str(ROOT / "src"), "PATH": f"{tools}:{os.environ['PATH']}", **environment},
        )  # fmt: skip


@pytest.mark.torch
@ALL_AT_ONE
@pytest.mark.parametrize("of", [of_github, pytest.param(of_gitlab, marks=pytest.mark.thorough)])
def test_a_baseline_made_on_main_is_what_a_pull_request_is_checked_against(
    tmp_path: Path, tools: Path, of: Callable[[str], Job]
) -> None:
    cache, summary = tmp_path / "cache", tmp_path / "summary.md"
    main, request = of("main"), of("pull request")
    folder = tmp_path / "checkout"  # a project outside of repositories is its folder
    checked_out(folder, cache, main)
    for done in run_all(main, folder, tools):
        assert done.returncode == 0, done.stderr
    assert (main.stores, request.stores) == (True, False)
    shutil.move(folder / main.cached, cache)
    shutil.rmtree(folder)

    checked_out(folder, cache, request)
    *recorded, checked = run_all(request, folder, tools, GITHUB_STEP_SUMMARY=str(summary))
    assert [done.returncode for done in recorded] == [0] * len(recorded), recorded[-1].stderr
    # A busy machine may make three runs slower than three others.
    assert checked.returncode in (0, 3), checked.stderr
    assert_written(of, folder, checked.stdout, summary)


def assert_written(of: Callable[[str], Job], folder: Path, said: str, summary: Path) -> None:
    if of is of_github:
        assert re.match(r"::(error|warning|notice) file=train\.py,line=1,title=perfdoctor", said)
        text = summary.read_text("utf-8")
        (run,) = json.loads((folder / "check.sarif").read_text("utf-8"))["runs"]
        assert run["tool"]["driver"]["name"] == "perfdoctor"
    else:
        text = (folder / "check.md").read_text("utf-8")
        (suite,) = junitparser.JUnitXml.fromfile(str(folder / "check.xml"))
        assert suite.tests == 1
    assert text.startswith("<!-- perfdoctor check -->\n")
    assert "Baseline (BEFORE): main, 3 runs" in text
    assert "known from the history alone" in text


def test_every_step_that_the_workflows_name_is_for_an_event_that_is_known() -> None:
    assert len(WORKFLOWS) == 2
    for event in ("main", "pull request"):
        for of in (of_github, of_gitlab):
            assert any("perfdoctor run" in script for script in of(event).scripts)
    conditions = {step["if"] for step in WORKFLOWS[0]["jobs"]["step-time"]["steps"] if "if" in step}
    assert {each for each in conditions if not each.startswith("always()")} <= EVENTS.keys()


def test_every_path_that_is_kept_is_one_that_is_written() -> None:
    text = json.dumps(WORKFLOWS)
    assert set(re.findall(r"check\.\w+", text)) == {"check.sarif", "check.xml", "check.md"}
    assert {of(event).cached for of in (of_github, of_gitlab) for event in ("main", "pull request")} == {".perfdoctor"}

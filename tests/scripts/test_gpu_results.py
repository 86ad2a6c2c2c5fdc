"""Do results that came back from a machine become labelled fixtures, and a section of the page of machines?"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from folders import FIXTURES, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RESULTS = {
    "format": 1,
    "perfdoctor": "0.1.0",
    "machine": {"system": "Linux 6.1", "python": "3.12.3", "torch": "2.11.0+cu130", "cuda": "13.0", "gpus": ["NVIDIA H200"], "driver": "580.1", "nsys": "", "ncu": "2025.3"},
    "full": True,
    "works": True,
    "checks": [
        {"name": "torch.profiler", "verdict": "works", "found": "10 steps | of 4 ms", "do": "", "seconds": 1.0, "numbers": {}},
        {"name": "slow_input", "verdict": "works", "found": "named first", "do": "", "seconds": 1.0, "numbers": {"left_share": 0.125, "predicted_low": 0.1, "predicted_likely": 0.2, "predicted_high": 0.5}},
    ],
}  # fmt: skip


def results_folder(path: Path, **runs: str) -> Path:
    """Runs by name, each with the trace of this fixture."""
    path.mkdir()
    for name, fixture in runs.items():
        target = path / "runs" / name.replace("__", "-")
        (target / "torch").mkdir(parents=True)
        shutil.copy(FIXTURES / fixture / "torch" / "rank0.pt.trace.json.gz", target / "torch")
        record = {"name": "torch", "command": [], "state": "done", "files": ["torch/rank0.pt.trace.json.gz"]}
        (target / "run.json").write_text(
            json.dumps({"format": 1, "perfdoctor": "0.1.0", "command": [], "passes": [record]}), "utf-8"
        )
    (path / "selftest.json").write_text(json.dumps(RESULTS), "utf-8")
    return path


def added(results: Path, target: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        ROOT / "scripts" / "gpu_results.py",
        results,
        "--fixtures",
        target,
        "--page",
        target / "machines.md",
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def label(path: Path) -> dict[str, Any]:
    return tomllib.loads((path / "expected.toml").read_text("utf-8"))


def test_slow_and_fixed_become_fixtures_with_what_is_known_of_them(tmp_path: Path) -> None:
    runs = {"slow_input__torch": "cpu-slow-input", "slow_input_fixed__torch": "launch-bound"}
    done = added(results_folder(tmp_path / "results", **runs), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    slow, fixed = label(tmp_path / "h200-slow-input"), label(tmp_path / "h200-slow-input-fixed")
    assert (slow["first"], slow["found"], slow["silent"]) == ("input-wait", ["input-wait"], [])
    assert (fixed["first"], fixed["found"], fixed["silent"]) == ("", [], ["input-wait"])
    assert len(slow["story"].strip().splitlines()) == 3
    assert "the fixed version takes 0.125 of the slow one's step" in slow["story"]
    assert (tmp_path / "h200-slow-input" / "torch" / "run.json").is_file()


def test_the_page_gets_one_section_a_machine(tmp_path: Path) -> None:
    results = results_folder(tmp_path / "results")
    assert added(results, tmp_path).returncode == added(results, tmp_path).returncode == 0
    page = (tmp_path / "machines.md").read_text("utf-8")
    assert page.count("## 1 × NVIDIA H200") == 1
    assert "| torch.profiler | works | 10 steps \\| of 4 ms |" in page
    assert "| slow_input | input-wait | works | 20 % (10 to 50) | 12 % |" in page


def test_a_label_stays_true_where_the_diagnosis_says_otherwise(tmp_path: Path) -> None:
    results = results_folder(tmp_path / "results", slow_input__torch="launch-bound")
    done = added(results, tmp_path)
    assert done.returncode == 1
    assert "it is slow, but input-wait is not found" in done.stdout
    assert label(tmp_path / "h200-slow-input")["found"] == ["input-wait"]


def test_what_is_left_of_a_fixed_fault_is_shown_and_not_labelled(tmp_path: Path) -> None:
    results = results_folder(tmp_path / "results", slow_input_fixed__torch="cpu-slow-input")
    done = added(results, tmp_path)
    assert done.returncode == 1
    assert "it is fixed, but input-wait predicts to save" in done.stdout
    assert label(tmp_path / "h200-slow-input-fixed")["silent"] == []


def test_what_ran_on_the_processors_of_a_machine_with_too_few_gpus_is_named_so(tmp_path: Path) -> None:
    results = results_folder(tmp_path / "results", exposed_communication__torch="communication-exposed")
    added(results, tmp_path)
    assert "exposed_communication.py on a processor" in label(tmp_path / "cpu-exposed-communication")["story"]


def test_what_tells_of_a_machine_becomes_no_fixture(tmp_path: Path) -> None:
    results = results_folder(tmp_path / "results", slow_input__torch="cpu-slow-input")
    (results / "runs" / "slow_input-torch" / "agents").mkdir()
    (results / "runs" / "slow_input-torch" / "agents" / "torch-1.json").write_text(
        '{"trace": "/home/somebody/x"}', "utf-8"
    )
    done = added(results, tmp_path)
    assert done.returncode == 1
    assert "left out, it identifies a machine" in done.stdout
    assert not (tmp_path / "h200-slow-input").exists()


@pytest.mark.parametrize("again", [False, True])
def test_archives_are_read_and_what_is_there_is_replaced_only_when_asked(tmp_path: Path, again: bool) -> None:
    results = results_folder(tmp_path / "results", slow_input__torch="cpu-slow-input")
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed" / "results-1.tar.gz", "w:gz") as archive:
        archive.add(results, "results")
    (tmp_path / "h200-slow-input").mkdir()
    done = added(tmp_path / "packed", tmp_path, *(["--replace"] if again else []))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "h200-slow-input" / "expected.toml").exists() is again

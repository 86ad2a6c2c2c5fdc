"""What the documents show works as it stands: docstrings, docs/python.md, and types as a strict checker sees them."""

from __future__ import annotations

import doctest
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from api_examples import recordings, sections
from folders import ROOT
from tables import of_each

import perfdoctor
import perfdoctor.api
import perfdoctor.api.diagnosis

_EXTRAS = ("duckdb", "polars", "pyarrow")  # 350 MB: `make test-all` installs them


@pytest.fixture(autouse=True)
def in_a_folder_with_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recordings(tmp_path)
    monkeypatch.chdir(tmp_path)


@of_each("module", [perfdoctor.api, perfdoctor.api.diagnosis])
def test_examples_of_docstrings(module: object) -> None:
    done = doctest.testmod(module, extraglobs={"perfdoctor": perfdoctor})  # type: ignore[arg-type]
    assert done.attempted >= 2
    assert done.failed == 0


def _with_what_is_here(code: dict[str, str]) -> dict[str, str]:
    """Without the sections about packages that are not installed."""
    here = {name for name in _EXTRAS if importlib.util.find_spec(name)}
    return {
        name: text
        for name, text in code.items()
        if all(f"import {each}" not in text or each in here for each in _EXTRAS)
    }


def test_the_page_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    code = _with_what_is_here(sections("python.md"))
    known: dict[str, object] = {}
    for heading, text in code.items():
        exec(compile(text, f"docs/python.md: {heading}", "exec"), known)
    said = capsys.readouterr().out
    assert "input-wait: saves " in said
    assert "no change 0.0 (" in said
    idle_ms = [float(line.split()[2]) for line in said.splitlines() if line.startswith("idle for ")]
    split = perfdoctor.analyze("run").time[0]
    assert sum(idle_ms) == pytest.approx(split.idle_ns / 1e6, abs=0.005 * len(idle_ms) + 1e-9)
    assert "what_if 'input-wiat': there is no such rule\nDid you mean input-wait" in said
    assert Path("report.html").stat().st_size > 100_000


def test_a_program_that_uses_it_as_documented_passes_mypy_strict(tmp_path: Path) -> None:
    """The whole page as one program, and every public name."""
    program = tmp_path / "program.py"
    code = "\n".join(_with_what_is_here(sections("python.md")).values())
    names = ", ".join(sorted(perfdoctor.__all__))
    program.write_text(
        f"{code}\nfrom perfdoctor import {names}\nreveal_type(perfdoctor.analyze)\nreveal_type(finding.rule)\n", "utf-8"
    )
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = True\n[mypy-pandas.*,duckdb.*,pyarrow.*]\nignore_missing_imports = True\n", "utf-8"
    )
    cache = ROOT / ".mypy_cache" / "of-users"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(cache), "--config-file", "mypy.ini", "program.py"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "MYPYPATH": ""},
    )  # fmt: skip
    assert "Success: no issues found" in done.stdout, done.stdout
    assert "-> perfdoctor.api.diagnosis.Diagnosis" in done.stdout, done.stdout
    assert 'note: Revealed type is "str"' in done.stdout, done.stdout


def test_mypy_finds_what_is_wrong_in_such_a_program(tmp_path: Path) -> None:
    """Else the test above would say nothing: the package would be unknown to mypy, and everything Any."""
    program = tmp_path / "wrong.py"
    program.write_text(
        "import perfdoctor\nfrom perfdoctor import Verdict\n"
        'perfdoctor.analyze("run/", rule="x")\nperfdoctor.analyze("run/").finding\n',
        "utf-8",
    )
    cache = ROOT / ".mypy_cache" / "of-users"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), "--config-file", "", "wrong.py"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert 'Unexpected keyword argument "rule" for "analyze"' in done.stdout, done.stdout
    assert 'Module "perfdoctor" has no attribute "Verdict"' in done.stdout, done.stdout
    assert '"Diagnosis" has no attribute "finding"' in done.stdout, done.stdout

"""What is known of a command before it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from perfdoctor.recording.launch.program import inspect


def inspected(*words: str):
    return inspect(words, dict(os.environ))


@pytest.mark.parametrize(
    ("options", "barred"),
    [
        ([], ""), (["-u"], ""), (["-I"], "-I"), (["-S"], "-S"), (["-E"], "-E"), (["-uE"], "-E"), (["-X", "dev", "-I"], "-I"),
        (["-X", "E"], ""), (["-W", "ignore", "-u"], ""), (["-m", "E"], ""), (["-c", "S"], ""), (["-Wignore", "-S"], "-S"),
    ],
)  # fmt: skip
def test_options_that_shut_the_agent_out_are_seen(options: list[str], barred: str) -> None:
    assert inspected(sys.executable, *options, "train.py", "-S", "-I").shut_out == barred


@pytest.mark.parametrize(
    "words",
    [["env", "A=1", sys.executable], ["nice", "-n", "5", sys.executable], ["nohup", "env", "-i", sys.executable]],
)
def test_the_command_behind_wrappers_is_inspected(words: list[str]) -> None:
    assert inspected(*words, "train.py").interpreter == sys.executable


def test_a_script_of_python_names_its_python(tmp_path: Path) -> None:
    script = tmp_path / "torchrun"
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(0o755)
    found = inspected(str(script), "train.py")
    assert (found.interpreter, found.was_inspected) == (sys.executable, True)
    assert found.python == "{}.{}.{}".format(*sys.version_info[:3])


def test_a_script_through_env_uses_the_python_on_path(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    script = tmp_path / "tool"
    script.write_text("#!/usr/bin/env python3\n")
    script.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert inspect([str(script)], {**os.environ, "PATH": path}).interpreter == str(tmp_path / "python3")


def test_torch_is_found_without_importing_it(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "version.py").write_text("__version__ = '9.9+cu99'\ncuda = '99.1'\n")
    found = inspect([sys.executable, "train.py"], {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (found.torch, found.cuda) == ("9.9+cu99", "99.1")


def test_other_programs_are_no_python() -> None:
    found = inspected("sh", "train.sh")
    assert (found.interpreter, found.was_inspected, found.shut_out) == ("", False, "")


@pytest.mark.parametrize("tool", ["nsys", "ncu", "/opt/nvidia/bin/nsys"])
def test_a_profiler_is_recognised(tool: str) -> None:
    assert inspected(tool, "profile", "python").profiler in ("nsys", "ncu")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python", "a/train.py", "--x"], "train"), (["torchrun", "--nproc", "2", "b.py"], "b"),
        (["python", "-m", "pkg.train"], "pkg.train"), (["./run me.sh"], "run-me.sh"), (["make", "train"], "make"),
        (["bash", "-c", "DB_PASSWORD=Hunter2pw true train.py"], "train"), (["bash", "-c", "x --password Hunter2pw.py"], "bash"),
        (["--api-key", "Hunter2pw.py", "a.py"], "a"), (["x", "-m", "--pass=Hunter2pw.py"], "--pass-"),
        (["python", "-m", "token=Hunter2pw"], "token-"), (["DB_PASSWORD=Hunter2pw", "true"], "DB_PASSWORD-"),
    ],
)  # fmt: skip
def test_runs_are_named_after_their_script(words: list[str], name: str) -> None:
    assert inspected(*words).name == name

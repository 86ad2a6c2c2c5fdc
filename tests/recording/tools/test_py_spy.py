"""Which py-spy is used, and why none is; what it wrote, read again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from perfdoctor.recording.tools import py_spy


def program(folder: Path, body: str) -> Path:
    folder.mkdir(exist_ok=True)
    made = folder / "py-spy"
    made.write_text(f"#!/bin/sh\n{body}\n")
    made.chmod(0o755)
    return made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without py-spy, that lets everybody read other processes."""
    monkeypatch.delenv("PERFDOCTOR_PY_SPY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "python"))
    (tmp_path / "scope").write_text("0\n")
    monkeypatch.setattr(py_spy, "_YAMA", tmp_path / "scope")
    return tmp_path


def found() -> py_spy.PySpy:
    return py_spy.find.__wrapped__()


def test_the_one_beside_this_python_comes_before_the_one_on_the_path(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found().trouble == "py-spy is not installed"
    program(here / "path", "echo py-spy 0.3.1")
    assert (found().version, found().trouble) == ("0.3.1", "")
    beside = program(here / "python", "echo py-spy 0.4.0")
    assert (found().path, found().version) == (str(beside), "0.4.0")
    monkeypatch.setenv("PERFDOCTOR_PY_SPY", str(program(here / "named", "echo py-spy 0.5.2")))
    assert found().version == "0.5.2"


@pytest.mark.parametrize("body", ["exit 3", "exec /no/such/program"])
def test_one_that_does_not_start_is_said_with_its_path(here: Path, body: str) -> None:
    made = program(here / "path", body)
    assert found().trouble.startswith(f"{made} does not start: ")
    assert "pip install" in found().do


def test_elsewhere_than_on_linux_nothing_is_sampled(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(here / "path", "echo py-spy 0.4.0")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert found() == py_spy.PySpy(trouble="stacks are sampled on Linux only")


@pytest.mark.parametrize(
    ("scope", "user", "do"),
    [
        ("0", 1000, ""), ("1", 1000, ""), ("2", 0, ""), ("2", 1000, "ptrace_scope=1 as root"),
        ("3", 0, "at the next start"), ("3", 1000, "at the next start"), ("", 1000, ""), ("x", 1000, ""),
    ],
)  # fmt: skip
def test_what_the_system_forbids_is_known_before_it_is_tried(
    here: Path, monkeypatch: pytest.MonkeyPatch, scope: str, user: int, do: str
) -> None:
    program(here / "path", "echo py-spy 0.4.0")
    (here / "scope").write_text(scope)
    monkeypatch.setattr("os.geteuid", lambda: user)
    assert do in found().do
    assert bool(do) == bool(found().trouble) == bool(found().do)


def test_where_the_system_has_no_such_setting_it_is_tried(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(here / "path", "echo py-spy 0.4.0")
    monkeypatch.setattr(py_spy, "_YAMA", here / "none")
    assert found().trouble == ""


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("Error: Permission Denied (os error 13)\n", "--cap-add=SYS_PTRACE"),
        ("warning\nError: Failed to find python\n", "py-spy says: Error: Failed to find python"),
        ("sampling\n", ""),
    ],
)
def test_what_py_spy_writes_says_why_nothing_was_sampled(tmp_path: Path, log: str, said: str) -> None:
    (tmp_path / "log").write_text(log)
    why = py_spy.explain(tmp_path / "log")
    assert said in why
    assert bool(why) == bool(said)


def test_stacks_are_read_whatever_stands_between_them_and_whoever_has_no_name(tmp_path: Path) -> None:
    def event(kind: str, at: object, name: str) -> dict[str, object]:
        return {"ph": kind, "ts": at, "tid": 1, "name": name, "args": {"filename": "t.py", "line": 3}}

    begin = [event("B", 10, "main"), event("B", 10, "step")]
    rows = [*begin, "text", event("B", "soon", "lost"), event("X", 20, "mark"), event("E", 30, "step")]
    (tmp_path / "a.json").write_text(json.dumps([*rows, event("E", 30, "main"), event("E", 40, "nothing")]))
    found = list(py_spy.samples(tmp_path / "a.json"))
    assert [(each.start_ns, each.end_ns, [frame[0] for frame in each.stack]) for each in found] == [
        (10_000, 20_000, ["main", "step"]),
        (20_000, 30_000, ["main", "step"]),
    ]
    assert {(each.thread, each.thread_name) for each in found} == {(0, "")}

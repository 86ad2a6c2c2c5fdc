"""Trials take turns; where nobody listens, or another process does, a program goes on by itself."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from perfdoctor.recording.tools import torch_profiler

sys.path.insert(0, str(torch_profiler.AGENT))
from perfdoctor_agent import identity, turns

sys.path.remove(str(torch_profiler.AGENT))


def made(folder: Path, steps: int = 2) -> turns.Turns:
    for name in ("ends", "turns"):
        os.mkfifo(folder / name)
    return turns.Turns(None, {"folder": str(folder), "steps": steps})


@pytest.fixture(autouse=True)
def rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "rank", lambda _: (0, "test"))


def listening(folder: Path, answers: int) -> threading.Thread:
    """Whoever started the program: it lets it go on so often, and then closes its pipes."""

    def listen() -> None:
        with (folder / "ends").open("rb", 0) as ends, (folder / "turns").open("wb", 0) as go_on:
            for _ in range(answers):
                if ends.read(1):
                    go_on.write(b".")
            ends.read(1)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    return thread


def test_it_hands_over_at_each_turn_until_nobody_listens(tmp_path: Path) -> None:
    program, other = made(tmp_path), listening(tmp_path, answers=2)
    for count in range(1, 9):
        program.step_ended(count)
    other.join(10)
    assert [count for count, _ in program.handed] == [2, 4, 6]
    assert all(waited >= 0 for _, waited in program.handed)
    assert program.settings is None


def test_another_process_that_came_first_has_the_turns(tmp_path: Path) -> None:
    program = made(tmp_path)
    (tmp_path / "owner").touch()
    program.step_ended(2)
    assert program.settings is None
    assert program.handed == []


def test_another_rank_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "rank", lambda _: (1, "test"))
    program = made(tmp_path)
    program.step_ended(2)
    assert program.settings is None
    assert not (tmp_path / "owner").exists()


def test_a_process_that_it_forked_makes_no_turn(tmp_path: Path) -> None:
    program = made(tmp_path)
    program._owner = os.getpid() + 1
    program.step_ended(2)
    assert program.handed == []

"""How the trainings of the self-test are recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfdoctor.selftest import trials


def test_its_trainings_are_not_stored_in_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_PERFDOCTOR", ["echo"])
    ran = trials.Runner(tmp_path, os.environ).recorded("one", "torch", ["train"])
    own, _, command = ran.output.strip().partition(" -- ")
    assert "--no-save" in own.split()
    assert command == "train"

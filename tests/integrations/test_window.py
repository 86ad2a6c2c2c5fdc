"""Which callback marks the steps of a process, and which trainings does it record? Without the trainers."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from recording.inside.test_recording import begun
from warm_torch import ALL_AT_ONE

from perfdoctor.readers.open import read

pytestmark = [pytest.mark.torch, ALL_AT_ONE]

#: Callbacks of any trainer, without one: `train` trains with them as trainers do.
TRAINS = """
import contextlib, torch
from perfdoctor.integrations.window import WindowCallback
layers = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
class Trainer: pass
def callback(name, at_step):
    return WindowCallback(at_step=at_step, steps=5, output=name, report=False)
def train(steps, *callbacks, trainer=None, raises=False):
    trainer = trainer or Trainer()
    for each in callbacks:
        each._begin("out", trainer)
    for _ in range(steps):
        layers(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        for each in callbacks:
            each._step_ended()
    if raises:
        return trainer
    for each in callbacks:
        each._end()
"""


def trained(folder: Path, script: str) -> dict[str, tuple[int, int]]:
    """Recorded steps and updates in them, by the name of the run folder."""
    code, _, errors = begun(folder, TRAINS + textwrap.dedent(script)).finish()
    assert code == 0, errors
    found = {}
    for each in sorted(folder.glob("?")):
        (file,) = (each / "agents").iterdir()
        report = json.loads(file.read_text("utf-8"))
        names = list(read([each]).ranges.name) if report["steps_recorded"] else []
        updates = sum(name.startswith("Optimizer.step#") for name in names)
        found[each.name] = (report["steps_recorded"], updates)
    return found


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("train(100, callback('a', 10), callback('b', 60))", {"a": (5, 5)}),
        ("a = callback('a', 20)\nfor _ in range(4): train(12, a)", {"a": (5, 5)}),
        ("for name in 'ab': train(12, callback(name, 20))\ntrain(40, callback('c', 20))", {"a": (0, 0), "b": (0, 0), "c": (5, 5)}),
        ("train(5, callback('a', 10), raises=True)\ntrain(40, callback('b', 10))", {"a": (0, 0), "b": (5, 5)}),
        ("failed, a = Trainer(), callback('a', 10)\ntrain(5, a, trainer=failed, raises=True)\ntrain(40, callback('b', 10))", {"a": (0, 0), "b": (5, 5)}),
    ],
    ids=["two callbacks", "short trainings", "short trainings with callbacks of their own", "an exception", "an exception, kept"],
)  # fmt: skip
def test_one_callback_marks_and_records_its_own_trainings(
    tmp_path: Path, script: str, found: dict[str, tuple[int, int]]
) -> None:
    assert trained(tmp_path, script) == found

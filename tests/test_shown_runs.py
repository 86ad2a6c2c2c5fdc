"""What docs/recording.md shows of a run is what a run prints, but for its numbers: they are of another machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from folders import ROOT
from torch_python import torch_python
from warm_torch import ALL_AT_ONE

PAGE = (ROOT / "docs" / "recording.md").read_text("utf-8")
#: In their order there: the beginning of a run, a line of one's own, and a whole run.
BEGINNING, OWN_LINE, WHOLE_RUN = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

#: It evaluates every fifth step for 0.2 s.
TRAINING = """\
import time, torch
model = torch.nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def evaluate():
    model.eval()
    until = time.perf_counter() + 0.2
    while time.perf_counter() < until:
        model(torch.ones(8, 32))
    model.train()
for number in range(120):
    time.sleep(0.02)
    model(torch.ones(8, 32)).mean().backward()
    optimizer.step()
    if number % 5 == 4:
        evaluate()
"""

pytestmark = [pytest.mark.torch, ALL_AT_ONE]


def printed(folder: Path, program: str) -> str:
    """What `perfdoctor run` of the program prints where neither nsys nor ncu is installed."""
    environment = {name: text for name, text in os.environ.items() if name not in ("PERFDOCTOR_NSYS", "PERFDOCTOR_NCU")}
    done = subprocess.run(
        [sys.executable, "-m", "perfdoctor", "run", "--all", "--no-html", "--", torch_python(), program],
        capture_output=True, text=True, check=True, cwd=folder, timeout=300,
        env={**environment, "PATH": "/usr/bin:/bin", "COLUMNS": "200", "PERFDOCTOR_HISTORY": "off", "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    return done.stderr + done.stdout


def shape(text: str) -> list[str]:
    """Its lines without numbers and their units, degrees of confidence, the moment, and where lines are broken."""
    without = re.sub(r"\d+-\d+-", "", text)
    without = re.sub(r"<?[\d.,]*\d( ?(ms|µs|s|%|×)(?=\W))?(\+cpu)?", "N", without)
    without = re.sub(r"\b(high|medium|low) confidence", "C", without)
    return [" ".join(line.split()) for line in without.splitlines() if line.strip()]


def test_the_beginning_of_a_run_and_a_line_of_the_users_own_are_as_shown(tmp_path: Path) -> None:
    for name in ("slow_input.py", "training.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    lines = shape(printed(tmp_path, "slow_input.py"))
    assert [each for each in lines if each.startswith("perfdoctor:")][: len(shape(BEGINNING))] == shape(BEGINNING)
    first, *rest = shape(OWN_LINE)
    at = lines.index(first)
    assert [each for each in lines[at : at + 30] if each in rest] == rest
    assert "slow_input.py:25" in OWN_LINE, "a line that a change of the example moves"
    assert (ROOT / "examples" / "slow_input.py").read_text("utf-8").splitlines()[24].strip() in OWN_LINE


def test_a_whole_run_is_as_shown(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING, "utf-8")
    lines = shape(printed(tmp_path, "train.py"))
    shown, title, saving, *summary = shape(WHOLE_RUN)
    whole = next(line for line in lines if line.startswith("Whole run, N:"))
    parts, ours = ({each.strip(" .") for each in text.partition(":")[2].split(",")} for text in (shown, whole))
    assert parts <= ours
    at = lines.index(title)
    assert lines[at + 1].replace("N–N", "N") == saving.replace("N–N", "N")
    assert " ".join(lines[at + 2 : at + 5]).startswith(" ".join(summary))

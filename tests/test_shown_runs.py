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
    shutil.copy(ROOT / "examples" / "training.py", tmp_path)
    example = (ROOT / "examples" / "slow_input.py").read_text("utf-8")
    # In its 30 steps a dozen samples meet the dataset: on a busy machine too few to name a line.
    (tmp_path / "slow_input.py").write_text(example.replace("Training(steps=30)", "Training(steps=300)"), "utf-8")
    text = printed(tmp_path, "slow_input.py")
    lines = shape(text)
    assert [each for each in lines if each.startswith("perfdoctor:")][: len(shape(BEGINNING))] == shape(BEGINNING)
    source = example.splitlines()
    for shown in (text, OWN_LINE):  # there the other line of `__getitem__` may be met more often
        found = re.search(r"^ +At: slow_input.py:(\d+) in __getitem__ .*\n +(.*)$", shown, re.MULTILINE)
        assert found
        assert source[int(found[1]) - 1].strip() == found[2]
    title, place, _ = shape(OWN_LINE)
    assert place in lines[lines.index(title) :], "of all those in that time"


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

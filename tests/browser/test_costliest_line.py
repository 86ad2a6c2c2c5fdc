"""Is the costliest line of user code found in two clicks? With a real training, recorded here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from folders import ROOT
from torch_python import torch_python


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded") / "run"
    perfdoctor = [sys.executable, "-c", "from perfdoctor.cli.main import main; main()", "run", "--stacks", "--quiet"]
    command = [torch_python(), str(ROOT / "examples" / "host_syncs.py")]
    options = ["--steps", "4", "--passes", "torch", "-o", str(folder)]
    # Of one thread: on a busy machine several wait for each other, the longer the smaller the op, as norms are.
    given = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*perfdoctor, *options, "--", *command]
    subprocess.run(command, check=True, capture_output=True, timeout=300, cwd=ROOT, env=given)
    return (folder / "report.html").read_text("utf-8")


@pytest.mark.torch
def test_two_clicks_lead_to_the_functions_that_take_longest(recorded, open_page):
    """Without a GPU nothing waits for it: the forward pass and the loop itself take longest."""
    page = open_page(recorded)
    page.click("nav a[href='#ops']")
    rows = page.locator("#ops [data-table='lines'] tbody tr")
    rows.first.wait_for()
    source = (ROOT / "examples" / "host_syncs.py").read_text("utf-8").splitlines()
    begins = next(number for number, line in enumerate(source, 1) if "def forward" in line)
    first = [rows.nth(place).inner_text() for place in range(2)]
    assert all(text.startswith("host_syncs.py(") for text in first)
    assert any(f"host_syncs.py({begins}): forward" in text for text in first), first

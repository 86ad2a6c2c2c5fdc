"""Does what docs/in-your-code.md shows record what it says? Each example runs as it stands, in a training of some layers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from folders import ROOT
from recording.inside.test_recording import MODEL, run
from warm_torch import ALL_AT_ONE

pytestmark = [pytest.mark.torch, ALL_AT_ONE]

PAGE = (ROOT / "docs" / "in-your-code.md").read_text("utf-8")
OF_TORCH = PAGE.partition("\n## In a trainer")[0]
EXAMPLES = re.findall(r"```python\n(.*?)```", OF_TORCH, re.DOTALL)
AROUND = """
model.train(), torch.set_num_threads(1)
loader = torch.utils.data.DataLoader(torch.ones(400, 32), batch_size=8)
def train_step(*given):
    optimizer.zero_grad()
    model(given[-1]).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_records_what_it_says(tmp_path: Path, example: str) -> None:
    called = "train(model, loader)\n" if "def train(" in example else ""
    ended = run(tmp_path, f"{MODEL}{AROUND}{example}{called}")
    assert (ended.code, ended.errors.count("perfdoctor: nothing")) == (0, 0), ended.errors
    runs = list((tmp_path / "perfdoctor-runs").glob("*"))
    assert len(runs) == ("perfdoctor.record(" in example)
    for folder in runs:
        ended.folder = folder
        assert ended.steps() == 10
        assert (folder / "report.html").is_file()

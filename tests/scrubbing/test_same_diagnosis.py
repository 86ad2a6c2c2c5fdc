"""What is diagnosed of a copy is what is diagnosed of the recording: every number, and every word but the names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from differences import differences
from folders import FIXTURES, public_files
from recorded import Recording, of_recordings
from scrubbing import planted

from perfdoctor.errors import PerfdoctorError
from perfdoctor.report import json_report
from perfdoctor.scrubbing.copies import scrubbed
from perfdoctor.system.progress import silent

#: Of each tool: on a processor, on a GPU, several ranks, graphs, stacks of Python.
FEW = [
    FIXTURES / name
    for name in (
        "cpu-slow-input-nsys/nsys", "h100-80gb-hbm3-slow-input-nsys/nsys", "communication-exposed/nsys", "cuda-graphs/nsys",
        "cpu-slow-input/torch", "straggler/torch", "h100-gpt/eager-stacks.json.gz",
    )
]  # fmt: skip
ALL = sorted(each for form in ("nsys", "torch") for each in FIXTURES.glob(f"*/{form}") if each not in FEW)
PUBLIC = [
    file
    for pattern in ("kineto/*.json.gz", "nsys/*.sqlite", "memory/*.pickle", "nccl/*.log", "wild/[kmn]-*")
    for file in public_files(pattern)
]
STAND_IN = re.compile(r"\b(?:host|user|project|python|folder|path|home|address|gpu)-\d|torchinductor_user|\*\*\*")


def said(path: Path):
    """The diagnosis, or what is to be done instead of it: a new one, as tests that share one look at it in their own way."""
    try:
        return json.loads(json_report.render(Recording(path).diagnosis))
    except PerfdoctorError as error:
        return {"refused": error.do}


def differing(path: Path, tmp_path: Path) -> list[str]:
    copy = scrubbed(path, tmp_path / path.name, silent)
    return [
        f"{each.key}: {each.old} → {each.new}"
        for each in differences(said(path), said(copy.written))
        if not (isinstance(each.new, str | list) and STAND_IN.search(str(each.new)))
    ]


@of_recordings(FEW)
def test_the_diagnosis_of_a_copy_is_the_same(path, tmp_path):
    assert differing(path, tmp_path) == []


@pytest.mark.thorough
@of_recordings(ALL)
def test_the_diagnosis_of_a_copy_of_any_fixture_is_the_same(path, tmp_path):
    assert differing(path, tmp_path) == []


@pytest.mark.recordings
@pytest.mark.thorough
@of_recordings(PUBLIC)
def test_the_diagnosis_of_a_copy_of_a_public_recording_is_the_same(path, tmp_path):
    assert differing(path, tmp_path) == []


def test_the_diagnosis_of_a_copy_of_a_run_is_the_same_but_for_its_project(tmp_path):
    (found,) = differing(planted.run_folder(tmp_path / "run"), tmp_path / "copies")
    assert found.startswith("run.project: ")
    assert found.endswith(" → None")

"""What the script that measures a machine may contain: it runs in the user's Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from guest_source import assert_python_3_8_loads, packages
from measuring_modules import FOLDER

FILES = sorted(FOLDER.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_parses_in_python_3_8_and_annotations_are_not_evaluated(file: Path) -> None:
    assert_python_3_8_loads(file)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_imports_only_torch_and_the_standard_library(file: Path) -> None:
    assert packages(file) <= {"perfdoctor_measuring", "torch", "__future__"} | set(sys.stdlib_module_names)

"""Which Python has torch? perfdoctor's own needs none, so that its tests ask for one: PERFDOCTOR_TORCH_PYTHON."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest


def torch_python() -> str:
    """Its path; skips the test without any, fails it where PERFDOCTOR_REQUIRE_TORCH is set."""
    given = os.environ.get("PERFDOCTOR_TORCH_PYTHON")
    if given:
        return given
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    if os.environ.get("PERFDOCTOR_REQUIRE_TORCH"):
        pytest.fail("no Python with torch: set PERFDOCTOR_TORCH_PYTHON")
    pytest.skip("no Python with torch: set PERFDOCTOR_TORCH_PYTHON")

"""NVIDIA's real programs, which need no GPU for what the tests do with them: where are they?"""

from __future__ import annotations

import os
import shutil

import pytest
from folders import ROOT


def installed(tool: str) -> str:
    """The path of `nsys` or `ncu`; skips the test without any, fails it where PERFDOCTOR_REQUIRE_NSYS or _NCU is set."""
    local = ROOT / ".cache" / tool / "bin" / tool
    variable = f"PERFDOCTOR_{tool.upper()}"
    found = os.environ.get(variable) or shutil.which(tool) or (str(local) if local.exists() else None)
    if found is not None:
        return found
    missing = f"no {tool}: run scripts/install-{tool}"
    if os.environ.get(f"PERFDOCTOR_REQUIRE_{tool.upper()}"):
        pytest.fail(missing)
    pytest.skip(missing)

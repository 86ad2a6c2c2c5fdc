"""Where do the project's own files and the public recordings lie?"""

from __future__ import annotations

from pathlib import Path

import pytest
from labels import RECORDINGS

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
EXAMPLES = ROOT / "examples"
NOT_HERE = "the public recordings are not here: set PERFDOCTOR_RECORDINGS to their folder"


def public(name: str = ".") -> Path:
    """Path of this public recording, or of their folder. The test is skipped where they are not on this machine.

    Tests that read them are marked `recordings`, so that those can be run alone.
    """
    if not (RECORDINGS / name).exists():
        pytest.skip(NOT_HERE)
    return RECORDINGS / name


def public_files(pattern: str) -> list[Path]:
    """Public recordings by name, one test each: none where they are not on this machine."""
    return sorted(RECORDINGS.glob(pattern))

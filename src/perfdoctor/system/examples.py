"""Where do the examples lie, which the self-test runs?"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def examples_folder() -> Path:
    """Inside an installed wheel, else beside `src/` in a checkout, editable or not."""
    inside = Path(str(files("perfdoctor") / "examples"))
    return inside if inside.is_dir() else Path(__file__).parents[3] / "examples"

"""Where do the rules and the examples lie, which are text for people and stand beside `src/`?"""

from __future__ import annotations

from pathlib import Path


def shipped_folder(name: str) -> Path:
    """Inside an installed wheel, else beside `src/` in a checkout, editable or not."""
    inside = Path(__file__).parents[1] / name
    return inside if inside.is_dir() else Path(__file__).parents[3] / name

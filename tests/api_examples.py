"""The folders that examples of the documents speak of, and the blocks of code in a document."""

from __future__ import annotations

import re
from pathlib import Path

from folders import FIXTURES, ROOT

RECORDING = FIXTURES / "input-bound-single-process" / "torch"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^(?=## )", re.MULTILINE)


def recordings(folder: Path) -> None:
    """`run/`, `before/`, `after/` and several below `runs/`, as the examples name them."""
    (folder / "runs").mkdir()
    for name in ("run", "before", "after", "runs/1", "runs/2"):
        (folder / name).symlink_to(RECORDING)


def sections(page: str) -> dict[str, str]:
    """The code of each section of a page of docs/, by its heading; "" is what stands above the first."""
    found = {}
    for section in _SECTION.split((ROOT / "docs" / page).read_text("utf-8")):
        heading = section.splitlines()[0].removeprefix("## ") if section.startswith("## ") else ""
        found[heading] = "\n".join(_BLOCK.findall(section))
    return {heading: code for heading, code in found.items() if code}

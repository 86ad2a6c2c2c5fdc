"""Which categories of rules are there, and which pages of numbers has a report?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from perfdoctor.system.toml_tables import shipped_table


class Category(NamedTuple):
    """A category of rules, as categories.toml has it."""

    title: str
    about: str


_DECLARED = shipped_table(Path(__file__).with_suffix(".toml"))
CATEGORIES: Mapping[str, Category] = {name: Category(**each) for name, each in _DECLARED["categories"].items()}
PAGES: Mapping[str, str] = _DECLARED["pages"]

"""Which documents of ours can a client read? Each rule as it is written, and pages of the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from perfdoctor.system.toml_tables import shipped_folder
from perfdoctor.vocabulary.rulebook import load_rules, rule_files

#: Pages that say what a number means, or how something is done with it. Installed copies have these and no others.
PAGES = (
    "compare", "faq", "glossary", "history", "json", "own-rules", "recording", "rules", "savings", "scale", "tables",
    "what-if",
)  # fmt: skip


class Document(Struct, frozen=True):
    name: str
    title: str
    mime_type: str
    path: Path


@cache
def documents() -> Mapping[str, Document]:
    """By address: `perfdoctor://docs/tables`, `perfdoctor://rules/input-wait`."""
    rules = load_rules()
    pages = [shipped_folder("docs") / f"{page}.md" for page in PAGES]
    found = [
        *(Document(f"docs/{path.stem}", _heading(path), "text/markdown", path) for path in pages),
        *(Document(f"rules/{path.stem}", rules[path.stem].title, "application/toml", path) for path in rule_files()),
    ]
    return {f"perfdoctor://{each.name}": each for each in found}


def _heading(page: Path) -> str:
    """The first heading of a page."""
    with page.open(encoding="utf-8") as lines:
        return next((line.lstrip("# ").strip() for line in lines if line.startswith("# ")), page.stem)

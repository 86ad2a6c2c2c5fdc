"""Write the texts that follow from the rules: the categories in README.md, docs/rules.md. `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from generated_pages import CATEGORIES, rules_page

from perfdoctor.vocabulary.rulebook import load_rules

_ROOT = Path(__file__).parents[1]
_BEGIN, _END = "<!-- rules: begin, `make docs` writes this -->", "<!-- rules: end -->"


def categories_table() -> str:
    """One line a category: how many rules it has, and what they are about."""
    rules = list(load_rules().values())
    rows = []
    for category, (title, about) in CATEGORIES.items():
        count = sum(rule.category == category for rule in rules)
        rows.append(f"| [{title}](docs/rules.md#{category}) | {count} | {about} |")
    heading = f"{len(rules)} rules, [each in one line](docs/rules.md):"
    return "\n".join([heading, "", "| category | rules | examples |", "| --- | ---: | --- |", *rows])


def with_categories(readme: str) -> str:
    """The README with its table as the rules are now."""
    before, rest = readme.split(_BEGIN)
    _, after = rest.split(_END)
    return f"{before}{_BEGIN}\n{categories_table()}\n{_END}{after}"


def generated() -> Iterator[tuple[Path, str]]:
    """Each file, and what it should say."""
    readme = _ROOT / "README.md"
    yield readme, with_categories(readme.read_text("utf-8"))
    yield _ROOT / "docs" / "rules.md", rules_page(sorted(load_rules().values(), key=lambda rule: rule.id))


def main() -> int:
    stale = [(path, text) for path, text in generated() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv:
        for path, _ in stale:
            print(f"{path.relative_to(_ROOT)} is out of date: run `make docs`.")
        return int(bool(stale))
    for path, text in stale:
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

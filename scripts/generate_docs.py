"""Write the parts of README.md that follow from the code: the table of rules. `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from perfdoctor.vocabulary.rulebook import load_rules

_ROOT = Path(__file__).parents[1]
_BEGIN, _END = "<!-- rules: begin, `make docs` writes this -->", "<!-- rules: end -->"


def rules_table() -> str:
    """One line a rule, by category."""
    rules = sorted(load_rules().values(), key=lambda rule: (rule.category, rule.id))
    lines = [f"| `{rule.id}` | {rule.category} | {rule.title} |" for rule in rules]
    return "\n".join(["| rule | about | finds |", "| --- | --- | --- |", *lines])


def with_table(readme: str) -> str:
    """The README with its table as the rules are now."""
    before, rest = readme.split(_BEGIN)
    _, after = rest.split(_END)
    return f"{before}{_BEGIN}\n{rules_table()}\n{_END}{after}"


def main() -> int:
    readme = _ROOT / "README.md"
    old = readme.read_text("utf-8")
    new = with_table(old)
    if "--check" in sys.argv:
        print("README.md is up to date." if new == old else "README.md is out of date: run `make docs`.")
        return int(new != old)
    readme.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

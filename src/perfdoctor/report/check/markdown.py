"""A check as GitHub Markdown: for a comment on a pull request, and for the summary of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfdoctor.report.check import words
from perfdoctor.report.comparison import markdown
from perfdoctor.report.markdown import escaped

if TYPE_CHECKING:
    from perfdoctor.comparison.check import Check

#: It is not shown; a script finds by it the comment that it wrote before.
MARKER = "<!-- perfdoctor check -->"
_SIGNS = {"error": "❌", "warning": "⚠️", "notice": "✅"}


def render(check: Check) -> str:
    first, *more = words.heading(check)
    said = [f"{_SIGNS[words.level(check)]} **{escaped(first)}**", *(escaped(line) for line in more)]
    return f"{MARKER}\n{markdown.render(check.comparison, said)}"

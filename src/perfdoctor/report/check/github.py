"""A check for GitHub: as Markdown, and as annotations of Actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfdoctor.report.annotations import command
from perfdoctor.report.check import words
from perfdoctor.report.comparison import markdown
from perfdoctor.report.markdown import escaped

if TYPE_CHECKING:
    from perfdoctor.comparison.check import Check

#: It is not shown; a script finds by it the comment that it wrote before.
MARKER = "<!-- perfdoctor check -->"
_SIGNS = {"error": "❌", "warning": "⚠️", "notice": "✅"}
#: The most of a summary that one step may write: 1 MiB.
MOST_SUMMARY_BYTES = 1024 * 1024
#: Besides the verdict.
_MOST = 9


def comment(check: Check) -> str:
    """Markdown for a comment on a pull request, and for the summary of a step."""
    first, *more = words.heading(check)
    said = [f"{_SIGNS[words.level(check)]} **{escaped(first)}**", *(escaped(line) for line in more)]
    return f"{MARKER}\n{markdown.render(check.comparison, said)}"


def render(check: Check) -> str:
    """The annotations."""
    level = words.level(check)
    causes = [f"Mostly: {', '.join(found)}."] if (found := list(words.causes(check))) else []
    lines = [words.verdict(check), words.runs_needed(check), *causes, words.baseline(check)]
    said = "\n".join(line for line in lines if line)
    commands = [command(level, f"perfdoctor: {words.title(check)}", said, words.place_of(check))]
    # The verdict is the error; a new finding is where to look.
    commands += [
        command("warning", "perfdoctor: new finding", words.finding(each), words.place_of(check, each))
        for each in words.new_findings(check)[:_MOST]
    ]
    return "".join(f"{line}\n" for line in commands)


def summary(text: str, written_bytes: int) -> str:
    """As much of the Markdown as fits behind the bytes that the step wrote before."""
    room = max(MOST_SUMMARY_BYTES - written_bytes - 1, 0)
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= room:
        return text
    kept = encoded[:room].decode("utf-8", "ignore")
    return kept[: kept.rfind("\n") + 1]

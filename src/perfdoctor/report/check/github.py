"""A check for GitHub: as Markdown, and as annotations of Actions.

Annotations are workflow commands, one a line, which the runner reads from the output.
https://docs.github.com/actions/reference/workflow-commands-for-github-actions: of a step, ten annotations of each level
are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perfdoctor.report.check import words
from perfdoctor.report.comparison import markdown
from perfdoctor.report.markdown import escaped
from perfdoctor.report.words.foreign_text import clean_block

if TYPE_CHECKING:
    from perfdoctor.comparison.check import Check

#: It is not shown; a script finds by it the comment that it wrote before.
MARKER = "<!-- perfdoctor check -->"
_SIGNS = {"error": "❌", "warning": "⚠️", "notice": "✅"}
#: The most of a summary that one step may write: 1 MiB.
MOST_SUMMARY_BYTES = 1024 * 1024
#: Besides the verdict.
_MOST = 9
#: As the runner undoes it: the percent sign first.
_OF_DATA = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_OF_PROPERTIES = (*_OF_DATA, (":", "%3A"), (",", "%2C"))


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
    commands = [_command(level, f"perfdoctor: {words.title(check)}", said, words.place_of(check))]
    # The verdict is the error; a new finding is where to look.
    commands += [
        _command("warning", "perfdoctor: new finding", words.finding(each), words.place_of(check, each))
        for each in words.new_findings(check)[:_MOST]
    ]
    return "".join(f"{command}\n" for command in commands)


def summary(text: str, written_bytes: int) -> str:
    """As much of the Markdown as fits behind the bytes that the step wrote before."""
    room = max(MOST_SUMMARY_BYTES - written_bytes - 1, 0)
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= room:
        return text
    kept = encoded[:room].decode("utf-8", "ignore")
    return kept[: kept.rfind("\n") + 1]


def _command(level: words.Level, title: str, message: str, place: tuple[str, int] | None) -> str:
    properties: Mapping[str, str] = {"title": title}
    if place is not None:
        properties = {"file": place[0], "line": str(place[1]), **properties}
    named = ",".join(f"{name}={_escaped(value, _OF_PROPERTIES)}" for name, value in properties.items())
    return f"::{level} {named}::{_escaped(message, _OF_DATA)}"


def _escaped(text: str, by: tuple[tuple[str, str], ...]) -> str:
    text = clean_block(text)
    for character, code in by:
        text = text.replace(character, code)
    return text

"""A diagnosis as annotations of GitHub Actions: workflow commands, one a line, which the runner reads from the output.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions: of a step, ten annotations of each level
are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Literal

from perfdoctor.records.findings import with_symptoms
from perfdoctor.report.sarif import said
from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean, clean_block, clean_name

if TYPE_CHECKING:
    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.report.sarif import Place

Level = Literal["error", "warning", "notice"]
#: Of each level.
_MOST_SHOWN = 10
#: As the runner undoes it: the percent sign first.
_OF_DATA = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_OF_PROPERTIES = (*_OF_DATA, (":", "%3A"), (",", "%2C"))


def render(diagnosis: Diagnosis, places: Mapping[str, Place]) -> str:
    """The verdict, and the findings whose fixes save most. `places`: as `sarif.render` has it."""
    recorded = " · ".join(wording.recorded(diagnosis))
    lines = [command("notice", "perfdoctor", f"{wording.verdict(diagnosis)}\n{recorded}", places.get(""))]
    lines += [
        command(
            "warning", f"perfdoctor: {clean(each.title)} ({clean_name(each.rule)})", said(diagnosis, each),
            places.get(each.rule) or places.get(""),
        )
        for each in islice((each for each in with_symptoms(diagnosis.findings) if each.saved.likely), _MOST_SHOWN)
    ]  # fmt: skip
    return "".join(f"{line}\n" for line in lines)


def command(level: Level, title: str, message: str, place: Place | None) -> str:
    """The workflow command of one annotation."""
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

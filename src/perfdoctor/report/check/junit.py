"""A check as JUnit XML, as Jenkins and GitLab read it: one test, whose time is the mean step.

The form is that of junit-10.xsd of Jenkins' xUnit plugin. Text is escaped here: `xml` would be loaded for that alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfdoctor.patterns import regex
from perfdoctor.report.check import words
from perfdoctor.report.comparison.words import unit
from perfdoctor.report.words.foreign_text import clean, clean_name

if TYPE_CHECKING:
    from perfdoctor.comparison.check import Check

#: What no XML 1.0 document may hold, not even as a reference.
_NO_XML = regex("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\t": "&#9;", "\r": "&#13;"}
_SECOND_NS = 1_000_000_000
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="perfdoctor check">\n'


def render(check: Check) -> str:
    seconds = f"{check.comparison.judged.after.mean_ns / _SECOND_NS:.9f}"
    skipped = check.decision == "too noisy"
    counts = f'tests="1" failures="{int(check.failed)}" errors="0" skipped="{int(skipped)}" time="{seconds}"'
    lines = (*words.heading(check), *words.causes(check), *map(clean, check.comparison.notes))
    name = f"mean {unit(check.comparison)} against {clean_name(check.baseline)}"
    return "".join([
        HEAD,
        f'  <testsuite name="perfdoctor check" {counts}>\n',
        "    <properties>\n", *_properties(check), "    </properties>\n",
        f'    <testcase classname="perfdoctor.check" name={_attribute(name)} time="{seconds}">\n',
        *_outcome(check),
        f"      <system-out>{_text(chr(10).join(lines))}</system-out>\n",
        "    </testcase>\n  </testsuite>\n</testsuites>\n",
    ])  # fmt: skip


def _outcome(check: Check) -> Iterator[str]:
    message = _attribute(words.verdict(check))
    if check.failed:
        said = "\n".join([*words.causes(check), *map(words.finding, words.new_findings(check))])
        yield f'      <failure type="regression" message={message}>{_text(said)}</failure>\n'
    elif check.decision == "too noisy":
        yield f"      <skipped message={message}/>\n"


def _properties(check: Check) -> Iterator[str]:
    judged = check.comparison.judged
    numbers = {"change": judged.change, "low": judged.low, "high": judged.high, "limit": check.limit}
    texts = {
        "decision": check.decision, "baseline": clean_name(check.baseline),
        **{name: f"{number:.6f}" for name, number in numbers.items() if number is not None},
    }  # fmt: skip
    for name, text in texts.items():
        yield f'      <property name="{name}" value={_attribute(text)}/>\n'


def _attribute(text: str) -> str:
    return f'"{_text(text)}"'


def _text(text: str) -> str:
    whole = _NO_XML.sub("\ufffd", text)
    return "".join(_ENTITIES.get(character, character) for character in whole)

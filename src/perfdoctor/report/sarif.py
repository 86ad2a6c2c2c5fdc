"""A diagnosis as SARIF 2.1.0 (OASIS, 2023), for code scanning: what was found, and where in the checkout.

A finding is a result, and a warning where fixing it saves time. The same pieces make the log of a check
(`check/sarif.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from shlex import quote as quote_word
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from perfdoctor import __version__
from perfdoctor.records.findings import with_symptoms
from perfdoctor.report.json_report import as_text
from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean, clean_name

if TYPE_CHECKING:
    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.findings import Advice

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
#: Services show about as much of a text.
_LONGEST = 1_000
#: File, relative to the root of the checkout, and line, from 1.
Place = tuple[str, int]


def render(diagnosis: Diagnosis, places: Mapping[str, Place]) -> str:
    """The log. `places`: where findings are, by their rules; "": where the program is."""
    findings = list(with_symptoms(diagnosis.findings))
    results = [
        result(
            each.rule, "warning" if each.saved.likely else "note", said(diagnosis, each),
            places.get(each.rule) or places.get(""), each.rule,
        )
        for each in findings
    ]  # fmt: skip
    rules = list({each.rule: rule(each.rule, each.title, each.why, each.origin) for each in findings}.values())
    message = {"level": "note", "message": {"text": escaped(wording.verdict(diagnosis))}}
    invocation = {"executionSuccessful": True, "toolExecutionNotifications": [message]}
    return log("perfdoctor/analyze/", rules, invocation, results)


def said(diagnosis: Diagnosis, advice: Advice) -> str:
    """The finding in a line: what it costs, and what fixing it saves."""
    saving = wording.saving(diagnosis, advice)
    return f"{clean(advice.summary, _LONGEST)} {saving[0].upper()}{saving[1:]}."


def log(
    name: str, rules: Sequence[Mapping[str, Any]], invocation: Mapping[str, Any], results: Sequence[Mapping[str, Any]]
) -> str:
    """The text of a log with one run. `name`: of its kind, by which a service holds it against the one before."""
    run = {
        "tool": {"driver": {"name": "perfdoctor", "version": __version__, "rules": rules}},
        "automationDetails": {"id": name},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results,
    }
    return as_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def rule(name: str, title: str, full: str, origin: str = "") -> dict[str, Any]:
    """`origin`: where a rule lies that does not come with perfdoctor."""
    explain = f"perfdoctor explain {clean_name(name)}" + (f" --rules {quote_word(clean(origin))}" if origin else "")
    return {
        "id": clean_name(name), "shortDescription": {"text": clean(title)},
        "fullDescription": {"text": clean(full, _LONGEST)}, "help": {"text": explain},
        **({"properties": {"origin": clean(origin)}} if origin else {}),
    }  # fmt: skip


def result(name: str, level: str, text: str, place: Place | None, about: str) -> dict[str, Any]:
    """What the rule of this name found. `about`: what makes it the same one in the next log."""
    key = hashlib.sha256(f"{name}\0{about}".encode("utf-8", "replace")).hexdigest()
    found: dict[str, Any] = {
        "ruleId": clean_name(name), "level": level, "message": {"text": escaped(text)},
        "partialFingerprints": {"perfdoctor/v1": key[:32]},
    }  # fmt: skip
    if place is not None:
        where = {"artifactLocation": {"uri": quote(place[0])}, "region": {"startLine": place[1]}}
        found["locations"] = [{"physicalLocation": where}]
    return found


def escaped(text: str) -> str:
    """No placeholder and no link (3.11.5 and 3.11.6 of the standard): the text is partly that of a recording."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")

"""A check as SARIF 2.1.0 (OASIS, 2023), for code scanning: what is wrong, and where in the checkout.

A check that finds nothing wrong has no results: a code scanning service shows each one as an alert, whatever its kind.
What is too noisy to say is no fault of the code: it is a notification of the run.
"""

from __future__ import annotations

import hashlib
from shlex import quote as quote_word
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from perfdoctor import __version__
from perfdoctor.report.check import words
from perfdoctor.report.json_report import as_text
from perfdoctor.report.words.foreign_text import clean, clean_name

if TYPE_CHECKING:
    from perfdoctor.comparison.check import Check

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
STEP_TIME = "step-time"
_LEVELS = {"error": "error", "warning": "warning", "notice": "note"}
_FULL = "The mean step is compared with that of a stored baseline; its 95 % interval decides."


def render(check: Check) -> str:
    findings = words.new_findings(check)
    results = [_verdict(check)] if check.decision == "regression" else []
    for each in findings:
        place = words.place_of(check, each) or words.place_of(check)
        results.append(_result(each.rule, "warning", words.finding(each), place, each.line or check.baseline))
    rules = [_rule(STEP_TIME, "Step time against the baseline", _FULL)]
    rules += [_rule(each.rule, each.title, each.title, each.origin) for each in findings]
    invocation: dict[str, Any] = {"executionSuccessful": True, "exitCode": 3 if check.failed else 0}
    if check.decision == "too noisy":
        message = {"text": _message(" ".join(words.heading(check)))}
        invocation["toolExecutionNotifications"] = [{"level": "warning", "message": message}]
    run = {
        "tool": {"driver": {"name": "perfdoctor", "version": __version__, "rules": rules}},
        "automationDetails": {"id": f"perfdoctor/{clean_name(check.baseline)}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results,
    }
    return as_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(name: str, title: str, full: str, origin: str = "") -> dict[str, Any]:
    """`origin`: where a rule lies that does not come with perfdoctor."""
    explain = f"perfdoctor explain {clean_name(name)}" + (f" --rules {quote_word(clean(origin))}" if origin else "")
    return {
        "id": clean_name(name), "shortDescription": {"text": clean(title)}, "fullDescription": {"text": clean(full)},
        "help": {"text": explain if name != STEP_TIME else _FULL},
        **({"properties": {"origin": clean(origin)}} if origin else {}),
    }  # fmt: skip


def _verdict(check: Check) -> dict[str, Any]:
    level = _LEVELS[words.level(check)]
    judged = check.comparison.judged
    found = _result(STEP_TIME, level, " ".join(words.heading(check)), words.place_of(check), check.baseline)
    numbers = {"change": judged.change, "low": judged.low, "high": judged.high, "limit": check.limit}
    return {**found, "properties": {**numbers, "decision": check.decision}}


def _message(text: str) -> str:
    """No placeholder and no link (3.11.5 and 3.11.6 of the standard): the text is partly that of a recording."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")


def _result(rule: str, level: str, text: str, place: tuple[str, int] | None, about: str) -> dict[str, Any]:
    key = hashlib.sha256(f"{rule}\0{about}".encode("utf-8", "replace")).hexdigest()
    found: dict[str, Any] = {
        "ruleId": clean_name(rule), "level": level, "message": {"text": _message(text)},
        "partialFingerprints": {"perfdoctor/v1": key[:32]},
    }  # fmt: skip
    if place is not None:
        where = {"artifactLocation": {"uri": quote(place[0])}, "region": {"startLine": place[1]}}
        found["locations"] = [{"physicalLocation": where}]
    return found

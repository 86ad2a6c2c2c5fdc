"""A check as SARIF 2.1.0 (OASIS, 2023), for code scanning: what is wrong, and where in the checkout.

A check that finds nothing wrong has no results: a code scanning service shows each one as an alert, whatever its kind.
What is too noisy to say is no fault of the code: it is a notification of the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfdoctor.report import sarif
from perfdoctor.report.check import words
from perfdoctor.report.words.foreign_text import clean_name

if TYPE_CHECKING:
    from perfdoctor.comparison.check import Check

STEP_TIME = "step-time"
_LEVELS = {"error": "error", "warning": "warning", "notice": "note"}
_FULL = "The mean step is compared with that of a stored baseline; its 95 % interval decides."


def render(check: Check) -> str:
    findings = words.new_findings(check)
    results = [_verdict(check)] if check.decision == "regression" else []
    for each in findings:
        place = words.place_of(check, each) or words.place_of(check)
        results.append(sarif.result(each.rule, "warning", words.finding(each), place, each.line or check.baseline))
    rules = [{**sarif.rule(STEP_TIME, "Step time against the baseline", _FULL), "help": {"text": _FULL}}]
    rules += [sarif.rule(each.rule, each.title, each.title, each.origin) for each in findings]
    invocation: dict[str, Any] = {"executionSuccessful": True, "exitCode": 3 if check.failed else 0}
    if check.decision == "too noisy":
        message = {"text": sarif.escaped(" ".join(words.heading(check)))}
        invocation["toolExecutionNotifications"] = [{"level": "warning", "message": message}]
    return sarif.log(f"perfdoctor/{clean_name(check.baseline)}/", rules, invocation, results)


def _verdict(check: Check) -> dict[str, Any]:
    level = _LEVELS[words.level(check)]
    judged = check.comparison.judged
    found = sarif.result(STEP_TIME, level, " ".join(words.heading(check)), words.place_of(check), check.baseline)
    numbers = {"change": judged.change, "low": judged.low, "high": judged.high, "limit": check.limit}
    return {**found, "properties": {**numbers, "decision": check.decision}}

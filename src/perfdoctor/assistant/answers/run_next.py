"""What should be recorded next, and which question would that answer?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from perfdoctor.assistant.arguments import RunNext
from perfdoctor.assistant.bounded import Answer
from perfdoctor.assistant.desk import Desk
from perfdoctor.report.words import skipped_rules, wording
from perfdoctor.report.words.foreign_text import clean

if TYPE_CHECKING:
    from perfdoctor.records.diagnosis import Diagnosis

#: Rules that a line of the text names.
_MOST_NAMED = 6


def answer(asked: RunNext, desk: Desk) -> Answer:
    diagnosis = desk.diagnosed(asked)
    groups = skipped_rules.not_checked(diagnosis)
    wanted = _wanted(groups)
    unsure = [_unsure(advice.rule, doubt) for advice in diagnosis.findings if (doubt := wording.doubt(advice))]
    without = sum(len(rules) for _, rules, hint in groups if not hint)
    return Answer(
        "\n".join(_said(diagnosis, wanted, unsure)),
        {"record": wanted, "unsure": unsure, "too_little": diagnosis.is_too_little, "no_way_known": without},
    )


def _wanted(groups: Sequence[tuple[str, tuple[str, ...], str]]) -> list[dict[str, Any]]:
    """Each way to record with all rules that it serves, the most rules first. `groups`: as `not_checked` has them."""
    found: dict[str, dict[str, Any]] = {}
    for missing, rules, hint in groups:
        if hint:
            row = found.setdefault(hint, {"record": hint, "missing": [], "rules": []})
            row["missing"].append(missing)
            row["rules"] += rules
    return sorted(found.values(), key=lambda row: -len(row["rules"]))


def _unsure(rule: str, doubt: str) -> dict[str, Any]:
    return {"rule": rule, "doubt": clean(doubt)}


def _said(diagnosis: Diagnosis, wanted: list[dict[str, Any]], unsure: list[dict[str, Any]]) -> Iterator[str]:
    """First what makes the diagnosis itself doubtful, then what more could be checked, the largest group first."""
    if diagnosis.is_too_little:
        yield wording.verdict(diagnosis)
    for each in unsure:
        yield f"{each['rule']}: {each['doubt']}"
    for number, each in enumerate(wanted, 1):
        rules = each["rules"]
        more = f" and {len(rules) - _MOST_NAMED} more" * (len(rules) > _MOST_NAMED)
        named = f"{', '.join(rules[:_MOST_NAMED])}{more}"
        yield f"{number}. {each['record']}: {wording.counted(len(rules), 'rule')} could be checked ({named})."
    if not wanted and not unsure:
        yield "Nothing more needs to be recorded: every rule about this program could be checked."

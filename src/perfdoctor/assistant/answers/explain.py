"""What does a rule look for, and how is it fixed?"""

from __future__ import annotations

from perfdoctor.assistant.arguments import Explain
from perfdoctor.assistant.bounded import Answer, name
from perfdoctor.assistant.desk import Desk
from perfdoctor.errors import PerfdoctorError
from perfdoctor.report.words import wording
from perfdoctor.vocabulary.nearest import near


def answer(asked: Explain, desk: Desk) -> Answer:
    known = desk.known
    if asked.rule not in known:
        raise PerfdoctorError(f"there is no rule {name(asked.rule)!r}", do=near(asked.rule, known, "See findings."))
    rule = known[asked.rule]
    if rule.broken:
        do = "`perfdoctor rules check` says what is wrong with it."
        raise PerfdoctorError(f"the rule {rule.id} cannot be used: {rule.broken}", do=do)
    lines = [
        f"{rule.id}: {rule.title}. {rule.why}",
        f"No problem when: {rule.not_a_problem_when}",
        *(f"Threshold {key} = {each.value:g} {each.unit}" for key, each in rule.thresholds.items()),
        *(f"Fix: {fix.title} ({wording.fix_terms(fix)})" for fix in rule.fixes),
    ]
    return Answer(
        "\n".join(lines),
        {
            "rule": rule.id,
            "title": rule.title,
            "category": rule.category,
            "why": rule.why,
            "not_a_problem_when": rule.not_a_problem_when,
            "needs": list(rule.needs),
            "symptom_of": list(rule.symptom_of),
            "thresholds": [
                {"name": key, "value": each.value, "unit": each.unit, "why": each.why}
                for key, each in rule.thresholds.items()
            ],
            "fixes": [
                {
                    "title": fix.title, "how": fix.filled({}), "effort": fix.effort,
                    "changes_numerics": fix.changes_numerics, "when": [*fix.when], "needs": [*fix.needs],
                    "situations": [*fix.situations],
                }
                for fix in rule.fixes
            ],
            "references": list(rule.references),
            **({"origin": name(rule.origin.name)} if rule.origin else {}),
        },
    )  # fmt: skip

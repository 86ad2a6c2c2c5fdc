"""Which rules could not look, what did they lack, and what is there to record for them?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from perfdoctor.report.words.foreign_text import clean
from perfdoctor.report.words.wording import counted, tells_of_the_machine
from perfdoctor.vocabulary.signals import MACHINE_SIGNALS, NEEDS, need_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfdoctor.records.diagnosis import Diagnosis

#: Of more rules that could not look only their number is told; `perfdoctor rules` lists them.
_MOST_NAMED = 30


def not_looked_at(diagnosis: Diagnosis) -> list[tuple[str, tuple[str, ...], str]]:
    """The skipped rules by what they lacked: (`calls and ranges`, their ids, what wakes them), largest group first."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for outcome in diagnosis.outcomes:
        if outcome.status == "skipped":
            # Of memory or a machine alone no rule about time is to be told apart from the others.
            of_machine = tells_of_the_machine(diagnosis)
            alone = not diagnosis.time and (diagnosis.memory or of_machine)
            is_told_apart = of_machine and set(MACHINE_SIGNALS).issuperset(outcome.missing)
            missing = ("time",) if alone and not is_told_apart else outcome.missing
            groups.setdefault(missing, []).append(clean(outcome.rule))
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [(_listed(missing) or "something", tuple(rules), waking(missing)) for missing, rules in ordered]


def lacked(diagnosis: Diagnosis) -> list[tuple[str, int]]:
    """What the skipped rules lacked, each signal by itself, with how many of them lacked it; the most first."""
    needs = {clean(outcome.rule): outcome.missing for outcome in diagnosis.outcomes}
    found: Counter[str] = Counter()
    for missing, rules, _ in not_looked_at(diagnosis):
        for rule in rules:
            # Without any work to account for, what else is missing tells more.
            telling = [need for need in needs[rule] if need != "places"]
            alone = not telling or missing == need_label("time")
            found.update({missing} if alone else {_listed((need,)) for need in telling})
    return found.most_common()


def named(rules: Sequence[str]) -> Sequence[str]:
    """The rules of such a group by name; none where nobody would read them all."""
    return rules if len(rules) <= _MOST_NAMED else ()


def lacking(missing: str, rules: Sequence[str]) -> str:
    """`2 rules without calls: launch-bound, host-syncs`"""
    return ": ".join((f"{counted(len(rules), 'rule')} without {missing}", *filter(None, [", ".join(named(rules))])))


def waking(missing: Sequence[str]) -> str:
    """What to record so that a skipped rule can look; "" where that is not known."""
    first = [need.split("|")[0] for need in missing]
    return "; ".join(dict.fromkeys(NEEDS[need].hint for need in first if need in NEEDS))


def _listed(needs: Sequence[str]) -> str:
    words = [clean(need_label(need)) for need in needs]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def failed(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Each rule that raised, with what it raised."""
    return [
        (clean(outcome.rule), clean(outcome.error or "", 160))
        for outcome in diagnosis.outcomes
        if outcome.status == "failed"
    ]

"""Which rules were not checked, which signals did they lack, and how are these recorded?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from perfdoctor.report.words.foreign_text import clean
from perfdoctor.report.words.wording import about_gpus, counted, describes_machine, nothing_to_record, of_nvidia
from perfdoctor.vocabulary.signals import MACHINE_SIGNALS, NEEDS, hint, need_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfdoctor.records.diagnosis import Diagnosis

#: Larger groups of skipped rules are only counted; `perfdoctor rules` lists them.
_MOST_NAMED = 30


def not_checked(diagnosis: Diagnosis) -> list[tuple[str, tuple[str, ...], str]]:
    """The skipped rules by what they lacked: (`calls and ranges`, their ids, what to record), largest group first.

    Without those for which nothing is to be recorded: `only_counted` counts them.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    counted_only = nothing_to_record(diagnosis)
    for outcome in diagnosis.outcomes:
        if outcome.status == "skipped" and outcome.rule not in counted_only:
            # Without a timeline, all rules about time lack the same: the timeline.
            of_machine = describes_machine(diagnosis)
            without_timeline = not diagnosis.time and (diagnosis.memory or of_machine)
            is_of_machine = of_machine and set(MACHINE_SIGNALS).issuperset(outcome.missing)
            missing = ("time",) if without_timeline and not is_of_machine else outcome.missing
            groups.setdefault(missing, []).append(clean(outcome.rule))
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [
        (_listed(missing) or "something", tuple(rules), diagnosis.basis.prose(to_record(missing, diagnosis.framework)))
        for missing, rules in ordered
    ]


def only_counted(diagnosis: Diagnosis) -> str:
    """`61 rules are about GPUs`, `9 rules need NVIDIA's tools`: what can be recorded nowhere here; "" without any."""
    if number := len(about_gpus(diagnosis)):
        return f"{counted(number, 'rule')} {'is' if number == 1 else 'are'} about GPUs"
    number = len(of_nvidia(diagnosis))
    return f"{counted(number, 'rule')} need{'s' * (number == 1)} NVIDIA's tools" if number else ""


def lacked(diagnosis: Diagnosis) -> list[tuple[str, int]]:
    """Each signal that skipped rules lacked, with the number of these rules, most frequent first."""
    needs = {clean(outcome.rule): outcome.missing for outcome in diagnosis.outcomes}
    found: Counter[str] = Counter()
    for missing, rules, _ in not_checked(diagnosis):
        for rule in rules:
            # The other missing signals are more specific than "any work to account for".
            specific = [need for need in needs[rule] if need != "places"]
            is_whole = not specific or missing == need_label("time")
            lacking = [missing] if is_whole else [_listed((need,)) for need in specific]
            found.update(dict.fromkeys(lacking, 1))  # each once, in an order that is always the same
    return found.most_common()


def named(rules: Sequence[str]) -> Sequence[str]:
    """The rules of such a group by name; none of a group that is too long to read."""
    return rules if len(rules) <= _MOST_NAMED else ()


def lacking(missing: str, rules: Sequence[str]) -> str:
    """`2 rules without calls: launch-bound, host-syncs`"""
    return ": ".join((f"{counted(len(rules), 'rule')} without {missing}", *filter(None, [", ".join(named(rules))])))


def how_to_check(rules: Sequence[str], hint: str) -> str:
    """`. To check them, record on a GPU with nsys --trace=cuda`; "" without a hint."""
    return f". To check {'it' if len(rules) == 1 else 'them'}, {hint}" if hint else ""


def to_record(missing: Sequence[str], framework: str = "unknown") -> str:
    """How to record what a skipped rule lacks, of a program of this framework; "" where that is not known."""
    first = [need.split("|")[0] for need in missing]
    return "; ".join(dict.fromkeys(hint(need, framework) for need in first if need in NEEDS))


def _listed(needs: Sequence[str]) -> str:
    words = [clean(need_label(need)) for need in needs]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def failed(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Each rule of ours that raised, with its error; rules of others are in the notes."""
    return [
        (clean(outcome.rule), clean(outcome.error or "", 160))
        for outcome in diagnosis.outcomes
        if outcome.status == "failed" and not outcome.origin
    ]

"""Which fixes of a finding are of use to this program on this machine, and which are left out for what is missing?

A fix whose need is known not to be met is left out, as is one that was measured to hurt where this program is. Where
that is not known the fix stays, and says what it needs, or what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.diagnosis.lines import facts_of
from perfdoctor.diagnosis.records import Advisable, Found
from perfdoctor.metrics.needs import every, state
from perfdoctor.metrics.program import facts
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary import needs
from perfdoctor.vocabulary.hurts import HURTS, SITUATION, Hurt
from perfdoctor.vocabulary.rulebook import RuleFix


def advisable(found: Found, run: Run) -> Advisable:
    """The fixes that fit the finding and what is known of the program, each with its caution ("" for none).

    Of those that are left out why; these are sentences without a full stop.
    """
    rule, finding = found.rule, found.finding
    fixes, left_out = [], []
    for fix in rule.fixes_for(finding.situation, facts(run) | facts_of(rule, finding, run)):
        against = next(_against(fix, finding, run), "")
        if against:
            left_out.append(f"{fix.title}: {against}")
        else:
            fixes.append((fix, "; ".join(_cautions(fix, finding, run))))
    return Advisable(tuple(fixes), tuple(left_out))


def _against(fix: RuleFix, finding: Finding, run: Run) -> Iterator[str]:
    yield from (needs.lacking(need) for need in fix.needs if state(run, need) is False)
    yield from (each.said for each in HURTS if each.is_left_out and _hurts(each, fix, finding, run))


def _cautions(fix: RuleFix, finding: Finding, run: Run) -> Iterator[str]:
    if said := needs.unknown(need for need in fix.needs if state(run, need) is None):
        yield said
    for each in HURTS:
        holds = _hurts(each, fix, finding, run)
        if (holds and not each.is_left_out) or (holds is None and _partly(each, finding, run)):
            yield each.said


def _hurts(hurt: Hurt, fix: RuleFix, finding: Finding, run: Run) -> bool | None:
    """Is it advice of that kind, where it hurts? None where the recording does not say."""
    return every(_is(each, finding, run) for each in hurt.where) if hurt.code.search(fix.how) else False


def _partly(hurt: Hurt, finding: Finding, run: Run) -> bool:
    """Is something of where it hurts known to be so? Else a recording that says nothing would be warned of all."""
    return any(_is(each, finding, run) for each in hurt.where)


def _is(condition: str, finding: Finding, run: Run) -> bool | None:
    if condition.startswith(SITUATION):
        return finding.situation in condition.removeprefix(SITUATION).split("|")
    return state(run, condition)

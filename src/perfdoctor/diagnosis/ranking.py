"""In which order are findings shown, and which of them are only symptoms of another?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from perfdoctor.diagnosis.advisable import advisable
from perfdoctor.diagnosis.certainty import judged
from perfdoctor.diagnosis.derivations import derivation
from perfdoctor.diagnosis.lines import code_lines
from perfdoctor.diagnosis.moments import moments
from perfdoctor.diagnosis.prediction import speedup
from perfdoctor.diagnosis.records import Found
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.accounting.real_time import real_step_ns
from perfdoctor.metrics.program import basis_of, facts
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Advice, Evidence, Finding, Fix, Rows
from perfdoctor.records.savings import CASES, Range, Saving
from perfdoctor.vocabulary.basis import STEP, Basis
from perfdoctor.vocabulary.needs import nothing_left
from perfdoctor.vocabulary.places import GPU, MAIN_THREAD, TRAINING_THREAD
from perfdoctor.vocabulary.rulebook import Rule
from perfdoctor.vocabulary.sentences import filled


def ranked(found: Sequence[Found], run: Run) -> tuple[Advice, ...]:
    """The advice: verdicts first, then the largest saving, fixes in vain, and notes; symptoms under their cause."""
    order = sorted(found, key=_place_in_order)
    roots = _roots(order)
    advice, number = [], 0
    for cause in order:
        if roots[cause.rule.id] != cause.rule.id:
            continue
        number += 1
        of_cause = [each for each in order if roots[each.rule.id] == cause.rule.id != each.rule.id]
        symptoms = tuple(
            _advice(number + place, each, run, symptom_of=cause.rule.id) for place, each in enumerate(of_cause, start=1)
        )
        advice.append(_advice(number, cause, run, symptoms))
        number += len(symptoms)
    return tuple(advice)


def agreeing(found: Sequence[Found]) -> list[Found]:
    """The same findings, each of which saves no less than its symptoms: what fixes one of these fixes a part of it.

    Symptoms that nobody is sure of may be about something else.
    """
    order = sorted(found, key=_place_in_order)
    roots = _roots(order)

    def of_symptoms(cause: Found) -> Saving:
        of_cause = [each for each in order if roots[each.rule.id] == cause.rule.id]
        under = [each.saving.ns for each in of_cause if each.finding.confidence != "low"]
        return Saving(*(max((getattr(ns, case) for ns in under), default=0) for case in CASES))

    return [replace(each, saving=replace(each.saving, of_symptoms=of_symptoms(each))) for each in found]


def outweighed(found: Sequence[Found], run: Run) -> list[Found]:
    """Return the findings; a verdict on less of the step than another finding, if that is sure, becomes a note."""
    known = (each.finding for each in found if each.finding.confidence != "low")
    most = max((each.saving_ns_per_step.high for each in known), default=0) / max(run.step_ns, 1)

    def weighed(finding: Finding) -> Finding:
        situation, share = finding.if_less or ("", 1.0)
        return replace(finding, situation=situation) if share < most else finding

    return [replace(each, finding=weighed(each.finding)) for each in found]


def _place_in_order(each: Found) -> tuple[bool, float, float, bool, bool, str]:
    is_first = each.finding.situation in each.rule.verdict
    is_note = bool(each.rule.verdict) and not is_first
    saved_ns, gained_ns = each.saving.ns.likely, each.finding.measured_gain_ns
    return not is_first, -saved_ns, -gained_ns, is_note, each.saving.is_in_vain, each.rule.id


def summary(rule: Rule, finding: Finding, run: Run) -> str:
    """The rule's sentence for the finding's situation, with its numbers. KeyError where one of them is missing."""
    thread = TRAINING_THREAD if {"torch", "inference"} & facts(run) == {"torch"} else MAIN_THREAD
    idle = thread if host_places(run) else GPU
    basis = _basis(rule, run)
    template = basis.numbers(rule.summaries.get(finding.situation, rule.summary))
    clauses = {name: basis.numbers(text) for name, text in rule.clauses.items()}
    return filled(template, {**idle, **finding.values}, clauses)


def _roots(order: Sequence[Found]) -> dict[str, str]:
    """Of each rule found the one at the root of it: the cause of the cause, and so on."""
    causes = {each.rule.id: _causes(each, order) for each in order}
    return {rule: _root(rule, causes, list(causes)) for rule in causes}


def _causes(symptom: Found, order: Sequence[Found]) -> tuple[str, ...]:
    """The rules that it may be a symptom of: those that its rule names, its finding, and what names it itself.

    Not what it explains in this run: there it is the other way round.
    """
    named_by = (cause.rule.id for cause in order if symptom.rule.id in cause.finding.explains)
    named = () if symptom.finding.stands_alone else symptom.rule.symptom_of
    own = [rule for rule in named if rule not in symptom.finding.explains]
    return (*own, *symptom.finding.symptom_of, *named_by)


def _root(rule: str, causes: Mapping[str, Sequence[str]], present: Sequence[str]) -> str:
    """Of rules that name each other the costliest, which is the first of those present."""
    seen = [rule]
    while True:
        above = next((each for each in present if each in causes[seen[-1]]), None)
        if above is None:
            return seen[-1]
        if above in seen:
            return min(seen[seen.index(above) :], key=present.index)
        seen.append(above)


def _advice(
    rank: int, found: Found, run: Run, symptoms: tuple[Advice, ...] = (), symptom_of: str | None = None
) -> Advice:
    rule, finding, saving, step_ns = found.rule, found.finding, found.saving.ns, real_step_ns(run)
    certainty, basis = judged(rule, finding, run), _basis(rule, run)
    if finding.run_steps:
        step_ns = finding.run_ns // finding.run_steps
    usable = found.advisable or advisable(found, run)
    fixes = [
        Fix(
            basis.prose(fix.title),
            basis.prose(fix.filled(finding.values)),
            fix.effort,  # type: ignore[arg-type]
            fix.changes_numerics,
            caution,
        )
        for fix, caution in usable.fixes
    ]
    said = summary(rule, finding, run)
    return Advice(
        rank=rank,
        rule=rule.id,
        title=basis.prose(rule.title),
        summary=f"{said} {nothing_left(usable.left_out)}" if usable.is_in_vain else said,
        why=basis.prose(rule.why),
        category=rule.category,
        confidence=certainty.level,
        confidence_because=certainty.because,
        saving_ns_per_step=saving,
        speedup=Range(*(speedup(step_ns, ns) for ns in (saving.low, saving.likely, saving.high))),
        symptoms=symptoms,
        symptom_of=symptom_of,
        values=finding.values,
        evidence=tuple(_labelled(each, basis) for each in (*finding.evidence, *moments(rule, finding, run))),
        fixes=tuple(fixes),
        left_out=usable.left_out,
        not_a_problem_when=basis.prose(rule.not_a_problem_when),
        references=rule.references,
        is_verdict=finding.situation in rule.verdict,
        derivation=derivation(found, run),
        lines=code_lines(rule, finding, run),
        origin=rule.origin.name if rule.origin else "",
        basis="run" if finding.run_steps else "step",
        saving_ns_per_run=saving.scaled(finding.run_steps) if finding.run_steps else None,
        run_ns=finding.run_ns,
    )


def _basis(rule: Rule, run: Run) -> Basis:
    """What the numbers of the rule are for: samples of memory are of the ends of steps, whatever else was recorded."""
    of_samples = "places" not in rule.needs and any("memory" in need.split("|") for need in rule.needs)
    return replace(STEP, serves=basis_of(run).serves, computes=basis_of(run).computes) if of_samples else basis_of(run)


def _labelled(evidence: Evidence, basis: Basis) -> Evidence:
    """The same evidence, its labels in the words that fit, its numbers those of Python."""
    label = basis.numbers(evidence.label)
    if isinstance(evidence, Rows):
        columns = tuple(basis.numbers(column) for column in evidence.columns)
        # Numpy's numbers print as `np.float64(7.0)`.
        plain = (
            tuple(value.item() if isinstance(value, np.generic) else value for value in row) for row in evidence.rows
        )
        return replace(evidence, label=label, columns=columns, rows=tuple(plain))
    return replace(evidence, label=label)

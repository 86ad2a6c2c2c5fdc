"""What does `--what-if` answer? The step with exactly the fixes and the size of the run that were asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perfdoctor.diagnosis.calibration import in_calibrated_range
from perfdoctor.diagnosis.prediction import (
    best_of_rules,
    can_be_replayed,
    in_real_time,
    prediction_of,
    simulated,
    subtracted,
)
from perfdoctor.diagnosis.questions import PRECISIONS, Question
from perfdoctor.diagnosis.records import Found
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.model.run import Run
from perfdoctor.records.findings import SIZES, Advice, Outcome
from perfdoctor.records.predictions import PredictedStep, Prediction
from perfdoctor.records.savings import CASES, Saving
from perfdoctor.replay.edits.actions import affected_ns
from perfdoctor.replay.edits.other_ranks import askable
from perfdoctor.replay.what_if.run_replay import RunReplay, SimulatedFix, why_not_replayable
from perfdoctor.replay.what_if.sizes import fix_change, size_change, why_not
from perfdoctor.replay.what_if.sizes import simulated as simulated_sizes

_NO_BF16 = "fp32-before-ampere"


def answered(
    questions: Sequence[Question],
    ranked: Sequence[Advice],
    found: Sequence[Found],
    outcomes: Sequence[Outcome],
    run: Run,
    replay: RunReplay | None,
) -> Prediction:
    """The step with exactly these fixes together, one after the other in this order.

    One fix alone saves what its finding says, simulated or not. Raises UsageError for what was not found here or cannot
    be simulated, PerfdoctorError where nothing can.
    """
    if replay is None and run.selection.range_name and len(questions) == 1:
        return _of_range(questions[0], ranked, found, outcomes, run)
    alone = _of_finding(questions[0], found, run, replay) if len(questions) == 1 else None
    if alone is not None:
        return alone
    if replay is None:
        raise PerfdoctorError(
            f"--what-if: this recording cannot be replayed: {why_not_replayable(run)}",
            do="Leave --what-if out: each finding names its saving without it.",
        )
    by_rule = best_of_rules(found)
    can = {name: each for name, each in by_rule.items() if can_be_replayed(each, replay)}
    causes = {symptom.rule: cause.rule for cause in ranked for symptom in cause.symptoms}
    fixes: dict[str, SimulatedFix] = {}
    has_sizes = any(question.rule in SIZES for question in questions)
    for question in questions:
        if question.rule in can and has_sizes and can[question.rule].finding.by_all_ranks:
            why = "its saving is that of a replay of all ranks, which no other size of the run can join"
            raise UsageError(f"--what-if {question.rule}: {why}", do="Ask for the size and for the fix by themselves.")
        if question.rule in can:
            fix = _fix(question, can[question.rule], replay)
            fixes[question.rule] = replace(fix, cause=causes.get(question.rule, question.rule))
        elif question.rule not in SIZES:
            why = _why_not(question.rule, by_rule, outcomes, replay)
            raise UsageError(f"--what-if {question.rule}: {why}", do=_can_be_asked(sorted(can), run))
        elif why := why_not(question.rule, question.amount, run, question.network_bytes_per_second):
            asked = f"{question.rule}={question.choice}"
            raise UsageError(f"--what-if {asked}: {why}", do=_can_be_asked(sorted(can), run))
    if len(fixes) == len(questions):
        choices = {question.rule: question.choice for question in questions}
        together = in_real_time(simulated(replay, list(fixes.values()), choices), found, run)
        own_range = all(_is_own_range(question) for question in questions)
        return in_calibrated_range(together, [can[rule].saving.ns for rule in fixes]) if own_range else together
    changes = [
        fix_change(fixes[each.rule], each.choice)
        if each.rule in fixes
        else size_change(each.rule, each.choice, each.amount, run, each.network_bytes_per_second)
        for each in questions
    ]
    return in_real_time(simulated_sizes(changes, run), found, run)


def _is_own_range(question: Question) -> bool:
    return question.choice in ("", *PRECISIONS.get(question.rule, ()))


def _of_finding(question: Question, found: Sequence[Found], run: Run, replay: RunReplay | None) -> Prediction | None:
    """The step less what its finding saves; None where that is not known, or something else is asked for."""
    known = best_of_rules(found).get(question.rule)
    if known is None or known.finding.run_steps:  # that is a saving of the whole run
        return None
    saving, error = known.saving.ns, None
    if replay is not None and can_be_replayed(known, replay):
        if not _is_own_range(question):
            return None
        _fix(question, known, replay)  # refuses a precision that this GPU has not
        error = None if known.finding.by_all_ranks else replay.error
    elif question.share is not None or not saving.high:
        return None
    elif question.choice in CASES:
        saving = Saving(*[(saving.low, saving.likely, saving.high)[CASES.index(question.choice)]] * 3)
    return subtracted(question.rule, saving, run, error, choice=question.choice, asked=True)


def _of_range(
    question: Question, ranked: Sequence[Advice], found: Sequence[Found], outcomes: Sequence[Outcome], run: Run
) -> Prediction:
    """An execution of the range less what the finding of one fix saves. A range is not replayed."""
    known = {each.rule: each for cause in ranked for each in (cause, *cause.symptoms)}
    asked = f"--what-if {question.rule}"
    can = ", ".join(sorted(name for name, each in known.items() if each.saving_ns_per_step.high))
    right = f"What can be asked of this range: {can}." if can else "Nothing that was found in this range saves time."
    if question.rule in SIZES or question.share is not None:
        raise UsageError(f"{asked}={question.choice}: a range is not replayed", do=right)
    if question.rule not in known:
        raise UsageError(f"{asked}: {_why_not(question.rule, best_of_rules(found), outcomes)}", do=right)
    saving = known[question.rule].saving_ns_per_step
    cases = (saving.low, saving.likely, saving.high)
    low, likely, high = (cases[CASES.index(question.choice)],) * 3 if question.choice in CASES else cases
    step_ns = (run.step_ns - high, run.step_ns - likely, run.step_ns - low)
    way = [PredictedStep(question.rule, step_ns[1], question.choice)]
    return prediction_of(run.step_ns, step_ns, way, None, asked=True)


def _fix(question: Question, found: Found, replay: RunReplay) -> SimulatedFix:
    rule, finding = found.rule, found.finding
    fix = replay.fix(rule.id, rule.action, finding)
    choice = question.choice
    impossible = "bf16" if finding.situation == _NO_BF16 else ""
    choices = [each for each in (*PRECISIONS.get(rule.id, ()), *CASES) if each != impossible]
    right = f"Choices of {rule.id} here: {', '.join(choices)}."
    if choice and choice == impossible:
        raise UsageError(f"--what-if {rule.id}={choice}: this GPU has no units for it", do=right)
    if question.share is not None:
        if rule.action == "kernels" and not finding.work:
            why = "its finding does not say of which kernels a share is meant"
            raise UsageError(f"--what-if {rule.id}={choice}: {why}", do=right)
        return fix.going(question.share, round(question.share * affected_ns(rule.action, finding, replay.run)))
    if choice in CASES:
        case = CASES.index(choice)
        return fix.going(fix.shares[case], fix.most_ns[case])
    return fix


def _why_not(
    rule: str, by_rule: Mapping[str, Found], outcomes: Sequence[Outcome], replay: RunReplay | None = None
) -> str:
    outcome = next((each for each in outcomes if each.rule == rule), None)
    if rule in by_rule and by_rule[rule].finding.run_steps:
        return "its saving is one of the whole run, not of a step: its finding states it"
    if rule in by_rule:
        known = by_rule[rule]
        why = replay.why_not(known.rule.action, known.finding) if replay else ""
        alone = f"; --what-if {rule} alone is answered by the saving of its finding" if known.saving.ns.high else ""
        return f"found, but its fix cannot be simulated on this recording{f': {why}' if why else ''}{alone}"
    if outcome is None:
        return "not checked: --rule or --ignore leave it out, or it is not about such a program"
    if outcome.status == "skipped":
        return f"not checked, since the recording lacks {', '.join(outcome.missing)}"
    return "failed, a bug of perfdoctor" if outcome.status == "failed" else "not found in this recording"


def _can_be_asked(rules: Sequence[str], run: Run) -> str:
    """What was found here and can be simulated, and the sizes that the run can have."""
    ranks = askable(run).what
    sizes = [] if host_places(run) else ["batch=2x", "synthetic-data", *([ranks] if ranks else [])]
    known = ", ".join([*rules, *sizes])
    return f"What can be asked here: {known}." if known else "The fix of nothing that was found here can be simulated."

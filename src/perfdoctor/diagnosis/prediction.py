"""How long is a step with several fixes together, added one by one? Replayed where possible, else arithmetic.

Savings of several fixes are never added up: they hide each other, or uncover each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.diagnosis.calibrated_prediction import in_calibrated_range
from perfdoctor.diagnosis.predicted_saving import NOISE_SHARE
from perfdoctor.diagnosis.real_prediction import in_real_time
from perfdoctor.diagnosis.records import Found
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.accounting.real_time import real_step_ns
from perfdoctor.model.run import Run
from perfdoctor.records.findings import SIZES, Advice, Outcome
from perfdoctor.records.predictions import PredictedStep, Prediction
from perfdoctor.records.savings import CASES, Range, Saving
from perfdoctor.replay.edits.actions import affected_ns
from perfdoctor.replay.edits.other_ranks import askable
from perfdoctor.replay.what_if.run_replay import RunReplay, SimulatedFix, why_not_replayable
from perfdoctor.replay.what_if.sizes import fix_change, size_change, why_not
from perfdoctor.replay.what_if.sizes import simulated as simulated_sizes

#: How many of the findings shown first a prediction takes as fixed, if no others are asked for.
MOST_FIXES = 5
#: Precisions that a finding's own range stands for. No rule assumes what TF32 saves over plain fp32: not offered.
PRECISIONS: Mapping[str, tuple[str, ...]] = {"fp32-matmuls": ("bf16", "fp16")}
_NO_BF16 = "fp32-before-ampere"


class Question(Struct, frozen=True):
    """A fix that is asked for. `choice`: low, likely, high, a precision, or "" for the finding's own range.

    `share`: how far its action goes instead, from 0 to 1; then `choice` is that as it was written. Where `rule` names a
    size of the run (`findings.SIZES`), `amount` is the factor, or the number of ranks; and then
    `network_bytes_per_second` what a network gives each of them one way, where that is given (0: it is not).
    """

    rule: str
    choice: str = ""
    share: float | None = None
    amount: float = 0.0
    network_bytes_per_second: float = 0.0


def speedup(step_ns: int, saving_ns: int) -> float:
    """Amdahl: step ÷ (step − saved); 1.0 where there is no step."""
    left = step_ns - saving_ns
    return step_ns / left if left > 0 else 1.0


# --- without a question ----------------------------------------------------------------------------------------------


def predicted(
    ranked: Sequence[Advice], found: Sequence[Found], run: Run, replay: RunReplay | None
) -> Prediction | None:
    """The step with the causes shown first fixed together; with the first one alone where they cannot be simulated.

    A fix that wins nothing by itself may win once those before it have uncovered it; one that does not is left out.
    """
    if not ranked or not run.step_ns or not ranked[0].saving_ns_per_step.high:
        return None
    by_rule = _by_rule(found)
    if replay is None or not _can_replay(by_rule[ranked[0].rule], replay):
        return _subtracted(ranked[0].rule, ranked[0].saving_ns_per_step, run, None)
    shown = [_best_fix(advice, by_rule, replay) for advice in ranked]
    fixes = _uncovered(
        [
            replay.fix(each.rule.id, each.rule.action, each.finding)
            for each in shown
            if each.saving.expected.likely and _can_replay(each, replay)
        ],
        replay,
    )
    if len(fixes) <= 1:
        return _subtracted(ranked[0].rule, ranked[0].saving_ns_per_step, run, replay.error)
    together = in_real_time(_simulated(replay, fixes), _real_shares(found), run)
    return in_calibrated_range(together, [by_rule[fix.rule].saving for fix in fixes])


def _best_fix(advice: Advice, by_rule: Mapping[str, Found], replay: RunReplay) -> Found:
    """The cause itself, or a symptom of it whose own fix saves more."""
    cause = by_rule[advice.rule]
    symptoms = [each for symptom in advice.symptoms if _can_replay(each := by_rule[symptom.rule], replay)]
    return max((cause, *symptoms), key=lambda each: each.saving.own.likely)


def _uncovered(fixes: Sequence[SimulatedFix], replay: RunReplay) -> list[SimulatedFix]:
    """The first of these fixes that each win something more behind those before them."""
    kept: list[SimulatedFix] = []
    step_ns = replay.run.step_ns
    for fix in fixes[: 2 * MOST_FIXES]:
        behind_ns = replay.step_ns([*kept, fix])
        if step_ns - behind_ns >= NOISE_SHARE * replay.run.step_ns and len(kept) < MOST_FIXES:
            kept, step_ns = [*kept, fix], behind_ns
    return kept


def _subtracted(
    rule: str, saving: Saving, run: Run, error: float | None, *, choice: str = "", asked: bool = False
) -> Prediction:
    """The step less the saving of one finding, which was simulated before if there is an `error`."""
    now_ns = real_step_ns(run)
    step_ns = (now_ns - saving.high, now_ns - saving.likely, now_ns - saving.low)
    subtracted = _prediction(now_ns, step_ns, [PredictedStep(rule, step_ns[1], choice)], error, asked=asked)
    return subtracted if now_ns == run.step_ns else replace(subtracted, recorded_ns=run.step_ns, unrecorded_ns=now_ns)


def _simulated(
    replay: RunReplay, fixes: Sequence[SimulatedFix], choices: Mapping[str, str] | None = None
) -> Prediction:
    """All fixes together, at least, likely and at most; and on the way there one more with each step.

    The range is also as wide as single steps differ from their mean then: a later run may have more of either.
    """
    way: list[PredictedStep] = []
    step_ns = replay.run.step_ns
    for number, fix in enumerate(fixes, start=1):
        step_ns = min(step_ns, replay.step_ns(fixes[:number]))
        way.append(PredictedStep(fix.rule, step_ns, (choices or {}).get(fix.rule, "")))
    shorter, longer = replay.spread(fixes)
    best = round(min(step_ns, replay.step_ns(fixes, 2)) * shorter)
    worst = min(round(max(step_ns, replay.step_ns(fixes, 0)) * longer), replay.run.step_ns)
    return _prediction(replay.run.step_ns, (best, step_ns, worst), way, replay.error, asked=choices is not None)


def _prediction(
    recorded_ns: int,
    step_ns: tuple[int, int, int],
    way: Sequence[PredictedStep],
    error: float | None,
    *,
    asked: bool = False,
) -> Prediction:
    return Prediction(
        fixed=tuple(step.rule for step in way),
        step_ns=Range(*step_ns),
        speedup=Range(*(speedup(recorded_ns, recorded_ns - ns) for ns in reversed(step_ns))),
        recorded_ns=recorded_ns,
        steps=tuple(way),
        replay_error=error,
        asked=asked,
    )


def _real_shares(found: Sequence[Found]) -> dict[str, float]:
    return {name: each.saving.real_share for name, each in _by_rule(found).items()}


def _by_rule(found: Sequence[Found]) -> dict[str, Found]:
    """Of each rule the finding that is expected to save most."""
    return {each.rule.id: each for each in sorted(found, key=lambda each: each.saving.expected.likely)}


def _can_replay(found: Found, replay: RunReplay) -> bool:
    return replay.can_replay(found.rule.action, found.finding)


# --- with one --------------------------------------------------------------------------------------------------------


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
    by_rule = _by_rule(found)
    can = {name: each for name, each in by_rule.items() if _can_replay(each, replay)}
    causes = {symptom.rule: cause.rule for cause in ranked for symptom in cause.symptoms}
    fixes: dict[str, SimulatedFix] = {}
    for question in questions:
        if question.rule in can:
            fix = _fix(question, can[question.rule], replay)
            fixes[question.rule] = replace(fix, cause=causes.get(question.rule, question.rule))
        elif question.rule not in SIZES:
            why = _why_not(question.rule, by_rule, outcomes, replay)
            raise UsageError(f"--what-if {question.rule}: {why}", do=_can_be_asked(sorted(can), run))
        elif why := why_not(question.rule, question.amount, run, question.network_bytes_per_second):
            asked = f"{question.rule}={question.choice}"
            raise UsageError(f"--what-if {asked}: {why}", do=_can_be_asked(sorted(can), run))
    shares = _real_shares(found)
    if len(fixes) == len(questions):
        choices = {question.rule: question.choice for question in questions}
        together = in_real_time(_simulated(replay, list(fixes.values()), choices), shares, run)
        own_range = all(_is_own_range(question) for question in questions)
        return in_calibrated_range(together, [can[rule].saving for rule in fixes]) if own_range else together
    changes = [
        fix_change(fixes[each.rule], each.choice)
        if each.rule in fixes
        else size_change(each.rule, each.choice, each.amount, run, each.network_bytes_per_second)
        for each in questions
    ]
    return in_real_time(simulated_sizes(changes, run), shares, run)


def _is_own_range(question: Question) -> bool:
    return question.choice in ("", *PRECISIONS.get(question.rule, ()))


def _of_finding(question: Question, found: Sequence[Found], run: Run, replay: RunReplay | None) -> Prediction | None:
    """The step less what its finding saves; None where that is not known, or something else is asked for."""
    known = _by_rule(found).get(question.rule)
    if known is None or not _is_own_range(question):
        return None
    error = None
    if replay is not None and _can_replay(known, replay):
        _fix(question, known, replay)  # refuses a precision that this GPU has not
        error = replay.error
    elif not known.saving.ns.high:
        return None
    return _subtracted(question.rule, known.saving.ns, run, error, choice=question.choice, asked=True)


def _of_range(
    question: Question, ranked: Sequence[Advice], found: Sequence[Found], outcomes: Sequence[Outcome], run: Run
) -> Prediction:
    """An execution of the range with one fix: what its finding saves, subtracted. A range is not replayed."""
    known = {each.rule: each for cause in ranked for each in (cause, *cause.symptoms)}
    asked = f"--what-if {question.rule}"
    can = ", ".join(sorted(name for name, each in known.items() if each.saving_ns_per_step.high))
    right = f"What can be asked of this range: {can}." if can else "Nothing that was found in this range saves time."
    if question.rule in SIZES or question.share is not None:
        raise UsageError(f"{asked}={question.choice}: a range is not replayed", do=right)
    if question.rule not in known:
        raise UsageError(f"{asked}: {_why_not(question.rule, _by_rule(found), outcomes)}", do=right)
    saving = known[question.rule].saving_ns_per_step
    cases = (saving.low, saving.likely, saving.high)
    low, likely, high = (cases[CASES.index(question.choice)],) * 3 if question.choice in CASES else cases
    step_ns = (run.step_ns - high, run.step_ns - likely, run.step_ns - low)
    way = [PredictedStep(question.rule, step_ns[1], question.choice)]
    return _prediction(run.step_ns, step_ns, way, None, asked=True)


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


# --- how true it is --------------------------------------------------------------------------------------------------


def notes(prediction: Prediction | None, run: Run, replay: RunReplay | None) -> Iterator[str]:
    """What savings rest on: a replay, and how far it misses what was recorded, or arithmetic."""
    if replay is not None:
        yield (
            "Where a fix can be simulated, its saving is how much shorter the replay is with it. "
            f"Replayed unchanged, {_missed(replay.error)}."
        )
    elif prediction is not None and run.per_step:
        why = why_not_replayable(run)
        reason = (
            f"since this recording cannot be replayed: {why}" if why else "since none of these fixes can be simulated"
        )
        yield f"Savings are arithmetic, {reason}."
    if prediction is not None and prediction.asked:
        yield from _assumed(prediction)


def _assumed(prediction: Prediction) -> Iterator[str]:
    """What no recording shows about a run of another size."""
    if any(step.rule == "batch" for step in prediction.steps) and prediction.samples > 1:
        yield (
            "Not known from the recording: does such a batch fit into memory, and does a loader that keeps up now "
            "still keep up?"
        )
    scaling = prediction.scaling
    if scaling is not None and scaling.asked > (scaling.recorded or 1):
        network_given = any(step.rule == "ranks" and "@" in step.choice for step in prediction.steps)
        yield (
            f"Among {scaling.asked} ranks links are assumed to be as fast as "
            f"between the {scaling.recorded or 0} recorded"
            + (", except for the bandwidth that you gave." if network_given else ".")
        )


def _missed(error: float) -> str:
    percent = f"{100 * abs(error):.1f}"
    if percent == "0.0":
        return "it takes as long as recorded, to less than 0.1 %"
    return f"it takes {percent} % {'longer' if error > 0 else 'less'} than recorded"

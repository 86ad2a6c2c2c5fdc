"""How long is a step with several fixes together, added one by one? Replayed where possible, else arithmetic.

Savings of several fixes are never added up: they hide each other, or uncover each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from perfdoctor.diagnosis.calibration import NOISE_SHARE, in_calibrated_range
from perfdoctor.diagnosis.records import Found
from perfdoctor.metrics.accounting.real_time import real_step_ns
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Advice
from perfdoctor.records.predictions import PredictedStep, Prediction
from perfdoctor.records.savings import Range, Saving
from perfdoctor.replay.what_if.run_replay import RunReplay, SimulatedFix, why_not_replayable

#: How many of the findings shown first a prediction takes as fixed, if no others are asked for.
MOST_FIXES = 5


def speedup(step_ns: int, saving_ns: int) -> float:
    """Amdahl: step ÷ (step − saved); 1.0 where there is no step."""
    left = step_ns - saving_ns
    return step_ns / left if left > 0 else 1.0


def predicted(
    ranked: Sequence[Advice], found: Sequence[Found], run: Run, replay: RunReplay | None
) -> Prediction | None:
    """The step with the causes shown first fixed together; with the first one alone where they cannot be simulated.

    What lies between steps makes none of them longer. A fix that wins nothing by itself may win once those before it
    have uncovered it; one that does not is left out.
    """
    ranked = [each for each in ranked if each.basis == "step"]
    if not ranked or not run.step_ns or not ranked[0].saving_ns_per_step.high:
        return None
    by_rule = best_of_rules(found)
    if replay is None or not can_be_replayed(by_rule[ranked[0].rule], replay):
        return subtracted(ranked[0].rule, ranked[0].saving_ns_per_step, run, None)
    shown = [_best_fix(advice, by_rule, replay) for advice in ranked]
    fixes = _uncovered(
        [
            replay.fix(each.rule.id, each.rule.action, each.finding)
            for each in shown
            if each.saving.expected.likely and can_be_replayed(each, replay)
        ],
        replay,
    )
    if len(fixes) <= 1:
        return subtracted(ranked[0].rule, ranked[0].saving_ns_per_step, run, replay.error)
    together = in_real_time(simulated(replay, fixes), found, run)
    return in_calibrated_range(together, [by_rule[fix.rule].saving.ns for fix in fixes])


def _best_fix(advice: Advice, by_rule: Mapping[str, Found], replay: RunReplay) -> Found:
    """The cause itself, or a symptom of it whose own fix saves more."""
    cause = by_rule[advice.rule]
    symptoms = [each for symptom in advice.symptoms if can_be_replayed(each := by_rule[symptom.rule], replay)]
    return max((cause, *symptoms), key=lambda each: each.saving.own.likely)


def _uncovered(fixes: Sequence[SimulatedFix], replay: RunReplay) -> list[SimulatedFix]:
    """The first of these fixes that each save something more behind those before them."""
    kept: list[SimulatedFix] = []
    step_ns = replay.run.step_ns
    for fix in fixes[: 2 * MOST_FIXES]:
        behind_ns = replay.step_ns([*kept, fix])
        if step_ns - behind_ns >= NOISE_SHARE * replay.run.step_ns and len(kept) < MOST_FIXES:
            kept, step_ns = [*kept, fix], behind_ns
    return kept


def subtracted(
    rule: str, saving: Saving, run: Run, error: float | None, *, choice: str = "", asked: bool = False
) -> Prediction:
    """The step less the saving of one finding. `error`: that of the replay, where the saving was simulated."""
    now_ns = real_step_ns(run)
    step_ns = (now_ns - saving.high, now_ns - saving.likely, now_ns - saving.low)
    subtracted = prediction_of(now_ns, step_ns, [PredictedStep(rule, step_ns[1], choice)], error, asked=asked)
    return subtracted if now_ns == run.step_ns else replace(subtracted, recorded_ns=run.step_ns, unrecorded_ns=now_ns)


def simulated(replay: RunReplay, fixes: Sequence[SimulatedFix], choices: Mapping[str, str] | None = None) -> Prediction:
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
    return prediction_of(replay.run.step_ns, (best, step_ns, worst), way, replay.error, asked=choices is not None)


def prediction_of(
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


def best_of_rules(found: Sequence[Found]) -> dict[str, Found]:
    """The finding of each rule that is expected to save most."""
    return {each.rule.id: each for each in sorted(found, key=lambda each: each.saving.expected.likely)}


def can_be_replayed(found: Found, replay: RunReplay) -> bool:
    return replay.can_replay(found.rule.action, found.finding)


def in_real_time(prediction: Prediction, found: Sequence[Found], run: Run) -> Prediction:
    """The prediction from the unrecorded step on; itself where that is not known, or the same.

    Of what a fix saves, the finding's `real_share` is there without a recorder. Another size of the run changes all
    parts of the step alike.
    """
    now_ns, recorded_ns = real_step_ns(run), prediction.recorded_ns
    if now_ns == recorded_ns:
        return prediction
    whole, by_rule = now_ns / recorded_ns, best_of_rules(found)
    way, before_ns, real_ns = [], recorded_ns, float(now_ns)
    for step in prediction.steps:
        share = by_rule[step.rule].saving.real_share if step.rule in by_rule else whole
        real_ns = max(real_ns - (before_ns - step.step_ns) * share, 1.0)
        before_ns = step.step_ns
        way.append(PredictedStep(step.rule, round(real_ns), step.choice, step.samples))
    likely_ns = prediction.step_ns[1]
    by = (now_ns - real_ns) / (recorded_ns - likely_ns) if recorded_ns != likely_ns else whole
    low, high = (
        max(round(now_ns - (recorded_ns - ns) * by), 1) for ns in (prediction.step_ns[0], prediction.step_ns[2])
    )
    step_ns = Range(min(low, round(real_ns)), round(real_ns), max(high, round(real_ns)))
    times = Range(*(now_ns * prediction.samples / ns for ns in reversed([*step_ns])))
    return replace(prediction, step_ns=step_ns, speedup=times, steps=tuple(way), unrecorded_ns=now_ns)


def notes(prediction: Prediction | None, run: Run, replay: RunReplay | None) -> Iterator[str]:
    """Say what savings rest on: a replay, and how far it misses what was recorded, or arithmetic."""
    if replay is not None:
        percent = f"{100 * abs(replay.error):.1f}"
        missed = f"{percent} % {'longer' if replay.error > 0 else 'less'} than recorded"
        yield (
            "Where a fix can be simulated, its saving is how much shorter the replay is with it. Replayed unchanged, "
            f"it takes {'as long as recorded, to less than 0.1 %' if percent == '0.0' else missed}."
        )
    elif prediction is not None and run.per_step:
        why = why_not_replayable(run)
        reason = f"this recording cannot be replayed: {why}" if why else "none of these fixes can be simulated"
        yield f"Savings are arithmetic, since {reason}."
    # What no recording shows about a run of another size.
    if prediction is None or not prediction.asked:
        return
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

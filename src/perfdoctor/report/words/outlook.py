"""What do several fixes bring together, and what each on the way there? A prediction in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfdoctor.records.findings import SIZES
from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean

if TYPE_CHECKING:
    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.findings import Advice
    from perfdoctor.records.predictions import PredictedStep, Prediction, Scaling

_NAME_LIMIT = 32
_KINDS = {"host": "the host's work", "latency": "starting work and waking up", "input_wait": "the next batch"}


@dataclass(frozen=True)
class Stop:
    """One line of the way: what was fixed, and the step behind it and before it, in ns.

    `more`: how many times as many samples the step has as the one before it. `rule`: whose fix it is, "" for none.
    """

    name: str
    step_ns: int
    before_ns: int
    more: float = 1.0
    rule: str = ""


def together(diagnosis: Diagnosis) -> str:
    """What several fixes bring at once, or those asked for; "" where the verdict says the same."""
    prediction = _worth_showing(diagnosis)
    if prediction is None:
        return ""
    low, likely, high = (wording.duration(ns) for ns in prediction.step_ns)
    about = likely if low == high else f"{likely} ({low} to {high})"
    took, times = wording.duration(prediction.recorded_ns), wording.speedup(prediction.speedup)
    if any(step.rule in SIZES for step in prediction.steps):
        takes = f"the step{' of each rank' * (prediction.scaling is not None)} takes about {about} instead of {took}"
        return f"Played again with {_what(prediction)}, {takes}: {_pace(prediction)}"
    fixed = ", ".join(_name(step) for step in prediction.steps)
    if prediction.replay_error is None:
        return f"With {fixed} fixed, the step takes about {about} instead of {took}: {times}."
    return f"Played again with {fixed} fixed, the step takes about {about} instead of {took}: {times}."


def way(diagnosis: Diagnosis, *, also_one: bool = False) -> tuple[Stop, ...]:
    """From the recorded step to the predicted one, fix by fix; () where `together` says nothing.

    `also_one`: also of a single fix, of which the verdict says the same.
    """
    prediction = diagnosis.prediction if also_one else _worth_showing(diagnosis)
    if prediction is None:
        return ()
    stops, samples = [Stop("as recorded", prediction.recorded_ns, prediction.recorded_ns)], 1.0
    for step in prediction.steps:
        stops.append(Stop(_name(step), step.step_ns, stops[-1].step_ns, step.samples / samples, step.rule))
        samples = step.samples
    return tuple(stops)


def widest_ns(stops: tuple[Stop, ...]) -> int:
    """The longest of all steps on the way: with a larger batch that is not the recorded one."""
    return max((stop.step_ns for stop in stops), default=0)


def hangs_on(diagnosis: Diagnosis) -> str:
    """What the length of the step hangs on, the largest share first; "" where that was not played."""
    path = diagnosis.critical_path
    if path is None:
        return ""
    shares = sorted(path.share.items(), key=lambda item: -item[1])
    named = [
        f"{_KINDS.get(kind, kind.replace('_', ' '))} {wording.share(part)}" for kind, part in shares if part >= 0.01
    ]
    return f"The length of the step hangs on: {', '.join(named)}."


def heading(diagnosis: Diagnosis) -> str:
    prediction = diagnosis.prediction
    if prediction is not None and any(step.rule in SIZES for step in prediction.steps):
        return "What if: one after the other"
    if prediction is not None and len(prediction.steps) == 1 and not prediction.asked:
        return "With it fixed"
    return "What if: fixed one after the other" if prediction and prediction.asked else "Fixed one after the other"


def won(stop: Stop) -> str:
    """`−107 ms`, or `1.3× the samples/s` where the step has more or fewer of them; "" where nothing changes."""
    if stop.more != 1:
        return f"{wording.factor(stop.more * stop.before_ns / max(stop.step_ns, 1))}× the samples/s"
    change_ns = stop.step_ns - stop.before_ns
    return f"{'+' if change_ns > 0 else '−'}{wording.duration(abs(change_ns))}" if change_ns else ""


def _what(prediction: Prediction) -> str:
    """`input-wait fixed, and ranks=64`"""
    fixes = ", ".join(_name(step) for step in prediction.steps if step.rule not in SIZES)
    sizes = ", ".join(_name(step) for step in prediction.steps if step.rule in SIZES)
    return f"{fixes} fixed, and {sizes}" if fixes else sizes


def _pace(prediction: Prediction) -> str:
    """What it means for samples: how many more a second, what as many as recorded take, and how well ranks scale."""
    times, said = wording.speedup(prediction.speedup), []
    if prediction.samples != 1:
        said.append(f"{times} the samples a second.")
        of_rank = next((step for step in prediction.steps if step.rule == "batch"), None)
        if of_rank is not None and prediction.scaling is None:
            as_many_ns = prediction.step_ns[1] / prediction.samples
            said.append(f"As many samples as recorded take {wording.duration(as_many_ns)}.")
    else:
        said.append(f"{times}.")
    if prediction.scaling is not None and prediction.scaling.recorded != prediction.scaling.asked:
        said.append(_efficiency(prediction.scaling))
    return " ".join(said)


def _efficiency(scaling: Scaling) -> str:
    fewer, more = sorted((scaling.recorded, scaling.asked))
    low, likely, high = (wording.share(part) for part in scaling.efficiency)
    about = likely if low == high else f"{likely} ({low} to {high})"
    if not scaling.recorded:
        return f"Scaling efficiency from one rank to as many as there were: {about}."
    return f"Scaling efficiency from {fewer} to {more} ranks: {about}."


def _worth_showing(diagnosis: Diagnosis) -> Prediction | None:
    """Of one finding the verdict says the same, if nobody asked."""
    prediction = diagnosis.prediction
    return prediction if prediction is not None and (prediction.asked or len(prediction.steps) > 1) else None


def _name(step: PredictedStep) -> str:
    """The rule whose finding is fixed, and how far if somebody asked for that: `launch-bound=50%`."""
    return clean(step.rule, _NAME_LIMIT) + (f"={clean(step.choice, _NAME_LIMIT)}" if step.choice else "")


def behind_others(diagnosis: Diagnosis, advice: Advice) -> str:
    """Of a finding that saves nothing by itself: what its fix brings with those above it made; "" where nothing."""
    prediction = diagnosis.prediction
    if prediction is None or prediction.asked or advice.saving_ns_per_step.high:
        return ""
    ranks = {each.rule: each.rank for each in diagnosis.findings}
    for stop, before in zip(way(diagnosis), ((), *_before(prediction)), strict=False):
        is_above = bool(before) and all(ranks.get(rule, advice.rank) < advice.rank for rule in before)
        if stop.name == advice.rule and is_above and stop.step_ns < stop.before_ns:
            won_ns = stop.before_ns - stop.step_ns
            return f"saves {wording.duration(won_ns)} once those above are fixed, nothing before"
    return ""


def _before(prediction: Prediction) -> list[tuple[str, ...]]:
    """For each step of the way, the rules that were fixed before it."""
    rules = tuple(step.rule for step in prediction.steps)
    return [rules[:place] for place in range(len(rules))]

"""How long is the step with several fixes, and after each of them? A prediction in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from perfdoctor.records.findings import SIZES
from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean

if TYPE_CHECKING:
    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.findings import Advice
    from perfdoctor.records.predictions import PredictedStep, Prediction, Scaling

_NAME_LIMIT = 32
_KINDS = {"host": "host work", "loader": "waiting for batches", "latency": "launch and wake-up latency"}


class Stage(Struct, frozen=True):
    """The predicted step after one more fix: what was fixed, and the step after it and before it, in ns.

    `more`: number of samples in the step, relative to the stage before. `rule`: whose fix it is, "" for none.
    """

    name: str
    step_ns: int
    before_ns: int
    more: float = 1.0
    rule: str = ""


def together(diagnosis: Diagnosis) -> str:
    """The step with several fixes together, or with those asked for; "" where the verdict says the same."""
    prediction = _worth_showing(diagnosis)
    if prediction is None:
        return ""
    about = wording.durations(*prediction.step_ns)
    took, times = wording.duration(prediction.now_ns), wording.speedup(prediction.speedup)
    if any(step.rule in SIZES for step in prediction.steps):
        of_each = " of each rank" if prediction.scaling is not None else ""
        fixes = ", ".join(_name(step) for step in prediction.steps if step.rule not in SIZES)
        sizes = ", ".join(_name(step) for step in prediction.steps if step.rule in SIZES)
        what = f"{fixes} fixed, and {sizes}" if fixes else sizes
        takes = f"{diagnosis.basis.whole}{of_each} takes about {about} instead of {took}"
        return f"Replayed with {what}, {takes}: {_pace(prediction)}"
    fixed = ", ".join(_name(step) for step in prediction.steps)
    how = "With" if prediction.replay_error is None else "Replayed with"
    return f"{how} {fixed} fixed, {diagnosis.basis.whole} takes about {about} instead of {took}: {times}."


def stages(diagnosis: Diagnosis, *, also_one: bool = False) -> tuple[Stage, ...]:
    """Stages from the step as it is to the predicted one, fix by fix; () where `together` is empty.

    `also_one`: also for a single fix, for which the verdict says the same.
    """
    prediction = diagnosis.prediction if also_one else _worth_showing(diagnosis)
    return () if prediction is None else stages_of(prediction)


def stages_of(prediction: Prediction) -> tuple[Stage, ...]:
    """The stages of a prediction, from the step as it is to the predicted one."""
    name = "as recorded" if prediction.unrecorded_ns is None else "unrecorded"
    found, samples = [Stage(name, prediction.now_ns, prediction.now_ns)], 1.0
    for step in prediction.steps:
        found.append(Stage(_name(step), step.step_ns, found[-1].step_ns, step.samples / samples, step.rule))
        samples = step.samples
    return tuple(found)


def longest_ns(shown: tuple[Stage, ...]) -> int:
    """The longest step of all stages: with a larger batch that is not the recorded one."""
    return max((stage.step_ns for stage in shown), default=0)


def critical_path(diagnosis: Diagnosis) -> str:
    """`compute 62 %, host work 30 %`: shares of the critical path, largest first; "" if the step was not replayed."""
    path = diagnosis.critical_path
    if path is None:
        return ""
    shares = sorted(path.share.items(), key=lambda item: -item[1])
    return ", ".join(
        f"{_KINDS.get(kind, kind.replace('_', ' '))} {wording.share(part)}" for kind, part in shares if part >= 0.01
    )


def heading(diagnosis: Diagnosis) -> str:
    prediction = diagnosis.prediction
    if prediction is not None and any(step.rule in SIZES for step in prediction.steps):
        return "What if: one after the other"
    if prediction is not None and len(prediction.steps) == 1 and not prediction.asked:
        return "Step with this fix"
    return "What if: fixed one after the other" if prediction and prediction.asked else "Fixed one after the other"


def change(stage: Stage) -> str:
    """`−107 ms`, or `1.3× the samples/s` where the number of samples changes; "" where nothing changes."""
    if stage.more != 1:
        return f"{wording.factor(stage.more * stage.before_ns / max(stage.step_ns, 1))}× the samples/s"
    change_ns = stage.step_ns - stage.before_ns
    return f"{'+' if change_ns > 0 else '−'}{wording.duration(abs(change_ns))}" if change_ns else ""


def _pace(prediction: Prediction) -> str:
    """The change in samples per second, the time for as many samples as recorded, and the scaling efficiency."""
    times, said = wording.speedup(prediction.speedup), []
    if prediction.samples != 1:
        said.append(f"{times} the samples a second.")
        of_rank = next((step for step in prediction.steps if step.rule == "batch"), None)
        if of_rank is not None and prediction.scaling is None:
            as_many_ns = prediction.step_ns[1] / prediction.samples
            said.append(f"The recorded number of samples takes {wording.duration(as_many_ns)}.")
    else:
        said.append(f"{times}.")
    if prediction.scaling is not None and prediction.scaling.recorded != prediction.scaling.asked:
        said.append(_efficiency(prediction.scaling))
    return " ".join(said)


def _efficiency(scaling: Scaling) -> str:
    about = wording.ranged(*map(wording.share, scaling.efficiency))
    if scaling.recorded is None:
        return f"Scaling efficiency from one rank to the recorded number of ranks: {about}."
    fewer, more = sorted((scaling.recorded, scaling.asked))
    return f"Scaling efficiency from {fewer} to {more} ranks: {about}."


def _worth_showing(diagnosis: Diagnosis) -> Prediction | None:
    """The prediction; None for a single finding that was not asked for, as the verdict says the same."""
    prediction = diagnosis.prediction
    return prediction if prediction is not None and (prediction.asked or len(prediction.steps) > 1) else None


def _name(step: PredictedStep) -> str:
    """The rule whose finding is fixed, with the degree if one was asked for: `launch-bound=50%`."""
    return clean(step.rule, _NAME_LIMIT) + (f"={clean(step.choice, _NAME_LIMIT)}" if step.choice else "")


def after_others(diagnosis: Diagnosis, advice: Advice) -> str:
    """The saving of a finding that saves only after the fixes above it; "" for any other."""
    prediction = diagnosis.prediction
    if prediction is None or prediction.asked or advice.saving_ns_per_step.high:
        return ""
    ranks = {each.rule: each.rank for each in diagnosis.findings}
    for place, stage in enumerate(stages(diagnosis)):
        before = prediction.steps[: max(place - 1, 0)]  # the first stage is the step as it is
        is_above = bool(before) and all(ranks.get(step.rule, advice.rank) < advice.rank for step in before)
        if stage.name == advice.rule and is_above and stage.step_ns < stage.before_ns:
            return f"saves {wording.duration(stage.before_ns - stage.step_ns)}, but only after the fixes above"
    return ""

"""What does the page show first? The step now and after the fixes, and what was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from perfdoctor.records.findings import Measure
from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean_name

if TYPE_CHECKING:
    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.findings import Advice


class Fact(Struct, frozen=True):
    """A number with its label and a short remark."""

    label: str
    value: str
    remark: str = ""


def facts(diagnosis: Diagnosis) -> tuple[Fact, ...]:
    """The known facts, the step first."""
    gpus, ranks = wording.machines(diagnosis)
    known = (
        _now(diagnosis),
        _then(diagnosis),
        Fact("GPU", gpus) if gpus else None,
        Fact("Ranks", ranks.removesuffix(" ranks").removesuffix(" rank")) if ranks else None,
        _steps(diagnosis),
        # Of the costliest finding, which the verdict is about.
        Fact("Confidence", diagnosis.findings[0].confidence, "of the first finding") if diagnosis.findings else None,
    )
    return tuple(fact for fact in known if fact is not None)


def check(diagnosis: Diagnosis, advice: Advice) -> str:
    """What a second recording shows if the fix worked."""
    number = next((each for each in advice.evidence if isinstance(each, Measure)), None)
    what = f"the same {diagnosis.basis.noun}s" if diagnosis.per_step else "the same"
    said = [f"Record {what} again: this finding should be gone."]
    if number is not None:
        now = wording.quantity(number.value, number.unit)
        said.append(f"Compare “{clean_name(number.label)}”: {now} in this recording.")
    saving, base = advice.saved, advice.run_ns or diagnosis.base_ns
    if saving.likely and base:
        about = wording.durations(*(max(base - ns, 0) for ns in (saving.high, saving.likely, saving.low)))
        it = diagnosis.basis.each.strip() or "the same recording"
        it = f"without a recorder, {it}" if diagnosis.stretched else it
        is_training = diagnosis.basis.noun == "step" and diagnosis.kind_of_work != "inference"
        it = f"with the same batch, {it}" if is_training else it
        it = "a training of as many steps" if advice.run_ns else it
        said.append(f"{it[0].upper()}{it[1:]} should take about {about} instead of {wording.duration(base)}.")
    return " ".join(said)


def _now(diagnosis: Diagnosis) -> Fact | None:
    if not diagnosis.base_ns:
        return None
    steps = diagnosis.steps
    low, high = wording.duration(steps.p10_ns), wording.duration(steps.p90_ns)
    remark = f"8 of 10 take {low} to {high}" if steps.used > 1 and low != high else ""
    noun = diagnosis.basis.noun.capitalize()
    if diagnosis.stretched:
        remark = f"unrecorded; {wording.duration(diagnosis.recorded_ns)} as recorded"
    return Fact(f"{noun} now" if noun else "Recorded", wording.duration(diagnosis.base_ns), remark)


def _then(diagnosis: Diagnosis) -> Fact | None:
    prediction = diagnosis.prediction
    if prediction is None:
        return None
    low, likely, high = prediction.step_ns
    about, is_one = wording.speedup(prediction.speedup), wording.duration(low) == wording.duration(high)
    label = "What if" if prediction.asked else "After the fixes"
    return Fact(label, f"≈ {wording.duration(likely)}", about if is_one else f"{wording.between(low, high)}, {about}")


def _steps(diagnosis: Diagnosis) -> Fact | None:
    steps = diagnosis.steps
    if not diagnosis.time:
        return None
    if not steps.count:
        return Fact("Steps", "none found", "all numbers are for the whole window")
    found = wording.found_by(steps)
    return Fact("Steps analysed", f"{wording.count(steps.used)} of {wording.count(steps.count)}", f"by {found}")

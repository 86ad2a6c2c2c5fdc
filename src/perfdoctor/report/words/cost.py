"""What does the run cost, and what would its findings save, in one line?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfdoctor.records.cost import HOURS_A_MONTH
from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perfdoctor.records.cost import Cost
    from perfdoctor.records.diagnosis import Diagnosis

#: A step costs a fraction of a cent: the first of these numbers of steps that costs at least a cent.
_STEPS = (1, 1_000, 1_000_000)
_CENT = 0.01
_CURRENCY_LIMIT, _SOURCE_LIMIT = 8, 80


def line(diagnosis: Diagnosis) -> str:
    """`Cost: 1.12 USD per 1,000 steps, … At 3.99 USD per GPU hour (…), all month …`; "" where nobody asked for it."""
    cost = diagnosis.cost
    if cost is None:
        return ""
    return " ".join((*_amounts(cost, diagnosis), _month(cost, diagnosis)))


def _amounts(cost: Cost, diagnosis: Diagnosis) -> Iterator[str]:
    currency = _currency(cost)
    known = []
    if cost.per_step:
        steps = next((steps for steps in _STEPS if cost.per_step * steps >= _CENT), _STEPS[-1])
        noun = diagnosis.basis.noun
        each = noun if steps == 1 else f"{wording.count(steps)} {noun}s"
        known.append(f"{wording.money(cost.per_step * steps, currency)} per {each}")
    if cost.per_million_items:
        what = "tokens" if cost.items == "tokens" else "loss targets"
        known.append(f"{wording.money(cost.per_million_items, currency)} per million {what}")
    if cost.per_run and cost.run_seconds:
        took = wording.duration(cost.run_seconds * 1e9)
        known.append(f"{wording.money(cost.per_run, currency)} for the recorded run of {took}")
    if known:
        yield f"Cost: {', '.join(known)}."


def _month(cost: Cost, diagnosis: Diagnosis) -> str:
    currency = _currency(cost)
    verb = "costs" if cost.gpus == 1 else "cost"
    month = f"{wording.money(cost.per_month, currency)} a month of {HOURS_A_MONTH} hours"
    said = f"At {_price(cost)}, {_gpus(cost)} {verb} {month}"
    if cost.saved_per_month is None or cost.saved_per_month[1] <= 0:
        return f"{said}."
    low, likely, high = (wording.money(amount, currency) for amount in cost.saved_per_month)
    about = likely if low == high else f"{likely} ({wording.money(cost.saved_per_month[0])} to {high})"
    asked = diagnosis.prediction is not None and diagnosis.prediction.asked
    what = "what was asked for" if asked else "the fixes"
    return f"{said}, of which {what} would save {about} for the same work."


def _price(cost: Cost) -> str:
    """`3.99 USD per GPU hour (NVIDIA H100 SXM at …, read on 2026-11-09)`; of the user's own price without a source."""
    price, said = cost.price, f"{wording.money(cost.price.per_gpu_hour, _currency(cost))} per GPU hour"
    gpu, source, date = (clean(text, _SOURCE_LIMIT) for text in (price.gpu, price.source, price.date))
    return f"{said} ({gpu} at {source}, read on {date})" if source else said


def _gpus(cost: Cost) -> str:
    """`8 GPUs`; `8 GPUs (1 recorded)` where the recording has fewer than the job has ranks."""
    said = wording.counted(cost.gpus, "GPU")
    said = "this GPU" if cost.gpus == 1 else f"these {said}"
    return said if cost.gpus == cost.recorded_gpus else f"{said} ({cost.recorded_gpus} recorded)"


def _currency(cost: Cost) -> str:
    return clean(cost.price.currency, _CURRENCY_LIMIT)

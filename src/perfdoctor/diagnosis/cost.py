"""What does this run cost, and what do its findings cost a month?

The only assumptions: all GPUs of the job are paid for as long as a step takes, and the GPUs run all month with the same
work. Then a step that is shorter by a share saves that share of the month's price.
"""

from __future__ import annotations

from msgspec.structs import replace

from perfdoctor.diagnosis.records import Examination
from perfdoctor.hardware.prices import Price, listed_prices
from perfdoctor.metrics.work.device_peaks import peaks
from perfdoctor.model.run import Run
from perfdoctor.records.cost import HOURS_A_MONTH, Cost, FindingCost
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.savings import Range

_NS_AN_HOUR = 3.6e12
_S_AN_HOUR = 3600
_MILLION = 1e6


def with_cost(examination: Examination, price: Price, run_seconds: float | None = None) -> Examination:
    """The examination with `diagnosis.cost`, if there is a GPU to pay for."""
    found = cost(examination.diagnosis, price, run_seconds)
    return replace(examination, diagnosis=replace(examination.diagnosis, cost=found))


def listed(run: Run) -> Price | None:
    """The list price of the run's GPUs; None where it is not known, or where GPUs of several prices run together."""
    names = {known.name if (known := peaks(place)) else "" for place in run.places if place.device is not None}
    return listed_prices().get(names.pop()) if len(names) == 1 else None


def cost(diagnosis: Diagnosis, price: Price, run_seconds: float | None = None) -> Cost | None:
    """The cost of the run in money; None for a run without a GPU. `run_seconds`: how long the recorded program ran."""
    recorded = len(diagnosis.gpus)
    if not recorded:
        return None
    gpus = max(recorded, diagnosis.world_size)  # each rank of a job with GPUs has one
    an_hour = price.per_gpu_hour * gpus
    per_step = an_hour * diagnosis.base_ns / _NS_AN_HOUR if diagnosis.per_step and diagnosis.base_ns else None
    known, predicted, per_month = diagnosis.efficiency, diagnosis.prediction, an_hour * HOURS_A_MONTH
    saved = None
    if predicted is not None and predicted.scaling is None:  # with the same GPUs, by the speedup of samples
        saved = Range(*(per_month * (1 - 1 / times) for times in predicted.speedup))
    items, of_gpu = (known.items, known.items_per_step or 0.0) if known else ("", 0.0)
    return Cost(
        price=price,
        gpus=gpus,
        recorded_gpus=recorded,
        per_step=per_step,
        per_million_items=per_step / (of_gpu * gpus) * _MILLION if per_step and of_gpu else None,
        items=items,
        per_run=an_hour * run_seconds / _S_AN_HOUR if run_seconds else None,
        run_seconds=run_seconds,
        per_month=per_month,
        saved_per_month=saved,
        findings=_findings(diagnosis, per_month),
    )


def _findings(diagnosis: Diagnosis, per_month: float) -> tuple[FindingCost, ...]:
    base, savings = diagnosis.base_ns, [(each.rule, each.saving_ns_per_step) for each in diagnosis.findings]
    return tuple(
        FindingCost(rule, Range(*(per_month * saved / base for saved in (ns.low, ns.likely, ns.high))))
        for rule, ns in savings
        if base and ns.high
    )

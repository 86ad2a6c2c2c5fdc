"""What does the run cost, and what would its findings save?"""

from __future__ import annotations

from msgspec import Struct, field

from perfdoctor.hardware.prices import Price
from perfdoctor.records.savings import Range

#: A year has 8,760 hours: what providers take for a month, too.
HOURS_A_MONTH = 730


class FindingCost(Struct, frozen=True):
    """What a month costs more for one finding, in money: the range of its saving."""

    rule: str
    per_month: Range[float] = field(name="saved_per_month")


class Cost(Struct, frozen=True):
    """Money in `price.currency`; None where a number is not known.

    `gpus`: of the job, of which `recorded_gpus` are in the recording. `per_step`: of all of them, for a step without a
    recorder where that is known. `per_million_items`: of `items`, tokens or targets of the loss. `per_run`: of the
    program's run that was recorded, which took `run_seconds`. `per_month`: if these GPUs run all month; then
    `saved_per_month` is what the predicted step saves of it, where the work stays the same, and
    `findings` what each finding saves alone.
    """

    price: Price
    gpus: int
    recorded_gpus: int
    per_step: float | None
    per_million_items: float | None
    items: str
    per_run: float | None
    run_seconds: float | None
    per_month: float
    saved_per_month: Range[float] | None
    findings: tuple[FindingCost, ...]
    hours_a_month: int = HOURS_A_MONTH

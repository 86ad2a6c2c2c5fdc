"""A share of these kernels, copies or collectives: the shape of findings about one kind of work on the device.

The detector chooses rows of each place and says which share of their time a fix takes away. What counts is the time in
which they alone keep the device: of kernels that in which no other kernel runs, of copies and collectives that in which
no kernel does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import numpy as np

from perfdoctor.detectors.affected import Affected, affected, affected_in_job
from perfdoctor.metrics.communication.collectives import exposed_rows_ns
from perfdoctor.metrics.copies.transfers import bytes_of, exposed_ns
from perfdoctor.metrics.finding_rows import largest, work_of
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Mask
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.run import Run
from perfdoctor.model.steps import Confidence
from perfdoctor.records.findings import Evidence, Finding, Measure, Value
from perfdoctor.records.savings import Saving

#: One bool a row of a place's kernels, copies or collectives.
RowsOf = Callable[[Place], Mask]


class Work(Affected, frozen=True):
    """Chosen work and its time in a step. `rows`: one bool a row of the place's kernels, copies or collectives."""

    rows: RowsOf

    @property
    def worst_rows(self) -> Mask:
        """The rows of the worst place: one bool a row."""
        return self.rows(self.worst)

    @property
    def per_step(self) -> float:
        """How many of them a step has, on the worst place."""
        return float(np.count_nonzero(self.worst_rows)) / self.worst.units

    def kernel_values(self) -> dict[str, Value]:
        """What most rules about kernels say: kernels_per_step, kernels_ms, step_ms, kernels_percent."""
        return {"kernels_per_step": self.per_step, **self.time_values("kernels")}

    def megabytes(self) -> float:
        """What these copies move a step, on the worst place."""
        return bytes_of(self.worst, self.worst_rows) / self.worst.units / 1e6

    def copy_values(self) -> dict[str, Value]:
        """What most rules about copies say: copies_per_step, megabytes, exposed_ms, step_ms, exposed_percent."""
        return {"copies_per_step": self.per_step, "megabytes": self.megabytes(), **self.time_values("exposed")}

    def kernel_evidence(self, counted: str) -> tuple[Evidence, ...]:
        """How many kernels, how long they take, and the largest of them."""
        return (
            Measure(counted, self.per_step, "count"),
            Measure("their time", self.ns, "ns"),
            largest(self.worst, self.worst_rows, "Largest of them, a step"),
        )

    def finding(
        self,
        *,
        rule: str,
        saving: Saving,
        confidence: Confidence,
        values: Mapping[str, Value],
        evidence: tuple[Evidence, ...],
        situation: str = "",
        symptom_of: tuple[str, ...] = (),
        explains: tuple[str, ...] = (),
        acts_on: RowsOf | None = None,
        bound_ns: int | None = None,
        formula: str = "",
        sources: Mapping[str, str] | None = None,
    ) -> Finding:
        """A finding about this work. `acts_on`: the rows on which the rule's action acts, where it counts them so."""
        return Finding(
            rule=rule,
            saving_ns_per_step=saving,
            confidence=confidence,
            values=values,
            evidence=evidence,
            situation=situation,
            symptom_of=symptom_of,
            explains=explains,
            work=work_of(self.run, acts_on or self.rows),
            affected_ns=self.ns,
            bound_ns=bound_ns,
            formula=formula,
            sources=sources or {},
        )


def of_kernels(run: Run, rows: RowsOf, least_share: float = 0.0) -> Work | None:
    """These rows of `place.kernels`; None where they take less than this share of the step."""
    return _of_work(run, rows, lambda place, chosen: place.alone_ns(chosen), least_share)


def of_copies(run: Run, rows: RowsOf, least_share: float = 0.0) -> Work | None:
    """These rows of `place.copies`; None where they are exposed for less than this share of the step."""
    return _of_work(run, rows, exposed_ns, least_share)


def of_collectives(
    run: Run, rows: RowsOf, transfer_share: float, least_share: float = 0.0, *, of_job: bool = False
) -> Work | None:
    """These rows of `place.collectives`; `transfer_share` of their exposed time counts, since the rest is waiting.

    `of_job`: as in `affected`, where `rows` is kept with a rank's summary.
    """
    if of_job:
        return of_collectives_in_job(run, cast("Callable[[JobPlace], Mask]", rows), transfer_share, least_share)
    return _of_work(run, rows, lambda place, chosen: exposed_rows_ns(place, chosen) * transfer_share, least_share)


def of_collectives_in_job(
    run: Run, rows: Callable[[JobPlace], Mask], transfer_share: float, least_share: float = 0.0
) -> Work | None:
    """The same, asked of all ranks of the job, also of those that were not read in full."""
    chosen = once_per_place(rows)
    time = affected_in_job(run, lambda place: exposed_rows_ns(place, chosen(place)) * transfer_share, least_share)
    return Work(run, time.ns, time.share, time.worst, chosen) if time else None


def _of_work(run: Run, rows: RowsOf, time_of: Callable[[Place, Mask], float], least_share: float) -> Work | None:
    chosen = once_per_place(rows)
    time = affected(run, lambda place: time_of(place, chosen(place)), least_share)
    return Work(run, time.ns, time.share, time.worst, chosen) if time else None

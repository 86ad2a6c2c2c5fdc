"""A share of these kernels, copies or collectives: the shape of findings about one kind of work on the device.

The detector chooses rows of each place and says which share of their time a fix takes away. What counts is the time in
which they alone keep the device: of kernels that in which no other kernel runs, of copies and collectives that in which
no kernel does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from perfdoctor.detectors.affected import Affected, affected
from perfdoctor.metrics.communication.collectives import exposed_rows_ns
from perfdoctor.metrics.copies.transfers import bytes_of, exposed_ns
from perfdoctor.metrics.finding_rows import largest, work_of
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Mask
from perfdoctor.model.place import Place
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
        """The values that most rules about kernels show.

        Returns:
            kernels_per_step, kernels_ms, step_ms and kernels_percent.
        """
        return {"kernels_per_step": self.per_step, **self.time_values("kernels")}

    def bytes_per_step(self) -> float:
        """What these copies move a step, on the worst place, in bytes."""
        return bytes_of(self.worst, self.worst_rows) / self.worst.units

    def megabytes(self) -> float:
        """What these copies move in a step, on the worst place.

        Returns:
            Megabytes of 1,000,000 bytes.
        """
        return self.bytes_per_step() / 1e6

    def hideable_ns(self) -> int:
        """How much of the exposed time of these copies compute without copies beside it could hide, in ns a step."""
        return min(self.run.mean(lambda place: hideable_ns(place, exposed_ns(place, self.rows(place)))), self.ns)

    def copy_values(self) -> dict[str, Value]:
        """The values that most rules about copies show.

        Returns:
            copies_per_step, megabytes, exposed_ms, step_ms and exposed_percent.
        """
        return {"copies_per_step": self.per_step, "megabytes": self.megabytes(), **self.time_values("exposed")}

    def kernel_evidence(self, counted: str) -> tuple[Evidence, ...]:
        """How many kernels there are, how long they take, and the largest of them.

        Args:
            counted: The label of the count.

        Returns:
            Two measures and a table.
        """
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
        """A finding about this work, which names the rows for the replay.

        Args:
            rule: The id of the rule.
            saving: What a fix saves of a step, in ns.
            confidence: How sure the detector is.
            values: The values that the rule's sentences and formulas name.
            evidence: What the report shows beside the sentence.
            situation: The key of the rule's `[summaries]` whose sentence fits; "" for `summary`.
            symptom_of: The ids of rules of which this finding is a symptom.
            explains: The ids of rules whose findings are symptoms of this one.
            acts_on: The rows on which the rule's action acts; those of this work, if not given.
            bound_ns: What a fix can save at most of a step, in ns, where that is known.
            formula: The key of `[derivation.situations]` whose formulas hold, where it is not that of the situation.
            sources: From which source an input of the formula comes, by its name, where that depends on the recording.

        Returns:
            The finding.
        """
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


def hideable_ns(place: Place, ns: int) -> int:
    """How much of `ns` of exposed copies compute without copies beside it could hide, in ns of the window."""
    return min(ns, (place.compute - place.copying).total_ns)


def of_kernels(run: Run, rows: RowsOf, least_share: float = 0.0) -> Work | None:
    """Kernels that the detector chooses, and the time in which no other kernel runs.

    Args:
        run: The run.
        rows: One bool a row of `place.kernels`: is it one of them?
        least_share: The least share of the step that counts, from 0 to 1.

    Returns:
        The work; None where it takes less than `least_share` of the step.
    """
    return _of_work(run, rows, lambda place, chosen: place.alone_ns(chosen), least_share)


def of_copies(run: Run, rows: RowsOf, least_share: float = 0.0) -> Work | None:
    """Copies that the detector chooses, and the time in which they are exposed.

    Args:
        run: The run.
        rows: One bool a row of `place.copies`: is it one of them?
        least_share: The least share of the step that counts, from 0 to 1.

    Returns:
        The work; None where it is exposed for less than `least_share` of the step.
    """
    return _of_work(run, rows, exposed_ns, least_share)


def of_collectives(
    run: Run, rows: RowsOf, transfer_share: float, least_share: float = 0.0, *, of_job: bool = False
) -> Work | None:
    """Collectives that the detector chooses, and the time in which they are exposed.

    Args:
        run: The run.
        rows: One bool a row of `place.collectives`: is it one of them?
        transfer_share: The share of their exposed time that counts, from 0 to 1: the rest is waiting for other ranks.
        least_share: The least share of the step that counts, from 0 to 1.
        of_job: Is `rows` kept with a rank's summary? Then all ranks are asked, as in `affected`.

    Returns:
        The work; None where that time is less than `least_share` of the step.
    """

    def time_of(place: Place, chosen: Mask) -> float:
        return exposed_rows_ns(place, chosen) * transfer_share

    return _of_work(run, rows, time_of, least_share, of_job=of_job)


def _of_work(
    run: Run, rows: RowsOf, time_of: Callable[[Place, Mask], float], least_share: float, *, of_job: bool = False
) -> Work | None:
    chosen = once_per_place(rows)
    time = affected(run, lambda place: time_of(place, chosen(place)), least_share, of_job=of_job)
    return Work(run, time.ns, time.share, time.worst, chosen) if time else None

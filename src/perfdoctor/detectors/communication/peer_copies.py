"""GPUs copy from one another, with nothing beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.affected import affected
from perfdoctor.detectors.of_work import hideable_ns
from perfdoctor.metrics.accounting.longest import longest_exposed
from perfdoctor.metrics.copies.transfers import by_op, bytes_of, copies_of, exposed_ns, stood_ns
from perfdoctor.metrics.units import ms
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find copies as a pipeline or nn.DataParallel makes them; transfers of NCCL are kernels, and no copies."""

    def stood(place: Place) -> int:
        return stood_ns(run, place)

    found = affected(run, stood, at["min_share_of_step"])
    if found is None:
        return
    worst = run.worst(lambda place: exposed_ns(place, copies_of(place, "p2p")))
    rows = copies_of(worst, "p2p")
    hideable = min(run.mean(lambda place: hideable_ns(place, stood(place))), found.ns)
    size = bytes_of(worst, rows)
    yield Finding(
        rule="peer-copies",
        saving_ns_per_step=Saving(0, int(hideable * (1 - 1 / at["micro_batches"])), found.ns),
        confidence="medium",
        values={
            "copies_per_step": rows.sum() / worst.units,
            "megabytes": size / worst.units / 1e6,
            **found.time_values("exposed"),
            "hideable_ms": ms(hideable),
        },
        evidence=(
            Measure("copies between GPUs with nothing beside them, on either side", found.ns, "ns"),
            Measure("compute that could hide them", hideable, "ns"),
            by_op(worst, rows, f"Copies between GPUs of rank {worst.rank}, a step"),
            *longest_exposed(run, "copies", lambda place: copies_of(place, "p2p")),
        ),
    )

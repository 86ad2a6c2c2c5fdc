"""GPUs copy from one another, with nothing beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.affected import affected
from perfdoctor.metrics.accounting.longest import longest_exposed
from perfdoctor.metrics.copies.transfers import by_op, bytes_of, copies_of, exposed_ns
from perfdoctor.metrics.units import ms
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving


def _waiting_for(run: Run, place: Place) -> Intervals:
    """When this device stood still while another one of its process copied to a GPU.

    Such a copy is recorded on the device in whose stream it runs. The other one waits as well, and has no row of it.
    """
    copied = Intervals.empty()
    for other in run.places:
        if other.rank == place.rank and other.device != place.device:
            rows = copies_of(other, "p2p")
            copied = copied | Intervals.of(other.copies.start_ns[rows], other.copies.end_ns[rows])
    return copied & place.idle


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Transfers of NCCL are kernels, and no copies: those of a pipeline or of nn.DataParallel are."""

    def stood(place: Place) -> int:
        return exposed_ns(place, copies_of(place, "p2p")) + _waiting_for(run, place).total_ns

    found = affected(run, stood, at["min_share_of_step"])
    if found is None:
        return
    worst = run.worst(lambda place: exposed_ns(place, copies_of(place, "p2p")))
    rows = copies_of(worst, "p2p")
    hideable = min(run.mean(lambda place: min(stood(place), (place.compute - place.copying).total_ns)), found.ns)
    size = bytes_of(worst, rows)
    yield Finding(
        rule="peer-copies",
        saving_ns_per_step=Saving(0, int(hideable * at["hideable_share_likely"]), found.ns),
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

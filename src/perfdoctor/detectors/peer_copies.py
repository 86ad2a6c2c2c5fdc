"""GPUs copy from one another, with nothing beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.findings import Finding, Measure, Saving
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.transfers import by_op, bytes_of, copies_of, exposed_ns
from perfdoctor.metrics.units import ms, percent


def _peer_ns(place: Place) -> int:
    return exposed_ns(place, copies_of(place, "p2p"))


def _hideable_ns(place: Place) -> int:
    return min(_peer_ns(place), (place.compute - place.copying).total_ns)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Transfers of NCCL are kernels, and no copies: those of a pipeline or of nn.DataParallel are."""
    share = run.share(_peer_ns)
    if share < at["min_share_of_step"]:
        return
    peer, worst = run.mean(_peer_ns), run.worst(_peer_ns)
    rows = copies_of(worst, "p2p")
    hideable = min(run.mean(_hideable_ns), peer)
    size = bytes_of(worst, rows)
    yield Finding(
        rule="peer-copies",
        saving_ns_per_step=Saving(0, hideable // 2, peer),
        confidence="medium",
        values={
            "copies_per_step": rows.sum() / worst.units,
            "megabytes": size / worst.units / 1e6,
            "exposed_ms": ms(peer),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(share),
        },
        evidence=(
            Measure("copies between GPUs with nothing beside them", peer, "ns"),
            Measure("compute that could hide them", hideable, "ns"),
            by_op(worst, rows, f"Copies between GPUs of rank {worst.rank}, a step"),
        ),
    )

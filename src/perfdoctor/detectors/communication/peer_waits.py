"""The host stands in a barrier or waits for another process while its device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.accounting.behind_idle import culprits, each_step_ns, host_rows, table
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def _lost_ns(place: Place) -> int:
    return place.idle_ns("peer_wait")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Waits on the host, beside collectives on the device: barriers, stores, collectives of Python objects."""
    share = run.share(_lost_ns)
    if share < at["min_share_of_step"]:
        return
    lost_ns, worst = run.mean(_lost_ns), run.worst(_lost_ns)
    pieces = worst.idle_causes["peer_wait"]
    each_ns = each_step_ns(worst, pieces)
    named = culprits(pieces, host_rows(worst, ("ops", "ranges", "functions")))
    yield Finding(
        rule="peer-waits",
        saving_ns_per_step=saving(lost_ns, at["recoverable_share_low"], at["recoverable_share_likely"]),
        confidence="medium",
        values={
            "lost_ms": ms(lost_ns),
            "step_ms": ms(run.step_ns),
            "lost_percent": percent(share),
            "steps_hit": int((each_ns > 0).sum()),
            "steps_seen": int(each_ns.size),
            "longest_ms": ms(int(pieces.durations_ns.max(initial=0))),
            "name": named[0].name if named else "a barrier",
        },
        evidence=(
            Measure("idle while the host waited for other ranks", lost_ns, "ns"),
            Measure("such waits a step", len(pieces) / worst.units, "count"),
            Measure("longest", int(pieces.durations_ns.max(initial=0)), "ns"),
            *((table("Innermost meanwhile", worst, named),) if named else ()),
        ),
        situation="" if run.per_step else "window",
    )

"""Large messages between GPUs of one machine move far slower than the links between them do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.findings import Finding, Measure
from perfdoctor.hardware.links import link_of
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.collectives import bandwidth_table, bandwidths, transfer_share
from perfdoctor.metrics.moved import work_of
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.timeline.model import Mask

#: Rings of these reach every link's rate; an all-to-all also crosses pairs that have no link.
_ON_RINGS = ("all_reduce", "all_gather", "reduce_scatter")


def _like(place: Place, kind: str, least_bytes: float) -> Mask:
    frame = place.collectives
    rows: Mask = frame.text("kind").equals(kind) & (frame["bytes"] >= least_bytes)
    return rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Bus bandwidth of transfers alone, held against what the sparsest board gives between two GPUs."""
    measured = [
        each
        for each in bandwidths(run, at["large_message_bytes"])
        if each.kind in _ON_RINGS and each.one_node and link_of(each.gpu) is not None
    ]
    if not measured:
        return
    worst = measured[0]  # the most exposed
    link = link_of(worst.gpu)
    assert link is not None
    exposed_ns = int(worst.exposed_ns * transfer_share(run))
    expected = link.pair_bytes_per_second
    reached = worst.bus_bytes_per_second / expected
    if reached >= at["min_share_of_link"] or exposed_ns < at["min_share_of_step"] * run.step_ns:
        return

    yield Finding(
        rule="slow-links",
        saving_ns_per_step=saving(
            exposed_ns,
            1 - reached / at["min_share_of_link"],
            1 - reached,
            1 - worst.bus_bytes_per_second / link.peak_bytes_per_second,
        ),
        confidence="high",
        values={
            "bus_gb_per_second": worst.bus_bytes_per_second / 1e9,
            "expected_gb_per_second": expected / 1e9,
            "link": link.name,
            "exposed_ms": ms(exposed_ns),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(exposed_ns / run.step_ns),
        },
        evidence=(
            Measure("bus bandwidth", worst.bus_bytes_per_second, "bytes_per_second"),
            Measure("what two linked GPUs have between them", expected, "bytes_per_second"),
            bandwidth_table(measured),
        ),
        work=work_of(run, lambda place: _like(place, worst.kind, at["large_message_bytes"])),
        counted_ns=exposed_ns,
    )

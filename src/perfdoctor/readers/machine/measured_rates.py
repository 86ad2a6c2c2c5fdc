"""How does what a machine gave when it was measured join a recording? As rates, and its links as measured links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from perfdoctor.hardware.measured import MeasuredRates
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.readers import text_rows

#: Only NCCL's links are those of a training's GPUs.
_BACKEND = "nccl"


def joined(timeline: Timeline, measured: Sequence[MeasuredRates]) -> Timeline:
    """The timeline with these rates; the same one without any."""
    if not measured:
        return timeline
    rows = [row for rates in measured for row in _links(rates)]
    if not rows:
        return replace(timeline, measured=tuple(measured))
    links = Frame.join([timeline["link_tests"], text_rows.frame("link_tests", rows)])
    return replace(
        timeline,
        measured=tuple(measured),
        frames={**timeline.frames, "link_tests": links},
        recorded=timeline.recorded | {"link_tests"},
    )


def _links(rates: MeasuredRates) -> Iterator[dict[str, object]]:
    for each in rates.steady("all_reduce"):
        if each.backend != _BACKEND or each.ranks < 2:
            continue
        carried = 2 * (each.ranks - 1) / each.ranks * each.bytes
        yield {
            "name": "all_reduce", "source": "perfdoctor selftest", "gpu": rates.machine.device, "ranks": each.ranks,
            "bytes": each.bytes, "time_ns": round(carried / each.median * 1e9), "bus_bytes_per_second": each.median,
        }  # fmt: skip

"""Which numbers of a training that runs does Prometheus get? Gauges of `watch.json`, in a file or on a port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfdoctor.export.numbers import Gauge, Number, families, open_metrics
from perfdoctor.system.paths import write_whole
from perfdoctor.watching.document import WatchDocument

_NS = 1e-9
STEPS = Gauge("watched_steps", "Steps that the rank has made.", ("rank",))
STEP = Gauge("watched_step_seconds", "Median length of the latest steps.", ("rank",))
WAIT = Gauge("watched_input_wait_ratio", "Share of a step that waits for the next batch.", ("rank",))
HELD = Gauge("watched_memory_bytes", "Memory that the process holds.", ("rank",))
GPU = Gauge("watched_gpu_memory_bytes", "GPU memory that tensors hold.", ("rank",))
LAST = Gauge("watched_last_step_timestamp_seconds", "When the last step that is known ended, since 1970.", ("rank",))
HANGS = Gauge("watched_hangs", "1 while no step ends.")
ANOMALIES = Gauge("watched_anomalies", "Anomalies that were found so far, by kind.", ("kind",))
WINDOWS = Gauge("watched_windows", "Windows that were opened so far.")


def numbers(document: WatchDocument) -> Iterator[Number]:
    """The numbers, by gauge."""
    for gauge, name, scale in (
        (STEPS, "steps", 1), (STEP, "step_ns", _NS), (WAIT, "wait_share", 1), (HELD, "held_bytes", 1),
        (GPU, "gpu_bytes", 1), (LAST, "last_step_unix_ns", _NS),
    ):  # fmt: skip
        for rank in document.ranks:
            yield Number(gauge, float(getattr(rank, name)) * scale, (str(rank.rank),))
    yield Number(HANGS, float(document.state == "hangs"))
    kinds = [each.kind for each in document.anomalies]
    for kind in sorted(set(kinds)):
        yield Number(ANOMALIES, float(kinds.count(kind)), (kind,))
    yield Number(WINDOWS, float(len(document.windows)))


def write(target: Path, document: WatchDocument, run: str) -> None:
    """Write the file, whole or not at all. Raises OSError."""
    write_whole(target, open_metrics(list(numbers(document)), run).encode())


class Port:
    """Gives the numbers of the latest `document` on a port of this machine alone, for as long as the process lives.

    Raises OSError or OverflowError where that port cannot be had.
    """

    def __init__(self, number: int, run: str) -> None:
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 (an extra)

        self.document: WatchDocument | None = None
        self._run = run
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        start_http_server(number, addr="127.0.0.1", registry=registry)

    def collect(self) -> list[Any]:
        """What prometheus_client asks for when it is scraped."""
        return families(list(numbers(self.document)), self._run) if self.document is not None else []

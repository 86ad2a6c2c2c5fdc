"""What does Prometheus read? The numbers of a diagnosis as text for node_exporter's textfile collector.

The collector parses the classic text format, and refuses files in which samples have timestamps. What OpenMetrics adds
for gauges (`# UNIT`, `# EOF`) is a comment there: this text is valid in both formats. Only help texts are escaped
differently, so that ours hold neither quotes nor backslashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from perfdoctor.export.numbers import PREFIX, Gauge, Number

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily


def render(numbers: Sequence[Number], run: str) -> str:
    """The whole text. `run`: the label of all its samples, by which files in one folder differ."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 (an extra)
    from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Diagnosis(numbers, run))  # type: ignore[arg-type,unused-ignore] # any object that collects
    text: str = generate_latest(registry).decode()
    return text


class _Diagnosis:
    """A collector that prometheus-client asks for the metrics of one recording."""

    def __init__(self, numbers: Sequence[Number], run: str) -> None:
        self._numbers, self._run = numbers, run

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for metric, numbers in groupby(self._numbers, key=lambda number: number.metric):
            yield _family(metric, numbers, self._run)


def _family(metric: Gauge, numbers: Iterable[Number], run: str) -> GaugeMetricFamily:
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

    family = GaugeMetricFamily(PREFIX + metric.name, metric.help, labels=("run", *metric.labels), unit=metric.unit)
    for number in numbers:
        family.add_metric([run, *number.labels], number.value)
    return family

"""What does Prometheus read? The numbers of a diagnosis as text for node_exporter's textfile collector.

The collector parses the classic text format, and refuses files in which samples have timestamps. What OpenMetrics adds
for gauges (`# UNIT`, `# EOF`) is a comment there: this text is valid in both formats. Only help texts are escaped
differently, so that ours hold neither quotes nor backslashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from types import SimpleNamespace

from perfdoctor.export.numbers import PREFIX, Number


def render(numbers: Sequence[Number], run: str) -> str:
    """The whole text. `run`: the label of all its samples, by which files in one folder differ."""
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 (an extra)
    from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415

    families = []
    for metric, samples in groupby(numbers, key=lambda number: number.metric):
        labels = ("run", *metric.labels)
        families.append(GaugeMetricFamily(PREFIX + metric.name, metric.help, labels=labels, unit=metric.unit))
        for number in samples:
            families[-1].add_metric([run, *number.labels], number.value)
    registry = SimpleNamespace(collect=lambda: families)  # of a registry nothing else is asked
    text: str = generate_latest(registry).decode()  # type: ignore[arg-type,unused-ignore]
    return text

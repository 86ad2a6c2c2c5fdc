"""Which numbers of a diagnosis do other tools follow over time? `numbers.toml` says what each is called there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perfdoctor.history.metrics import step_ns
from perfdoctor.records.savings import CASES
from perfdoctor.system.toml_tables import shipped_table
from perfdoctor.vocabulary.parts import IDLE_CAUSES, PARTS

if TYPE_CHECKING:
    from perfdoctor.history.facts import Facts, Row
    from perfdoctor.records.cost import Cost

PREFIX = "perfdoctor_"
_NS = 1e-9
_UNITS = ("seconds", "bytes", "ratio")


class Gauge(Struct, frozen=True):
    """`name` without the prefix; `labels`: besides `run`.

    `column`: of a run in the history, where that holds the number; in ns if its name ends with `_ns`.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    column: str = ""

    @property
    def unit(self) -> str:
        """The last word of the name, where that is a base unit."""
        last = self.name.rpartition("_")[2]
        return last if last in _UNITS else ""


class Number(Struct, frozen=True):
    """The value of a metric with these values of its labels."""

    metric: Gauge
    value: float
    labels: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name with labels, for tools without labels: `finding_saving_seconds/input-wait/likely`."""
        return "/".join((self.metric.name, *self.labels))


METRICS: Mapping[str, Gauge] = {
    name: Gauge(name, row["help"], tuple(row.get("labels", ())), row.get("column", ""))
    for name, row in shipped_table(Path(__file__).with_suffix(".toml")).items()
}
#: What trackers have in another place: the time of a run, and its tags.
OF_THE_RUN = ("run_info", "recorded_timestamp_seconds")


def numbers(facts: Facts, cost: Cost | None) -> tuple[Number, ...]:
    """The known numbers in the order of METRICS. `facts`: as the history stores them."""
    found = [
        *_columns(facts.run),
        *_of_the_run(facts.run),
        *_parts(facts),
        *_findings(facts),
        *(_cost(cost) if cost else ()),
    ]
    order = {name: place for place, name in enumerate(METRICS)}
    return tuple(sorted(found, key=lambda number: order[number.metric.name]))


def _known(name: str, value: Any, *labels: str, scale: float = 1.0) -> Iterator[Number]:
    if value is not None:
        yield Number(METRICS[name], float(value) * scale, labels)


def _columns(run: Row) -> Iterator[Number]:
    for metric in METRICS.values():
        if metric.column:
            yield from _known(metric.name, run.get(metric.column), scale=_NS if metric.column.endswith("_ns") else 1.0)


def _of_the_run(run: Row) -> Iterator[Number]:
    about = [str(run[name] or "") for name in ("perfdoctor", "program", "device", "work")]
    yield Number(METRICS["run_info"], 1.0, tuple(about))
    recorded_at = datetime.fromisoformat(f"{run['recorded_at'][:-1]}+00:00")
    yield from _known("recorded_timestamp_seconds", recorded_at.timestamp())
    yield from _known("step_seconds", step_ns(run), scale=_NS)
    for case, column in zip(CASES, ("predicted_low_ns", "predicted_ns", "predicted_high_ns"), strict=True):
        yield from _known("predicted_step_seconds", run.get(column), case, scale=_NS)
    if items := run.get("items"):
        yield from _known("items_per_second", run.get("items_per_second"), items)


def _parts(facts: Facts) -> Iterator[Number]:
    """Time and share of each part, also if they are zero: a series that ends looks like a recording that failed."""
    window, step = facts.run["window_ns"], facts.run.get("recorded_step_ns")
    if not window:
        return
    share = {**dict.fromkeys(PARTS, 0.0), **{part["part"]: part["ns"] / window for part in facts.parts}}
    for part in PARTS:
        yield from _known("part_ratio", share[part], part)
        if step:
            yield from _known("part_seconds", share[part] * step, part, scale=_NS)
    yield from _known("idle_ratio", sum(share[cause] for cause in IDLE_CAUSES))


def _findings(facts: Facts) -> Iterator[Number]:
    causes = [finding for finding in facts.findings if finding["symptom_of"] is None]
    yield from _known("findings", len(causes))
    step = facts.run.get("step_ns")
    base = step or facts.run["window_ns"]
    # The costliest of each rule: two findings of one rule would have the same labels.
    for finding in {finding["rule"]: finding for finding in reversed(causes)}.values():
        for case in CASES:
            saved = finding[f"{case}_ns"]
            if step:
                yield from _known("finding_saving_seconds", saved, finding["rule"], case, scale=_NS)
            if base:
                yield from _known("finding_saving_ratio", saved / base, finding["rule"], case)


def _cost(cost: Cost) -> Iterator[Number]:
    currency = cost.price.currency
    yield from _known("gpu_hour_price", cost.price.per_gpu_hour, currency)
    yield from _known("step_cost", cost.per_step, currency)
    yield from _known("million_items_cost", cost.per_million_items, cost.items, currency)
    yield from _known("month_cost", cost.per_month, currency)
    for case, saved in zip(CASES, cost.saved_per_month or (), strict=False):
        yield from _known("month_saving", saved, currency, case)


def families(found: Sequence[Number], run: str) -> list[Any]:
    """The numbers as metrics of prometheus_client. `run`: a label of all, by which files differ."""
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 (an extra)

    made = []
    for metric, samples in groupby(found, key=lambda number: number.metric):
        labels = ("run", *metric.labels)
        made.append(GaugeMetricFamily(PREFIX + metric.name, metric.help, labels=labels, unit=metric.unit))
        for number in samples:
            made[-1].add_metric([run, *number.labels], number.value)
    return made


def open_metrics(found: Sequence[Number], run: str) -> str:
    """The numbers as text for node_exporter's textfile collector.

    The collector parses the classic text format, and refuses files in which samples have timestamps. What OpenMetrics
    adds for gauges (`# UNIT`, `# EOF`) is a comment there: this text is valid in both formats. Only help texts are
    escaped differently, so that ours hold neither quotes nor backslashes.
    """
    from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415 (an extra)

    registry = SimpleNamespace(collect=lambda: families(found, run))  # of a registry nothing else is asked
    text: str = generate_latest(registry).decode()  # type: ignore[arg-type,unused-ignore]
    return text

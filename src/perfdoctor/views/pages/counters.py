"""The page `counters`: what did the GPU's own counters measure, over time and on the mean?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfdoctor.metrics.counters.samples import CounterSamples, usable
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.gpu_metrics import GpuMetric
from perfdoctor.records.views import Axis, Chart, Series, Table, Unit
from perfdoctor.views.lines import lines, thinned
from perfdoctor.views.tables import numbers, place_names, table, text
from perfdoctor.vocabulary.gpu_counters import COUNTERS, Counter

_Sampled = list[tuple[str, Place, CounterSamples]]
#: The tables: the unit in `gpu_metrics`, the title, the unit shown, and the factor to it.
_TABLES: tuple[tuple[str, str, Unit, float], ...] = (
    ("percent", "Counters of the GPU, of their peak", "share", 0.01),
    ("hertz", "Clocks of the GPU", "hertz", 1.0),
)


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table | Chart]:
    names = place_names(run.places)
    sampled = [(name, place, found) for name, place in zip(names, run.places, strict=True) if (found := usable(place))]
    yield from _table(run, names, diagnosis)
    for column, counted in COUNTERS.items():
        yield from _chart(column, counted, sampled)


def _table(run: Run, names: list[str], diagnosis: Diagnosis) -> Iterator[Table]:
    """One table a unit: a table's column has one."""
    whose = {place.rank_and_device: name for place, name in zip(run.places, names, strict=True)}
    for unit, title, shown, factor in _TABLES:
        rows = [row for row in diagnosis.gpu_metrics if row.unit == unit and row.recording_mean]

        def values(field: str, rows: list[GpuMetric] = rows, factor: float = factor) -> list[float]:
            return [np.nan if (value := getattr(row, field)) is None else value * factor for row in rows]

        yield from table("counters", f"counters-{unit}", title, "Counters that are 0 all the time are left out.", [
            text("counter", [row.name for row in rows]),
            text("place", [whose.get((row.rank, row.device), "") for row in rows]),
            numbers("while kernels ran", shown, values("mean_in_kernels"), "Each sample by the time of kernels in it."),
            numbers("in the analysed window", shown, values("mean")),
            numbers("in the whole recording", shown, values("recording_mean"), "All samples alike."),
            numbers("samples", "count", [row.samples for row in rows]),
        ])  # fmt: skip


def _chart(column: str, counted: Counter, sampled: _Sampled) -> Iterator[Chart]:
    """The counter over the window; nothing where it is 0 all the time, or unknown."""
    drawn = []
    for name, place, found in sampled:
        inside = place.window.overlap_ns(found.starts, found.ends) > 0
        values = found.rows.floats(column)[inside]
        if np.nan_to_num(values).any():
            drawn.append((name, (found.starts[inside] - place.window.starts[0]).astype(np.float64), values))
    if not drawn:
        return
    unit: Unit = "share" if counted.is_share else "hertz"
    every = np.concatenate([values for *_, values in drawn])
    label = counted.label[0].upper() + counted.label[1:]
    yield Chart(
        "counters", f"counters-{counted.metric.replace('_', '-')}", label, "{lowest} to {highest}, mean {mean}.",
        Axis("time since the start of the window", "ns"), Axis(counted.label, unit), _series(drawn),
        {"lowest": (float(np.nanmin(every)), unit), "highest": (float(np.nanmax(every)), unit),
         "mean": (float(np.nanmean(every)), unit)},
    )  # fmt: skip


def _series(drawn: list[tuple[str, Floats, Floats]]) -> tuple[Series, ...]:
    """One GPU as an area, several as lines."""
    if len(drawn) > 1:
        return tuple(lines(drawn))
    name, x, y = drawn[0]
    return (Series(name, "area", *thinned(x, y)),)

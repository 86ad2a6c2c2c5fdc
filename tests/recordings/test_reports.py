"""Is each recording's report whole, small and free of slips, and has a quantity the same value wherever it stands?"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from folders import RECORDINGS, public_files
from labels import cases, fixture_cases
from recorded import of_recordings, recording
from rich.console import Console
from view_tables import rows_of

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Heat, Table, Views
from perfdoctor.report import html, json_report, markdown, terminal
from perfdoctor.views.tables import in_short, in_words

MOST_BYTES = 1_500_000
#: What Python calls a number or a thing that is not there, and a page must not.
SLIPS = re.compile(r"\b(?:None|nan|NaN|inf|Infinity|null)\b")
#: What may only be said where steps were found.
A_STEP = re.compile(r".{0,40}\b(an?|one|per|each|every|this|next|the|ms) step\b", re.IGNORECASE)
#: Sums of numbers that were each rounded to a whole ns.
ROUNDED = 1e-4
PARTS = {
    "compute_ns": "compute",
    "exposed_communication_ns": "exposed_communication",
    "exposed_copy_ns": "exposed_copy",
}


def paths() -> Iterator[Path]:
    """All fixtures; of the public recordings those that need no other program to be read."""
    for case in fixture_cases():
        yield case["folder"] / case["path"]
    for case in cases():
        if "fails" not in case and Path(case["path"]).suffix not in (".qdrep", ".nsys-rep"):
            yield RECORDINGS / case["path"]
    for kind in ("kineto/edge", "wild", "memory", "ncu", "nccl", "topology", "device"):
        yield from public_files(f"{kind}/*")


PATHS = list(dict.fromkeys(paths()))


@of_recordings(PATHS)
def test_a_report_is_whole_and_agrees_with_itself(path: Path) -> None:
    try:
        run = recording(path).run
    except PerfdoctorError as error:
        assert error.what
        assert error.do
        return
    diagnosis, shown = recording(path).diagnosis, recording(path).views
    assert shown.failed == ()
    _page(recording(path).page)
    if not diagnosis.per_step:
        _speaks_of_no_step(diagnosis, shown)
    for table in shown.tables:
        _table(table)
    tables = {table.id: table for table in shown.tables}
    _times_of_device_work(run, tables)
    _exposed(run, diagnosis, tables)
    _ranks(diagnosis, shown, tables)
    _steps(run, diagnosis, shown, tables)
    _timeline(diagnosis, shown)
    _memory(diagnosis, shown, tables)


# --- the words --------------------------------------------------------------------------------------------------------


def _speaks_of_no_step(diagnosis: Diagnosis, shown: Views) -> None:
    """Where no steps were found, no report says of anything that it is a step's; what it hints to record is no step."""
    for render in (json_report.render, markdown.render, in_terminal, lambda each: visible(html.render(each, shown))):
        said = re.sub(r'"[a-z_]+":', "", render(diagnosis))  # keys of JSON are no sentences
        assert [found[0] for found in A_STEP.finditer(said)] == []


def in_terminal(diagnosis: Diagnosis) -> str:
    console = Console(file=io.StringIO(), width=4_000)
    terminal.render(diagnosis, console, show_all=True)
    return console.file.getvalue()


def visible(page: str) -> str:
    """The page without markup, scripts and styles."""
    return unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)))


# --- the page ---------------------------------------------------------------------------------------------------------


def _page(page: str) -> None:
    assert len(page.encode()) <= MOST_BYTES
    ids = Counter(re.findall(r'<[a-z0-9]+ [^<>]*?\bid="([^"]+)"', page))
    assert [each for each, count in ids.items() if count > 1] == []
    for target in re.findall(r'href="#([^":]+)', page):
        assert target in ids
    said = re.sub(r"(?s)<(script|style|pre|code)\b.*?</\1>", " ", page)
    assert SLIPS.findall(re.sub(r"<[^>]*>", " ", said)) == []


def _table(table: Table) -> None:
    lengths = {len(column.values) for column in table.columns}
    assert len(lengths) == 1
    assert 0 < min(lengths) <= table.rows_in_all
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    for column in table.columns:
        assert any(value not in (None, "") and not _is_nan(value) for value in column.values), (
            f"nothing is known of {column.name} in {table.id}"
        )


def _is_nan(value: float | str | None) -> bool:
    return isinstance(value, float) and math.isnan(value)


# --- one quantity, one value ------------------------------------------------------------------------------------------


def _column(table: Table, begins: str) -> np.ndarray:
    """The first column whose name begins so, as numbers."""
    units = (f"{begins} a step", f"{begins} an iteration")
    column = next(each for each in table.columns if each.name == begins or each.name.startswith(units))
    return np.array([np.nan if value is None else value for value in column.values], np.float64)


def _is_whole(table: Table) -> bool:
    return len(table.columns[0].values) == table.rows_in_all


def _inside_ns(run: Run, *signals: str) -> float:
    """How long all of it ran in the windows, for one step of one place: each row by itself, however many at once."""
    means = []
    for place in run.places:
        begin, end = int(place.window.starts[0]), int(place.window.ends[-1])
        total = 0
        for signal in signals:
            rows = run.timeline[signal].of(rank=place.rank, device=place.device)
            total += int(np.clip(np.minimum(rows.end_ns, end) - np.maximum(rows.start_ns, begin), 0, None).sum())
        means.append(total / place.units)
    return float(np.mean(means))


def _times_of_device_work(run: Run, tables: dict[str, Table]) -> None:
    if run.selection.range_name or any(place.device is None for place in run.places):
        return
    for id_, signals in {
        "kernels": ("kernels", "collectives"),
        "kernel-families": ("kernels", "collectives"),
        "collectives": ("collectives",),
        "copies": ("copies",),
    }.items():
        if id_ in tables and _is_whole(tables[id_]):
            found, expected = _column(tables[id_], "time").sum(), _inside_ns(run, *signals)
            assert found == pytest.approx(expected, rel=ROUNDED), id_


def _exposed(run: Run, diagnosis: Diagnosis, tables: dict[str, Table]) -> None:
    """What is exposed is reported by row; of rows side by side it counts for each."""
    for id_, quantity in {"collectives": "exposed_communication_ns", "copies": "exposed_copy_ns"}.items():
        if (
            id_ not in tables
            or not _is_whole(tables[id_])
            or not any(c.name.startswith("exposed") for c in tables[id_].columns)
        ):
            continue
        given = np.mean([
            getattr(split, quantity) / place.units for split, place in zip(diagnosis.time, run.places, strict=True)
        ])  # fmt: skip
        rows = _column(tables[id_], "exposed")
        assert np.nansum(rows) >= given * (1 - ROUNDED) - 1, id_
        assert (rows <= _column(tables[id_], "time") * (1 + ROUNDED) + 1).all(), id_


def _ranks(diagnosis: Diagnosis, shown: Views, tables: dict[str, Table]) -> None:
    if "ranks" not in tables:
        return
    table, (heat,) = tables["ranks"], [each for each in shown.heats if each.id == "ranks-parts"]
    length = next(column for column in table.columns if column.name in ("step", "window"))
    bases = sorted((split.step_ns or split.window_ns for split in diagnosis.time), reverse=True)
    assert length.values == pytest.approx(bases, rel=ROUNDED)
    shares = {
        in_short(part): sorted(getattr(split, key) / split.window_ns for split in diagnosis.time)
        for key, part in PARTS.items()
    }
    for column in table.columns:
        if column.name in shares:
            given = np.array(column.values) / np.array(length.values)
            assert sorted(given) == pytest.approx(shares[column.name], abs=ROUNDED)
    _heat(diagnosis, heat)


def _heat(diagnosis: Diagnosis, heat: Heat) -> None:
    assert heat.values.sum(axis=1) == pytest.approx(np.ones(len(heat.rows)))
    for key, part in PARTS.items():
        if in_words(part) in heat.columns:
            given = heat.values[:, heat.columns.index(in_words(part))]
            assert given == pytest.approx([getattr(split, key) / split.window_ns for split in diagnosis.time], abs=1e-9)


def _steps(run: Run, diagnosis: Diagnosis, shown: Views, tables: dict[str, Table]) -> None:
    if "steps" not in tables:
        return
    rows = [row for row in rows_of(tables["steps"]) if row["step"] is not None]
    length = "duration" if "duration" in rows[0] else "mean of all ranks"
    given = {in_short(part) for split in diagnosis.time for part in (*PARTS.values(), *split.idle_causes_ns)}
    for row in rows:
        parts = [value for name, value in row.items() if name in given]
        assert sum(parts) == pytest.approx(row[length], abs=len(parts))
    (place, *others) = run.places
    if not others and place.steps.on_main_stream is None and len(rows) == diagnosis.steps.used:
        assert np.mean([row[length] for row in rows]) == pytest.approx(diagnosis.base_ns, rel=ROUNDED)
    for chart in shown.charts:
        if chart.id == "steps":
            bars = np.sum([series.y for series in chart.series if series.kind == "bars"], axis=0)
            assert chart.numbers["median"][0] == pytest.approx(np.median([row[length] for row in rows]), abs=1)
            if len(bars) == len(rows):
                assert bars == pytest.approx([row[length] for row in rows], abs=1)


def _timeline(diagnosis: Diagnosis, shown: Views) -> None:
    """The idle time that is drawn is the one that the report states."""
    view = shown.timeline
    if view is None:
        return
    begin, end = view.typical
    assert 0 <= begin < end <= view.length_ns
    for track in (each for each in view.tracks if each.kind == "idle"):
        group = view.groups[track.group]
        drawn = [split for split in diagnosis.time if (split.rank, split.device) == (group.rank, group.device)]
        assert [int(track.busy_ns.sum())] == [split.idle_ns for split in drawn]


def _memory(diagnosis: Diagnosis, shown: Views, tables: dict[str, Table]) -> None:
    peaks = {f"memory-{use.rank}-{use.device}": use.peak_bytes for use in diagnosis.memory}
    for chart in shown.charts:
        if chart.id in peaks:
            assert chart.numbers["peak"][0] == peaks[chart.id]
    if diagnosis.memory:
        assert list(_column(tables["memory-devices"], "peak in use")) == sorted(peaks.values(), reverse=True)

"""What do the tables hold? Each column of each table as numpy or text, made when it is asked for.

Numbers that were not recorded are UNKNOWN, NaN or "", as in the timeline: `is_missing` says which ones become NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from perfdoctor import __version__
from perfdoctor.export.tables import links, of_diagnosis
from perfdoctor.metrics.accounting.prepare import step_stats
from perfdoctor.metrics.communication.collectives import bus_bandwidth
from perfdoctor.metrics.kernels.costs import math_path
from perfdoctor.model.columns import UNKNOWN, Column, Ints, Mask, Text
from perfdoctor.model.device_work import SIGNALS as WORK
from perfdoctor.model.device_work import launching_calls
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Frame
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.vocabulary.names.kernels import family
from perfdoctor.vocabulary.parts import IDLE_PARTS, PARTS
from perfdoctor.vocabulary.signals import SIGNALS
from perfdoctor.vocabulary.tables import NESTED, ExportedTable, tables, views

#: Of the tables' names, columns and units. Raised where one is renamed.
FORMAT = 1

#: Ids count from 0, but those of findings.
_FIRST_IDS = {"findings": of_diagnosis.FIRST_ID}

#: Tables of all ranks of a job, also where only some were read in full; the rows of all others are of these.
_OF_THE_JOB = frozenset({
    "parts", "steps", "devices", "sources", "findings", "fixes", "outcomes", "notes", "signals", "meta", "columns",
})  # fmt: skip

#: The columns of one table by name.
Columns = Mapping[str, Callable[[], Column]]
#: The rows of a small table, without their ids.
Rows = Iterable[Sequence[object]]


def is_missing(table: ExportedTable, name: str, column: Column) -> Mask | None:
    """One bool a row of a number column: is it NULL? None where none is, and of texts, of which "" is NULL."""
    declared = table.columns[name]
    if isinstance(column, Text) or declared.kind is bool or declared.is_signed:
        return None
    missing: Mask = np.isnan(column) if declared.kind is float else column == UNKNOWN
    return missing if missing.any() else None


class RecordingTables:
    """The tables of one recording. `diagnosis`: what findings come from, asked for when a table needs it."""

    def __init__(self, run: Run, diagnosis: Callable[[], Diagnosis]) -> None:
        self.run = run
        self.timeline = run.timeline
        self._diagnosis = diagnosis
        self._made: dict[str, Columns] = {}

    @cached_property
    def diagnosis(self) -> Diagnosis:
        return self._diagnosis()

    def columns(self, table: str) -> Columns:
        """The columns of a table by name; each is made when it is called."""
        if table not in self._made:
            signal = tables()[table].signal
            made: Columns | Rows = self._of_signal(signal) if signal else getattr(self, f"_{table}")()
            self._made[table] = made if isinstance(made, Mapping) else _of_rows(table, made)
        return self._made[table]

    def row_count(self, table: str) -> int:
        return len(self.columns(table)["id"]())

    def _of_signal(self, signal: str) -> Columns:
        frame = self.timeline[signal]
        rows = np.arange(len(frame))
        if signal == "nccl_facts":  # values of environment variables stay where they are
            rows = np.flatnonzero(~frame.name.equals("environment"))
            frame = frame.take(rows)
        found: dict[str, Callable[[], Column]] = {"id": lambda: rows, "duration_ns": lambda: frame.duration_ns}
        for name in SIGNALS[signal].columns:
            found[name] = partial(frame.columns.__getitem__, name)
        return {**found, **self._derived(signal, frame)}

    def _derived(self, signal: str, frame: Frame) -> Columns:
        timeline = self.timeline
        found: dict[str, Callable[[], Column]] = {}
        if signal in WORK:
            found["launch_id"] = partial(launching_calls, timeline, signal)
            found["phase"] = partial(links.phases, self.run.places, signal, len(frame))
        if "step_id" in tables()[signal].columns and "device" in frame.columns:
            found["step_id"] = partial(self._step_table.of, frame, on_device=True)
        if signal == "kernels":
            found["family"] = partial(frame.name.mapped, family)
            found["math_path"] = partial(frame.name.mapped, math_path)
        if signal == "collectives":
            found["bus_bytes_per_second"] = partial(bus_bandwidth, frame)
        if signal in NESTED:
            found["parent_id"] = partial(links.parents, timeline, signal)
            found["self_ns"] = partial(links.own_ns, timeline, signal)
            found["gpu_ns"] = lambda: links.gpu_ns(timeline, signal)[0]
            found["self_gpu_ns"] = lambda: links.gpu_ns(timeline, signal)[1]
            found["step_id"] = lambda: links.steps_of(timeline, signal, self._launching, self._step_table)
        if signal in ("calls", "ops"):
            found["range_id"] = partial(links.around, timeline, signal, "ranges")
        if signal == "calls":
            found["op_id"] = partial(links.around, timeline, "calls", "ops")
            found["module_id"] = partial(links.around, timeline, "calls", "modules")
            found["step_id"] = lambda: links.steps_of_calls(timeline, self._launching, self._step_table)
        return found

    @cached_property
    def _step_table(self) -> links.StepTable:
        return links.StepTable(self._places)

    @cached_property
    def _places(self) -> list[JobPlace]:
        """Every place of the job: as it was read in full, where it was."""
        in_full = {each.rank_and_device: each for each in self.run.places}
        return [in_full.get(each.rank_and_device, each) for each in self.run.job.places]

    @cached_property
    def _launching(self) -> links.Launching:
        return links.launching(self.timeline, self._step_table)

    def _launches(self) -> Columns:
        timeline, found = self.timeline, self._launching
        calls = timeline.calls.take(found.calls)
        return {
            "id": lambda: found.calls,
            **{name: partial(calls.columns.__getitem__, name) for name in SIGNALS["calls"].columns},
            "duration_ns": lambda: calls.duration_ns,
            "op_id": lambda: links.around(timeline, "calls", "ops")[found.calls],
            "range_id": lambda: links.around(timeline, "calls", "ranges")[found.calls],
            "module_id": lambda: links.around(timeline, "calls", "modules")[found.calls],
            "step_id": lambda: found.step,
            "work_count": lambda: found.work_count,
            "first_start_ns": lambda: found.first_start_ns,
        }

    def _steps(self) -> Rows:
        return (row for place in self._places for row in _steps_of(place))

    def _idle(self) -> Columns:
        return self._pieces("cause", lambda place: place.idle_causes)

    def _exposed(self) -> Columns:
        return self._pieces(
            "kind", lambda place: {"communication": place.exposed_communication, "copy": place.exposed_copies}
        )

    def _pieces(self, word: str, of: Callable[[Place], Mapping[str, Any]]) -> Columns:
        """Columns of the pieces that `of` gives for each place by name, by start; `word`: the column of names."""
        whose: list[tuple[int, int, str]] = []
        times: list[tuple[Ints, Ints, Ints]] = []
        firsts = {each.rank_and_device: first for each, first in self._step_table.with_firsts}
        for place in self.run.places:
            first = firsts[place.rank_and_device]
            for name, pieces in of(place).items():
                step = links.step_at(place, pieces.starts)
                times.append((pieces.starts, pieces.ends, np.where(step == UNKNOWN, UNKNOWN, step + first)))
                whose.append((place.rank, _device(place), name))
        none = np.empty(0, np.int64)
        start, end, number = (np.concatenate([none, *(each[at] for each in times)]) for at in range(3))
        order = np.argsort(start, kind="stable")
        of_row = np.repeat(np.arange(len(whose)), [each[0].size for each in times])[order]
        rank, device = (np.array([each[at] for each in whose], np.int64)[of_row] for at in range(2))
        word_of_row = Text(of_row.astype(np.int32), [name for _, _, name in whose])
        return _given({
            "id": np.arange(start.size), "rank": rank, "device": device, "start_ns": start[order], "end_ns": end[order],
            "duration_ns": (end - start)[order], word: word_of_row, "step_id": number[order],
        })  # fmt: skip

    def _parts(self) -> Rows:
        for place in self._places:
            without_gpu = place.device is None
            for part, pieces in place.parts.items():
                ns, label = pieces.total_ns, PARTS[part].labels(without_gpu=without_gpu)[0]
                about = (place.rank, _device(place), part, label, part in IDLE_PARTS)
                yield (*about, ns, place.per_step(ns), place.share(ns))

    def _findings(self) -> Rows:
        return of_diagnosis.findings(self.diagnosis)

    def _fixes(self) -> Rows:
        return of_diagnosis.fixes(self.diagnosis)

    def _outcomes(self) -> Rows:
        return of_diagnosis.outcomes(self.diagnosis)

    def _processes(self) -> Rows:
        found: dict[tuple[int, int], tuple[int, int, int]] = {}
        for frame in self.timeline.frames.values():
            if "process" in frame.columns and len(frame):
                for key, start, end, count in _by_process(frame):
                    first, last, rows = found.get(key, (start, end, 0))
                    found[key] = min(first, start), max(last, end), rows + count
        return ((*key, *found[key]) for key in sorted(found) if key[1] != UNKNOWN)

    def _threads(self) -> Rows:
        return ((*key, name) for key, name in sorted(self.timeline.thread_names.items()))

    def _devices(self) -> Rows:
        for each in self.run.job.timeline.devices:
            if each.device == UNKNOWN:  # of a rank whose work ran on none
                continue
            major, minor = each.compute_capability[:2]
            numbers = (each.sm_count, 10 * major + minor, each.memory_bytes, each.memory_bytes_per_second)
            yield (each.rank, each.device, each.name, *(number or UNKNOWN for number in numbers))

    def _sources(self) -> Rows:
        for each in self.run.job.timeline.sources:
            yield each.kind, each.file, each.tool_version, ", ".join(map(str, each.ranks)), each.cut_off

    def _signals(self) -> Rows:
        recorded = self.timeline.recorded
        return ((name, each.label, name in recorded, self.row_count(name)) for name, each in SIGNALS.items())

    def _notes(self) -> Rows:
        return ((note,) for note in self.timeline.notes)

    def _meta(self) -> Rows:
        run, timeline, stats = self.run, self.timeline, step_stats(self.run.job)
        in_full = ", ".join(map(str, timeline.ranks)) if run.summaries else None
        rows = [
            ("format", FORMAT, "", "Version of these tables: their names, columns and units."),
            ("perfdoctor", __version__, "", "Version of perfdoctor that wrote them."),
            ("time_unit", "ns", "", "Unit of every time."),
            ("epoch_ns", timeline.epoch_ns, "ns", "When time 0 was, since 1970 in UTC."),
            ("world_size", timeline.world_size or None, "", "Ranks of the job; more than there are rows of, perhaps."),
            ("ranks", ", ".join(map(str, run.ranks)), "", "Ranks in these tables."),
            ("ranks_in_full", in_full, "", "Ranks read in full; the others have parts and steps."),
            ("steps_found_by", stats.found_by, "", "How steps were found."),
            ("steps_used", stats.used, "", "Steps that were analysed, of each device."),
            ("step_ns", run.step_ns if run.per_step else None, "ns", "The mean step that was analysed."),
            ("window_ns", sum(each.window_ns for each in self._places), "ns", "All that was analysed, of all devices."),
        ]
        known = (row for row in rows if row[1] not in (None, ""))
        return ((key, str(value), unit, meaning) for key, value, unit, meaning in known)

    def _columns(self) -> Rows:
        words = {int: "integer", float: "float", bool: "boolean", str: "text"}
        for table in (*tables().values(), *views().values()):
            for name, column in table.columns.items():
                yield table.name, name, words[column.kind], column.unit, column.meaning


def left_out(run: Run, wanted: Collection[str]) -> str:
    """Say of which ranks the rows are, where one of these tables holds only those that were read in full; else ""."""
    if run.summaries is None or _OF_THE_JOB.issuperset(wanted):
        return ""
    in_full, ranks = len(run.timeline.ranks), len(run.ranks)
    return f"Rows of the timeline are of {in_full:,} of {ranks:,} ranks, those that were read in full."


def _device(place: JobPlace) -> int:
    return UNKNOWN if place.device is None else place.device


def _steps_of(place: JobPlace) -> Iterator[Sequence[object]]:
    """A row for each step, with the parts of those that were analysed."""
    steps, starts, ends = place.steps, place.steps.bounds[:-1], place.steps.ends_ns
    hidden = place.communication & place.compute
    pieces = (place.compute, place.exposed_communication, place.exposed_copies, place.idle, place.communication, hidden)
    parts = [each.overlap_ns(starts, ends) for each in pieces]
    for number in range(starts.size):
        is_used = steps.first <= number < steps.last
        yield (
            place.rank, _device(place), number + 1, int(starts[number]), int(ends[number]),
            int(ends[number] - starts[number]), is_used, steps.found_by, steps.confidence,
            *(int(part[number]) if is_used else UNKNOWN for part in parts),
        )  # fmt: skip


def _by_process(frame: Frame) -> Iterator[tuple[tuple[int, int], int, int, int]]:
    """Each rank and process with its first start, its last end, and its rows."""
    rank, process = frame["rank"], frame["process"]
    for one in np.unique(rank).tolist():
        for pid in np.unique(process[rank == one]).tolist():
            own = (rank == one) & (process == pid)
            yield (one, pid), int(frame.start_ns[own].min()), int(frame.end_ns[own].max()), int(own.sum())


def _of_rows(table: str, rows: Rows) -> Columns:
    """A small table's columns from its rows, which get their ids here."""
    numbers = {int: np.int64, float: np.float64, bool: np.bool_}
    listed = [(number, *row) for number, row in enumerate(rows, _FIRST_IDS.get(table, 0))]
    columns: dict[str, Column] = {}
    for place, (name, column) in enumerate(tables()[table].columns.items()):
        values: list[Any] = [row[place] for row in listed]
        columns[name] = Text.of(values) if column.kind is str else np.array(values, numbers[column.kind])
    return _given(columns)


def _given(columns: Mapping[str, Column]) -> Columns:
    return {name: partial(columns.__getitem__, name) for name in columns}

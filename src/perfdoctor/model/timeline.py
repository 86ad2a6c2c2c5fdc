"""What was recorded? One Timeline for every tool: frames of columns, one frame a signal.

Times are integer nanoseconds. Text columns hold each different value once (`Text`), so a question about names is asked
once per name and not once per row. `Timeline.recorded` says which signals *were recorded*: an empty frame of a recorded
signal is an answer, a signal that is not in it was not recorded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError, bounded
from perfdoctor.hardware.measured import MeasuredRates
from perfdoctor.model.cache import Keeps
from perfdoctor.model.columns import DTYPES, UNKNOWN, Column, Floats, Ints, Mask, Text, occurring
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.whole_run import WatchedRun, WholeRun
from perfdoctor.patterns import regex
from perfdoctor.system.html_table import SHOWN, html_table, pandas
from perfdoctor.system.masking import masked_text
from perfdoctor.system.project import Project
from perfdoctor.system.run_folder import LoaderTrial, ReportedLoader, TimedSteps
from perfdoctor.vocabulary.signals import PROFILE_NUMBERS, SAMPLE_NUMBERS, SIGNALS
from perfdoctor.vocabulary.spellings import column_hint, table_hint
from perfdoctor.vocabulary.tables import tables

if TYPE_CHECKING:
    import pandas as pd

#: 73 years: times since 1970 are below it, and two of them, or all durations of a signal, add up to an int64.
_FARTHEST_NS = 1 << 61
#: The longest names of kernels, with the types of all their templates, have some thousand characters.
_LONGEST_NAME = 1 << 13
#: So many ranks are named in a note; of the others their number is said.
_NAMED = 4
#: Python's int() refuses more digits than 4,300. No number has so many: the rest of them is dropped.
_MOST_DIGITS = 4_000
_ENDLESS = regex(r"(\d{40})\d+")

__all__ = [
    "PROFILE_NUMBERS", "SAMPLE_NUMBERS", "SIGNALS", "UNKNOWN", "Column", "Device", "Floats", "Frame", "Ints", "Mask",
    "Source", "Text", "Timeline", "UserValues", "merge",
]  # fmt: skip


class Frame(Struct, frozen=True):
    """One signal's rows as columns of equal length. Rows are sorted by `start_ns`."""

    columns: Mapping[str, Column]

    def __repr__(self) -> str:
        return f"<Frame of {len(self):,} rows: {', '.join(self.columns)}>"

    @classmethod
    def empty(cls, signal: str) -> Frame:
        declared = SIGNALS[signal].columns.items()
        return cls({name: Text.of(()) if kind is str else np.empty(0, DTYPES[kind]) for name, kind in declared})

    def __len__(self) -> int:
        """How many rows there are.

        Returns:
            The number of rows.
        """
        columns = self.columns
        return len(columns["start_ns"] if "start_ns" in columns else next(iter(columns.values())))

    def __getitem__(self, column: str) -> Ints:
        """A column of numbers. Columns of text: `text`.

        Args:
            column: The column's name.

        Returns:
            One element a row: int64, float64, or bool for flags.

        Raises:
            PerfdoctorError: There is no such column, or it is text.
        """
        values = self._column(column)
        if isinstance(values, Text):
            raise PerfdoctorError(f"the column {column!r} is text", do=f"Use frame.text({column!r}).")
        return values  # type: ignore[return-value]

    def floats(self, column: str) -> Floats:
        """A column of measured numbers.

        Args:
            column: The column's name.

        Returns:
            float64, one element a row. NaN is unknown.
        """
        return self[column].astype(np.float64, copy=False)

    def text(self, column: str) -> Text:
        """A column of text.

        Args:
            column: The column's name.

        Returns:
            Each different value once, and a code for each row.

        Raises:
            PerfdoctorError: There is no such column, or it holds numbers.
        """
        values = self._column(column)
        if not isinstance(values, Text):
            raise PerfdoctorError(f"the column {column!r} is not text", do=f"Use frame[{column!r}].")
        return values

    def _column(self, name: str) -> Column:
        try:
            return self.columns[name]
        except (KeyError, TypeError):  # a slice or a mask
            if isinstance(name, str) and name == "duration_ns" and "end_ns" in self.columns:
                return self.duration_ns
            raise PerfdoctorError(f"there is no column {name!r}", do=self._hint(name)) from None

    def _hint(self, name: object) -> str:
        if not isinstance(name, str):
            return "Rows are chosen by frame.take(mask or indices), or frame.of(rank=0)."
        if any(name in table.columns for table in tables().values()):
            return "It follows from several signals: take analyze(…).table(NAME), which has it."
        timed = ("duration_ns",) if "end_ns" in self.columns else ()
        return column_hint(name, {"This frame": (*self.columns, *timed)}, {})

    if not TYPE_CHECKING:  # else any name would do for type checkers

        def __getattr__(self, name: str) -> object:
            if name.startswith("_"):
                raise AttributeError(name)
            how = f"columns are taken as frame[{name!r}]" if name in self.columns else self._hint(name)
            raise AttributeError(f"a frame has no attribute {name!r}: {how}")

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows.

        Returns:
            HTML that loads nothing and runs no script.
        """
        shown = self.take(slice(0, SHOWN)).to_numpy()
        return html_table(list(shown), zip(*(each.tolist() for each in shown.values()), strict=True), len(self))

    @property
    def start_ns(self) -> Ints:
        return self["start_ns"]

    @property
    def end_ns(self) -> Ints:
        return self["end_ns"]

    @property
    def duration_ns(self) -> Ints:
        return self["end_ns"] - self["start_ns"]

    @property
    def name(self) -> Text:
        return self.text("name")

    @property
    def intervals(self) -> Intervals:
        """The instants at which at least one row runs."""
        return Intervals.of(self.start_ns, self.end_ns)

    def named(self, pattern: re.Pattern[str]) -> Frame:
        """The rows in whose name the pattern occurs."""
        return self.take(self.name.matches(pattern))

    def shifted(self, shift_ns: int) -> Frame:
        """The same rows, so many ns later."""
        return self.with_columns(start_ns=self.start_ns + shift_ns, end_ns=self.end_ns + shift_ns)

    def take(self, rows: npt.NDArray[np.generic] | Sequence[int] | slice) -> Frame:
        """Some of the rows.

        Args:
            rows: One bool a row, indices of rows, or a slice.

        Returns:
            A frame of these rows.

        Raises:
            PerfdoctorError: `rows` names none of this frame.
        """
        if isinstance(rows, slice):
            rows = np.arange(len(self))[rows]
        if not isinstance(rows, np.ndarray):
            rows = np.asarray(rows) if np.size(rows) else np.empty(0, np.int64)
        self._check(rows)
        if rows.dtype == np.bool_:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        return Frame(_Taken(self.columns, rows))

    def _check(self, rows: npt.NDArray[Any]) -> None:
        """Refuses a single value, texts, numbers of rows that are not here, and a mask of another frame."""
        count, what = len(self), ""
        if rows.ndim != 1 or rows.dtype.kind not in "biu":
            what = f"{rows if rows.ndim == 0 else f'an array {rows.shape} of {rows.dtype}'} names no rows"
        elif rows.dtype == np.bool_ and rows.size != count:
            what = f"a mask of {rows.size:,} does not fit {count:,} rows"
        elif rows.dtype != np.bool_ and rows.size and not -count <= int(rows.min()) <= int(rows.max()) < count:
            wrong = rows.min() if rows.min() < -count else rows.max()
            what = f"of {count:,} rows there is none with the number {wrong}"
        if what:
            raise PerfdoctorError(what, do="Give one bool for each row of this frame, indices of rows, or a slice.")

    def of(self, **equal: int | str) -> Frame:
        """The rows in which each named column has the given value: `kernels.of(rank=0, device=3)`.

        Args:
            **equal: The value by the column's name.

        Returns:
            A frame of these rows.
        """
        mask = np.ones(len(self), dtype=bool)
        for name, value in equal.items():
            column = self._column(name)
            mask &= column.equals(str(value)) if isinstance(column, Text) else column == value
        return self if mask.all() else self.take(mask)

    def with_columns(self, **columns: Column) -> Frame:
        return Frame({**self.columns, **columns})

    def sorted(self) -> Frame:
        start = self.start_ns
        if len(self) < 2 or not (start[1:] < start[:-1]).any():
            return self
        return self.take(np.argsort(start, kind="stable"))

    @staticmethod
    def join(frames: Sequence[Frame]) -> Frame:
        """All rows of frames with the same columns, sorted again."""
        if len(frames) == 1:
            return frames[0]
        columns: dict[str, Column] = {}
        for name, first in frames[0].columns.items():
            if isinstance(first, Text):
                columns[name] = Text.join([frame.text(name) for frame in frames])
            else:
                columns[name] = np.concatenate([frame[name] for frame in frames])
        return Frame(columns).sorted()

    def to_numpy(self) -> dict[str, npt.NDArray[Any]]:
        """Every column as an array.

        Returns:
            The arrays by the column's name: int64, float64, bool, and texts as arrays of str objects.
        """
        return {
            name: np.asarray(column) if isinstance(column, Text) else column for name, column in self.columns.items()
        }

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for whoever reads Arrow: `polars.DataFrame(frame)`, `pyarrow.table(frame)`, DuckDB's `FROM frame`.

        Args:
            requested_schema: It changes nothing: whoever wants another one converts what comes, as the protocol says.

        Returns:
            An Arrow stream of one batch, without a copy of numbers; texts are dictionaries.
        """
        from perfdoctor.model import arrow  # noqa: PLC0415 nanoarrow is loaded only where somebody asks for it

        return arrow.stream(self.columns)

    def to_pandas(self) -> pd.DataFrame:
        """The rows for a notebook.

        Returns:
            A DataFrame; text columns become categories.

        Raises:
            PerfdoctorError: pandas is not installed: it is an extra, `perfdoctor[pandas]`.
        """
        pd = pandas()

        def series(column: Column) -> object:
            if not isinstance(column, Text):
                return column
            different = column.mapped(str)
            return pd.Categorical.from_codes(different.codes, categories=different.values)

        return pd.DataFrame({name: series(column) for name, column in self.columns.items()})


def _protect(column: Column) -> None:
    (column.codes if isinstance(column, Text) else column).setflags(write=False)


class _Taken(Mapping[str, Column]):
    """Some rows of columns, each column taken when it is first asked for: of most frames only two or three are."""

    __slots__ = ("_found", "_of", "_rows")

    def __init__(self, of: Mapping[str, Column], rows: npt.NDArray[np.generic]) -> None:
        self._of, self._rows = of, rows
        self._found: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._found:
            self._found[name] = taken = self._of[name].take(self._rows)  # type: ignore[arg-type]  # rows are indices
            _protect(taken)  # whoever wrote to it would write to what all others read
            if len(self._found) == len(self._of):
                # The columns that these are of need not be kept.
                self._of = self._found = {each: self._found[each] for each in self._of}
        return self._found[name]

    def __repr__(self) -> str:
        return f"<Columns {', '.join(self._of)}>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, name: object) -> bool:
        return name in self._of

    def __reduce__(self) -> tuple[type, tuple[dict[str, Column]]]:
        return dict, (dict(self),)


class Source(Struct, frozen=True):
    """One file that was read. `kind`: nsys, kineto, ncu, …; `file`: its name alone; `ranks`: those found in it.

    `cut_off`: the file ends in the middle, and what stood behind is lost.
    """

    kind: str
    file: str
    tool_version: str
    ranks: tuple[int, ...] = ()
    cut_off: bool = False


class Device(Struct, frozen=True):
    """One GPU of one rank. Numbers are 0, text is "" where the recording does not say.

    `clock_hz`: the highest clock of the multiprocessors that the GPU is sold with, as CUDA gives it.
    """

    rank: int
    device: int
    name: str = ""
    sm_count: int = 0
    compute_capability: tuple[int, int] = (0, 0)
    memory_bytes: int = 0
    memory_bytes_per_second: int = 0
    clock_hz: int = 0


class UserValues(Struct, frozen=True):
    """Values that the user gave beside the recording; empty or 0 if not given.

    `peaks`: FLOP/s and bytes/s by the names of `hardware.peaks.SETTABLE`. `tokens_per_step`: tokens (or samples) that
    one GPU trains on in a step. `parameters`: those of the model that take part in each token's products.
    """

    gpu: str = ""
    peaks: Mapping[str, float] = field(default_factory=dict)
    tokens_per_step: float = 0
    parameters: float = 0


class RecordedProcess(Struct, frozen=True):
    """One training of a command that ran several, each for itself: a process, or a job of several `ranks`.

    `number` is what `--process` takes, `pid` of its first rank, `command` with secrets masked. `steps_seen` counts
    until its recording ended. `length_ns` is from its begin at `start_unix_ns` to its end; both 0 if unknown.
    """

    number: int
    pid: int
    name: str
    command: tuple[str, ...]
    ranks: int
    steps_seen: int
    steps_recorded: int
    length_ns: int
    diagnosed: bool
    start_unix_ns: int = 0

    def ran_beside(self, other: RecordedProcess) -> bool:
        """Did both run at one time? False where that is unknown."""
        return (
            self.start_unix_ns < other.start_unix_ns + other.length_ns
            and other.start_unix_ns < self.start_unix_ns + self.length_ns
        )


class Timeline(Keeps, frozen=True):
    """Everything recorded of one run, on one clock.

    `frames` holds every signal of `SIGNALS`, empty where nothing was found. `recorded` names the signals that the
    tool recorded. `notes` count every row that was dropped and say what the recording lacks.
    `world_size` is the size of the job, which may exceed the ranks recorded; 0 if unknown. `epoch_ns` is when time 0
    was, in ns since 1970; None if unknown. `measured` is what its machines gave when they were measured.
    `processes`: the trainings of a command that `perfdoctor run` recorded; only one of them is in the frames.
    `steps_marked_by`: what perfdoctor's own recorder took for the end of a step: an `optimizer`'s update, a `backward`
    or a `forward` pass; "" where the program marked its steps itself, or nobody did. `loaders`: the iterators over
    DataLoaders that gave batches in the recorded steps, of all ranks; empty if unknown. `loader_trials`: what was tried
    with them in copies of the program. `unrecorded_step_ns`: by rank, how long a step took in the same execution while
    nothing was recorded; without ranks where that is not known. `unrecorded_steps`: by rank, how many were timed so.
    `timed_steps`: by rank, every step of the same execution that was timed; without ranks in older recordings.
    `project`: where the program belongs, and which of its words count; None where that was not recorded.
    `code`: the text of the user's own lines that sampled stacks name, by `file(line)`, as it was in the recording.
    `whole_runs`: of each training process, when all of its steps ended and where its thread stood; empty if unknown.
    `watched_run`: how long its steps were, where the run was watched. `torch`: the version that the training processes
    reported, "" if unknown.
    """

    frames: Mapping[str, Frame]
    recorded: frozenset[str]
    sources: tuple[Source, ...] = ()
    devices: tuple[Device, ...] = ()
    world_size: int = 0
    thread_names: Mapping[tuple[int, int], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    user_values: UserValues = field(default_factory=UserValues)
    epoch_ns: int | None = None
    measured: tuple[MeasuredRates, ...] = ()
    steps_marked_by: str = ""
    processes: tuple[RecordedProcess, ...] = ()
    loaders: tuple[ReportedLoader, ...] = ()
    loader_trials: tuple[LoaderTrial, ...] = ()
    unrecorded_step_ns: Mapping[int, int] = field(default_factory=dict)
    unrecorded_steps: Mapping[int, int] = field(default_factory=dict)
    timed_steps: Mapping[int, TimedSteps] = field(default_factory=dict)
    project: Project | None = None
    code: Mapping[str, Sequence[str]] = field(default_factory=dict)
    whole_runs: tuple[WholeRun, ...] = ()
    watched_run: WatchedRun | None = None
    torch: str = ""

    def __repr__(self) -> str:
        rows = ", ".join(f"{len(frame):,} {signal}" for signal, frame in self.frames.items() if len(frame))
        ranks = f"{len(self.ranks):,} rank{'' if len(self.ranks) == 1 else 's'}"
        return f"<Timeline of {ranks}: {rows or 'no rows'}>"

    @classmethod
    def build(
        cls,
        frames: Mapping[str, Frame],
        recorded: Iterable[str],
        *,
        sources: Sequence[Source] = (),
        devices: Sequence[Device] = (),
        world_size: int = 0,
        thread_names: Mapping[tuple[int, int], str] | None = None,
        notes: Sequence[str] = (),
    ) -> Timeline:
        """A checked Timeline: absent signals get empty frames, rows are sorted, `self_check` has passed.

        Names of ranges and threads are whatever the program wrote: what looks like a secret in them is masked.
        """
        possible = {signal: _bounded(frames.get(signal, Frame.empty(signal))) for signal in SIGNALS}
        lost = {signal: len(frames[signal]) - len(frame) for signal, frame in possible.items() if signal in frames}
        possible["ranges"] = _masked(possible["ranges"])
        full = {signal: frame.sorted() for signal, frame in possible.items()}
        names = {thread: masked_text(name) for thread, name in (thread_names or {}).items()}
        said = (
            *map(bounded, notes),
            *(f"{rows:,} {signal} with impossible times were left out." for signal, rows in lost.items() if rows),
        )
        timeline = cls(full, frozenset(recorded), tuple(sources), tuple(devices), world_size, names, said)
        timeline.self_check()
        return timeline

    def __getitem__(self, signal: str) -> Frame:
        """The frame of a signal: `timeline["kernels"]`.

        Args:
            signal: The signal's name.

        Returns:
            The frame, without rows where nothing was found.

        Raises:
            PerfdoctorError: There is no such signal.
        """
        try:
            return self.frames[signal]
        except KeyError:
            do = table_hint(str(signal), self.frames)
            raise PerfdoctorError(f"there is no signal {signal!r}", do=do) from None

    def __contains__(self, signal: object) -> bool:
        """Is there such a signal? Whether it was recorded: `recorded`."""
        return signal in self.frames

    def __iter__(self) -> Iterator[str]:
        """The names of all signals."""
        return iter(self.frames)

    @property
    def kernels(self) -> Frame:
        return self.frames["kernels"]

    @property
    def copies(self) -> Frame:
        return self.frames["copies"]

    @property
    def collectives(self) -> Frame:
        return self.frames["collectives"]

    @property
    def calls(self) -> Frame:
        return self.frames["calls"]

    @property
    def ops(self) -> Frame:
        return self.frames["ops"]

    @property
    def ranges(self) -> Frame:
        return self.frames["ranges"]

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that any row or device belongs to, ascending. What is recorded of the machine belongs to none."""
        found = {device.rank for device in self.devices}
        for frame in self.frames.values():
            found.update(occurring(frame["rank"]))
        return tuple(sorted(found - {UNKNOWN}))

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Each (rank, device) on which any work ran, ascending."""
        return places_of(self.frames)

    def device_of(self, rank: int, device: int) -> Device:
        """Facts about one GPU of one rank.

        Args:
            rank: The rank.
            device: The index of the GPU.

        Returns:
            The facts; a Device without a name where nothing is known.
        """
        known = (each for each in self.devices if (each.rank, each.device) == (rank, device))
        return next(known, Device(rank, device))

    def protect(self) -> None:
        """Make all columns read-only, before code that is not ours could write to what everybody else reads."""
        for frame in self.frames.values():
            for column in frame.columns.values():
                _protect(column)

    def with_notes(self, *notes: str) -> Timeline:
        return replace(self, notes=(*self.notes, *map(bounded, notes)))

    def with_frame(self, signal: str, frame: Frame) -> Timeline:
        """This recording with `frame` as the rows of a signal that was recorded beside it."""
        return replace(self, frames={**self.frames, signal: frame.sorted()}, recorded=self.recorded | {signal})

    def beside(self, others: Sequence[Timeline], frames: Mapping[str, Frame], *notes: str) -> Timeline:
        """This recording with what was recorded beside it: the signals and sources of `others`, and these `frames`."""
        return replace(
            self,
            frames={**self.frames, **frames},
            recorded=self.recorded.union(*(each.recorded for each in others)),
            sources=(*self.sources, *(source for each in others for source in each.sources)),
            notes=(*self.notes, *map(bounded, notes)),
        )

    def as_rank(self, rank: int) -> Timeline:
        """This recording of one rank, with all rows, devices and files as those of `rank`."""
        frames = {
            signal: rows.with_columns(rank=np.full(len(rows), rank, np.int64)) for signal, rows in self.frames.items()
        }
        devices = tuple(replace(device, rank=rank) for device in self.devices)
        return replace(
            self, frames=frames, devices=devices, sources=tuple(replace(each, ranks=(rank,)) for each in self.sources)
        )

    def self_check(self) -> None:
        """Raise AssertionError where a frame breaks its declaration: a reader's bug, never the user's fault."""
        assert set(self.frames) == set(SIGNALS), f"signals {set(self.frames) ^ set(SIGNALS)}"
        assert self.recorded <= set(SIGNALS), f"unknown signals {self.recorded - set(SIGNALS)}"
        for signal in SIGNALS:
            check_frame(signal, self.frames[signal])


def _masked(ranges: Frame) -> Frame:
    names = ranges.text("name")
    shown = {name: masked_text(name) for name in names.values}
    is_plain = all(name == masked for name, masked in shown.items())
    return ranges if is_plain else ranges.with_columns(name=names.mapped(shown.__getitem__))


def _is_long(text: Text) -> bool:
    return max(map(len, text.values), default=0) > _MOST_DIGITS


def _cut(text: Text, *, is_name: bool) -> Text:
    """With names that are cut, and without numbers that Python does not read."""
    longest = _LONGEST_NAME if is_name else None
    return Text(text.codes, [_ENDLESS.sub(r"\1", value[:longest]) for value in text.values])


def _bounded(frame: Frame) -> Frame:
    """The rows whose times, and whose times together, are numbers that int64 holds; names that are too long are cut."""
    if not len(frame):
        return frame
    long = {name: column for name, column in frame.columns.items() if isinstance(column, Text) and _is_long(column)}
    frame = Frame({**frame.columns, **{name: _cut(column, is_name=name == "name") for name, column in long.items()}})
    start, end = frame.start_ns, frame.end_ns
    if min(start.min(), end.min()) <= -_FARTHEST_NS or max(start.max(), end.max()) >= _FARTHEST_NS:
        # Of the least number there is, `abs` is that number.
        first, last = np.minimum(start, end), np.maximum(start, end)
        frame = frame.take((first > -_FARTHEST_NS) & (last < _FARTHEST_NS))
    took = frame.end_ns - frame.start_ns
    if took.sum(dtype=np.float64) >= _FARTHEST_NS:
        frame = frame.take(took < _FARTHEST_NS // len(frame))
    return frame


def places_of(frames: Mapping[str, Frame]) -> tuple[tuple[int, int], ...]:
    """Each (rank, device) on which any work in these frames ran, ascending."""
    found: set[tuple[int, int]] = set()
    for signal in ("kernels", "collectives", "copies"):
        rows = frames[signal]
        found.update((rank, d) for rank in occurring(rows["rank"]) for d in occurring(rows.of(rank=rank)["device"]))
    return tuple(sorted(found))


def check_frame(signal: str, frame: Frame) -> None:
    """Raise AssertionError where the frame breaks what is declared of its signal: columns, types, order, lengths."""
    declared = SIGNALS[signal].columns
    lacking, unknown = sorted(set(declared) - set(frame.columns)), sorted(set(frame.columns) - set(declared))
    assert not lacking, f"{signal}: its reader must give {', '.join(lacking)}: UNKNOWN, NaN or '' where it is not known"
    assert not unknown, f"{signal}: vocabulary/signals.toml has no column {', '.join(unknown)}"
    for name, kind in declared.items():
        column = frame.columns[name]
        assert len(column) == len(frame), f"{signal}.{name}: {len(column)} rows of {len(frame)}"
        if isinstance(column, Text):
            assert kind is str, f"{signal}.{name} is text"
        else:
            assert kind is not str, f"{signal}.{name} is not text"
            assert column.dtype == DTYPES[kind], f"{signal}.{name}: {column.dtype}"
    start, end = frame.start_ns, frame.end_ns
    assert (end >= start).all(), f"{signal}: a row ends before it starts"
    assert not (start[1:] < start[:-1]).any(), f"{signal}: rows are not sorted"


def merge(timelines: Sequence[Timeline]) -> Timeline:
    """Several recordings of one run as one Timeline. They must already share a clock and have different ranks.

    A rank of several recordings has the rows of all of them, and a note says so.
    """
    if len(timelines) == 1:
        return timelines[0]
    whole = Timeline.build(
        {signal: Frame.join([timeline[signal] for timeline in timelines]) for signal in SIGNALS},
        frozenset().union(*(timeline.recorded for timeline in timelines)),
        sources=[source for timeline in timelines for source in timeline.sources],
        devices=[device for timeline in timelines for device in timeline.devices],
        world_size=max(timeline.world_size for timeline in timelines),
        thread_names={key: name for timeline in timelines for key, name in timeline.thread_names.items()},
        notes=list(dict.fromkeys((*(note for each in timelines for note in each.notes), *_twice(timelines)))),
    )
    return replace(
        whole,
        measured=tuple(rates for timeline in timelines for rates in timeline.measured),
        steps_marked_by=next((each.steps_marked_by for each in timelines if each.steps_marked_by), ""),
        processes=tuple(process for timeline in timelines for process in timeline.processes),
        loaders=tuple(loader for timeline in timelines for loader in timeline.loaders),
        loader_trials=tuple(trial for timeline in timelines for trial in timeline.loader_trials),
        unrecorded_step_ns={rank: ns for each in timelines for rank, ns in each.unrecorded_step_ns.items()},
        unrecorded_steps={rank: count for each in timelines for rank, count in each.unrecorded_steps.items()},
        timed_steps={rank: steps for each in timelines for rank, steps in each.timed_steps.items()},
        project=next((each.project for each in timelines if each.project), None),
        code={line: text for each in timelines for line, text in each.code.items()},
        whole_runs=tuple(whole_run for each in timelines for whole_run in each.whole_runs),
        watched_run=next((each.watched_run for each in timelines if each.watched_run), None),
        torch=next((each.torch for each in timelines if each.torch), ""),
    )


def _twice(timelines: Sequence[Timeline]) -> Iterator[str]:
    """A note where several of the timelines hold the same ranks."""
    held = Counter(rank for timeline in timelines for rank in timeline.ranks)
    ranks = sorted(rank for rank, times in held.items() if times > 1)
    if ranks:
        more = f" and {len(ranks) - _NAMED:,} more" if len(ranks) > _NAMED else ""
        named = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:_NAMED]))}{more}"
        yield f"Several of these recordings hold {named}: all of their rows are shown as those of one rank."

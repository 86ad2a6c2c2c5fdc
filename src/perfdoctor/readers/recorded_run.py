"""How do the passes of one recorded run become one Timeline?

A pass is one execution of the program. What was recorded in the same execution is joined on one clock: nsys's kernels,
calls and ranges with the ops that torch.profiler recorded beside it. Another pass is another execution: its kernels are
not mixed in; it is compared with the first, and replaces it where the first recorded nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.hardware import measured
from perfdoctor.model.steps import host_marks
from perfdoctor.model.timeline import Frame, RecordedProcess, Timeline, merge
from perfdoctor.readers import formats, sampled_stacks, side_files, text_rows, watched_run, whole_run
from perfdoctor.readers.kineto import trace as kineto
from perfdoctor.readers.leaving_out import readable
from perfdoctor.readers.ncu import profiles as ncu
from perfdoctor.readers.nsys import export as nsys_export
from perfdoctor.readers.nsys import timeline as nsys
from perfdoctor.system.progress import Progress, silent, unheard
from perfdoctor.system.project import project_from
from perfdoctor.system.run_folder import Manifest, ProcessReport, ReportedLoader, RunFolder
from perfdoctor.system.trainings import Training, longest, trainings
from perfdoctor.vocabulary.names import torch as torch_names
from perfdoctor.vocabulary.signals import CPU_USE_NUMBERS

_TOOLS = ("nsys", "torch")
_TRACES = ("*.pt.trace.json", "*.pt.trace.json.gz")
#: Two passes whose steps differ by more than this were not slowed equally by their tools.
_SAME_STEP_SHARE = 0.05
#: Fewer samples than this do not show whether memory rises steadily.
_FEWEST_SAMPLES = 6
_Found = TypeVar("_Found")


class RecordedPart(Struct, frozen=True):
    """One training of a pass: what its processes reported, their traces, and which processes are of other trainings.

    `traces`: also of processes that reported nothing more, as after a crash. `export`: what nsys wrote of the pass, its
    SQLite export or else its report. `marked_by`: what the recorder took for the end of a step.
    """

    run: RunFolder
    tool: str
    reports: tuple[ProcessReport, ...]
    traces: tuple[Path, ...]
    export: Path | None
    others: tuple[int, ...]
    processes: tuple[RecordedProcess, ...]
    marked_by: str

    @property
    def file(self) -> Path:
        """Its largest file, by which it is known."""
        return self.export or self.traces[0]

    @property
    def name(self) -> str:
        """As it is shown: of several machines each has a folder."""
        return f"{self.run.path.name}/{self.file.name}"

    @property
    def ranks(self) -> int:
        """How many ranks it has at least."""
        return max(sum(report.is_training for report in self.reports), 1) if self.export else 1

    @property
    def files(self) -> tuple[Path, ...]:
        return (*self.traces, self.export) if self.export else self.traces

    def by_ranks(self) -> list[RecordedPart]:
        """The parts that hold whole ranks and can be read by themselves: what nsys wrote is one, else each trace."""
        if self.export:
            return [self]
        of_trace = [
            (trace, tuple(each for each in self.reports if _stem(each.trace) in ("", _stem(trace.name))))
            for trace in self.traces
        ]
        return [replace(self, traces=(trace,), reports=reports) for trace, reports in of_trace]

    def only(self, files: Collection[Path]) -> RecordedPart:
        """The same with these files alone."""
        if self.export in files:
            return self
        return replace(self, export=None, traces=tuple(trace for trace in self.traces if trace in files))

    def for_a_worker(self) -> RecordedPart:
        """The same, wherever it is read, without what concerns the run as a whole."""
        return replace(
            self,
            run=RunFolder(self.run.path.absolute(), Manifest()),
            traces=tuple(trace.absolute() for trace in self.traces),
            export=self.export.absolute() if self.export else None,
            processes=(),
        )


class Chosen(Struct, frozen=True):
    """What of a run is read: of its ranks these `files` alone.

    `extent_ns`: from the first to the last row of all its ranks, on the clock whose 0 is `epoch_ns`; None if unknown.
    """

    files: Collection[Path]
    extent_ns: tuple[int, int] | None = None
    epoch_ns: int | None = None


def parts(run: RunFolder, progress: Progress, process: int | None, tools: Sequence[str] = _TOOLS) -> list[RecordedPart]:
    """The parts of the run's first pass that left anything: each can be read by itself, together they hold all ranks.

    `process`, and what is raised, as in `read`.
    """
    found = (_part(run, tool, process, progress) for tool in tools)
    return next((by_ranks for part in found if (by_ranks := part.by_ranks())), [])


def read_part(part: RecordedPart) -> Timeline:
    """The Timeline of one of `parts`. PerfdoctorError where it cannot be read."""
    timeline = _pass(part, silent)
    assert timeline is not None, "a part has a file"
    return _as_reported(timeline, part, [part])


def _part(run: RunFolder, tool: str, process: int | None, progress: Progress) -> RecordedPart:
    """What a tool recorded of the training with number `process`, or of the longest one if that is None.

    UsageError where there is no training of that number.
    """
    reports = run.reports(tool)
    found = trainings(reports)
    chosen = _chosen(found, run, tool, process, progress)
    others = [report for each in found if each != chosen for report in each.reports]
    own = chosen.reports if chosen and len(found) > 1 else tuple(reports)
    of_others = {_stem(report.trace) for report in others}
    return RecordedPart(
        run,
        tool,
        own,
        tuple(file for stem, file in _each_once(run.files(tool, *_TRACES)).items() if stem not in of_others),
        _system_file(run) if tool == "nsys" else None,
        tuple(report.pid for report in others),
        _processes(found, chosen),
        next((report.step_found_by for report in own if report.is_training), ""),
    )


def _chosen(
    found: Sequence[Training], run: RunFolder, tool: str, process: int | None, progress: Progress
) -> Training | None:
    if process is None or not found:
        among = _in_export(found, run, progress) if tool == "nsys" and len(found) > 1 else found
        return longest(among) if among else None
    if process > len(found):
        raise UsageError(
            f"--process {process}: {run.path.name} has {len(found)} training{'s' * (len(found) > 1)}",
            do=f"Give a number from 1 to {len(found)}." if len(found) > 1 else "Leave out --process.",
        )
    return found[process - 1]


def _in_export(found: Sequence[Training], run: RunFolder, progress: Progress) -> Sequence[Training]:
    """The trainings that nsys recorded: on a GPU its collection ends with the window of the first. All if none are."""
    try:
        file = _system_file(run)
        recorded = nsys.processes(_exported(file, progress)) if file else frozenset()
    except PerfdoctorError:  # whoever reads the pass says so
        return found
    return [each for each in found if each.pids & recorded] or found


def read(run: RunFolder, progress: Progress, process: int | None = None, chosen: Chosen | None = None) -> Timeline:
    """The run's first pass that can be read, with notes on what is missing and on how other passes differ.

    `process`: which of several trainings of one command, by its number; else the longest. `chosen`: of its ranks no
    others, which may be none. PerfdoctorError where nothing was recorded at all, UsageError where there is no training
    of that number.
    """
    notes: list[str] = []
    found = list(_passes(run, process, progress, notes, chosen))
    profiles, sides = list(_ncu_pass(run, progress, notes)), list(_sides(run, progress, notes))
    rates = list(_readable(run.files("device", "measured*.json"), measured.load, notes))
    notes = [*_recorder_notes(run), *notes]
    if not found and (profiles or chosen):
        none, of_ranks = Timeline.build({}, ()), parts(run, progress, process)
        part = _part(run, of_ranks[0].tool if of_ranks else "ncu", process, progress)
        found.append((part, replace(none, epoch_ns=chosen.epoch_ns) if chosen else none))
    if not found:
        raise PerfdoctorError(
            f"the run in {run.path.name} holds no recording" + (f": {notes[0]}" if notes else ""),
            do=next(
                (record.do for record in run.manifest.passes if record.do),
                "Record again; perfdoctor env lists what can be recorded here.",
            ),
        )
    (part, first), others = found[0], found[1:]
    if profiles:
        first = ncu.with_profiles(first, profiles)
    if sides:
        first = side_files.joined(first, sides, chosen.extent_ns if chosen else None)
    first = side_files.with_rates(first, rates)
    first = _as_reported(first, part, [each for each, _ in found])
    return first.with_notes(
        *notes,
        *(note for each, other in others for note in _compared(part.tool, first, each.tool, other)),
    )


def _as_reported(timeline: Timeline, part: RecordedPart, found: Sequence[RecordedPart]) -> Timeline:
    """The timeline with what its processes reported of the job. `found`: parts of all passes."""
    training = [report for report in part.reports if report.is_training]
    unread: list[str] = []
    world_sizes = [report.world_size or 0 for each in found for report in each.reports]
    return replace(
        timeline,
        world_size=max(timeline.world_size, *world_sizes, 0),
        steps_marked_by=part.marked_by,
        loaders=tuple(loader for report in training for loader in _loaders(report)),
        loader_trials=tuple(report.loader_trial for report in training if report.loader_trial),
        processes=part.processes,
        unrecorded_step_ns=_unrecorded(training, timeline),
        unrecorded_steps={each.rank: each.unwatched_steps for each in training if each.rank in timeline.ranks},
        timed_steps={each.rank: each.timed for each in training if each.rank in timeline.ranks and each.timed},
        project=project_from(part.run.manifest.project),
        whole_runs=tuple(_readable(_whole_runs(part), whole_run.read, unread)),
        watched_run=watched_run.read(part.run.path),
        torch=next((report.torch for report in training if report.torch), ""),
    ).with_notes(*unread)


# --- one pass ---


def _passes(
    run: RunFolder, process: int | None, progress: Progress, notes: list[str], chosen: Chosen | None
) -> Iterator[tuple[RecordedPart, Timeline]]:
    """The passes that can be read; a note in `notes` for each of the others."""
    is_first = True
    for name in _TOOLS:
        part = _part(run, name, process, progress)
        if chosen is not None:  # another pass is only compared: one of its ranks shows that
            part = part.only(chosen.files) if is_first else replace(part, export=None, traces=part.traces[:1])
        try:
            timeline = _pass(part, progress)
        except PerfdoctorError as error:
            notes.append(f"The {name} pass cannot be read: {_said(error)}")
            continue
        if timeline is not None:
            is_first = False
            yield part, timeline


def _said(error: PerfdoctorError) -> str:
    return f"{error.what}. {error.do}.".replace("..", ".")


def _pass(part: RecordedPart, progress: Progress) -> Timeline | None:
    """The timeline of nsys's export with the traces beside it, or of the traces alone; None where there is neither."""
    reports = part.reports
    ops, notes = _traces(part, progress)
    if part.export is None:
        return _with_sides(part, _whole_steps(reports, merge(ops)), 0).with_notes(*notes) if ops else None
    export = _exported(part.export, progress)
    progress(f"Reading {export.name}")
    ranks = {each.pid: each.rank for each in reports if each.is_training and each.rank is not None}
    system = nsys.read(export, ranks, without=part.others)
    system = system.with_notes(*notes, *_lost_ranges(reports, system))
    epoch_ns = system.epoch_ns
    for each in ops:
        system = joined(system, each, epoch_ns)
    system = replace(_whole_steps(reports, system), epoch_ns=epoch_ns)
    return system if epoch_ns is None else _with_sides(part, system, epoch_ns)


def _traces(part: RecordedPart, progress: Progress) -> tuple[list[Timeline], list[str]]:
    """The traces that can be read, each with the rank that its process reported, and notes on the others."""
    ranks = {_stem(report.trace): report.rank for report in part.reports if report.trace}
    found, notes = readable(part.traces, progress, kineto.read)
    reported = ((timeline, ranks.get(_stem(trace.name))) for trace, timeline in found.items())
    return [timeline if rank is None else timeline.as_rank(rank) for timeline, rank in reported], notes


def _ncu_pass(run: RunFolder, progress: Progress, notes: list[str]) -> Iterator[Timeline]:
    """The profiles of Nsight Compute, from an execution of their own; one of the `notes` where one cannot be read.

    A report has the results of NVIDIA's rules as well; its table is read where the report's format is too new.
    """
    reports, tables = run.files("ncu", "*.ncu-rep"), run.files("ncu", "*.csv")
    printed = {table.stem for table in tables}
    for file in (*reports, *(table for table in tables if table.stem not in {report.stem for report in reports})):
        progress(f"Reading {file.name}")
        try:
            yield ncu.read(file)
        except PerfdoctorError as error:
            if file in reports and file.stem in printed:
                yield ncu.read(file.with_suffix(".csv"))
                continue
            notes.append(f"The ncu pass cannot be read: {_said(error)}")


def _sides(run: RunFolder, progress: Progress, notes: list[str]) -> Iterator[Timeline]:
    """Samples of the GPUs and NCCL's logs, recorded beside the passes; a note in `notes` where one cannot be read."""

    def side(file: Path) -> Timeline | None:
        row = formats.of_named(file)
        if not row or not row.read or row.join is not side_files.joined:
            return None
        progress(f"Reading {file.name}")
        found: Timeline = row.read(file, progress, unheard)
        return found

    return _readable((*run.files("device", "*"), *run.files("nccl", "*")), side, notes)


def _readable(files: Sequence[Path], read: Callable[[Path], _Found | None], notes: list[str]) -> Iterator[_Found]:
    """What `read` finds in each of these files; a note in `notes` for each that cannot be read."""
    for file in files:
        try:
            if (found := read(file)) is not None:
                yield found
        except PerfdoctorError as error:  # noqa: PERF203 the other files are still read
            notes.append(_said(error))


def _system_file(run: RunFolder) -> Path | None:
    """The pass's SQLite export, else its report; None where nsys wrote neither."""
    exports = run.files("nsys", "*.sqlite")
    reports = exports or run.files("nsys", "*.nsys-rep", "*.qdrep", "*.qdstrm")
    return reports[0] if reports else None


def _exported(file: Path, progress: Progress) -> Path:
    """The path of the pass's SQLite export: `file` itself, or the export of the report `file`."""
    return file if file.suffix == ".sqlite" else nsys_export.export(file, progress=progress)


def _stem(trace: str) -> str:
    """The name of a trace, the same whether it is compressed or not."""
    return trace.removesuffix(".gz")


def _each_once(traces: Sequence[Path]) -> dict[str, Path]:
    """The traces by stem: of one that lies there packed and unpacked, the later of the two in this order."""
    return {_stem(trace.name): trace for trace in traces}


def _whole_steps(reports: Sequence[ProcessReport], timeline: Timeline) -> Timeline:
    """The timeline without the step in which a program ended early: its range includes the program's clean-up."""
    ranges = timeline.ranges
    is_step = ranges.name.matches(torch_names.PROFILER_STEP)
    drop = np.zeros(len(ranges), dtype=bool)
    for report in reports:
        if report.rank is not None and report.state != "recording" and report.steps_recorded:
            rows = np.flatnonzero(is_step & (ranges["rank"] == report.rank))
            drop[rows[report.steps_recorded :]] = True
    return timeline.with_frame("ranges", ranges.take(~drop)) if drop.any() else timeline


def _processes(found: Sequence[Training], chosen: Training | None) -> tuple[RecordedProcess, ...]:
    """What is reported of each training of a pass; nothing where there is only one."""
    if len(found) < 2:
        return ()
    return tuple(
        RecordedProcess(
            each.number, each.reports[0].pid, each.reports[0].process_name, each.reports[0].command, len(each.reports),
            each.steps_seen, each.steps_recorded, each.length_ns, diagnosed=each == chosen,
            start_unix_ns=each.start_unix_ns,
        )
        for each in found
    )  # fmt: skip


# --- two recordings of one execution ---


def joined(system: Timeline, ops: Timeline, epoch_ns: int | None) -> Timeline:
    """The timeline of nsys with what torch.profiler recorded of one rank in the same execution, on nsys's clock.

    The clocks are aligned by the step ranges that both recorded; the first is late by the cost of first calls, so the
    median counts. Without such ranges the wall clocks are used, which agree to some 10 µs. A range that both recorded
    counts once.
    """
    (rank,) = ops.ranks
    shift_ns = _shift_ns(system, ops, rank)
    note: tuple[str, ...] = ()
    if shift_ns is None:
        shift_ns = -(epoch_ns or 0)
        note = (f"Rank {rank}: ops and calls are aligned by the machine's clock, to some 10 µs.",)
    if shift_ns == 0 and epoch_ns is None:
        return system.with_notes(
            f"Rank {rank}: its ops cannot be put on the clock of Nsight Systems, and are left out."
        )
    known = set(system.ranges.of(rank=rank).name)
    ranges = ops.ranges.take(~ops.ranges.name.equals(*known))
    added = {"ops": ops.ops, "functions": ops["functions"], "modules": ops["modules"], "ranges": ranges}
    frames = dict(system.frames)
    for signal, rows in added.items():
        frames[signal] = Frame.join([frames[signal], rows.shifted(shift_ns)])
    return Timeline.build(
        frames,
        system.recorded | (added.keys() & ops.recorded),
        sources=[*system.sources, *ops.sources],
        devices=system.devices,
        world_size=max(system.world_size, ops.world_size),
        thread_names=system.thread_names,
        notes=[*system.notes, *ops.notes, *note],
    )


def _shift_ns(system: Timeline, ops: Timeline, rank: int) -> int | None:
    """What to add to the ops' times, from steps that both recorded; None without any."""
    theirs = _steps(ops, rank)
    differences = [start - theirs[name] for name, start in _steps(system, rank).items() if name in theirs]
    if not differences:
        return None
    return round(float(np.median(np.array(differences, dtype=np.int64) - differences[0]))) + differences[0]


def _steps(timeline: Timeline, rank: int) -> dict[str, int]:
    """When each step of the rank began, by the name of its range."""
    rows = timeline.ranges.of(rank=rank).named(torch_names.PROFILER_STEP)
    return dict(zip(rows.name, rows.start_ns.tolist(), strict=True))


# --- what the processes reported ---


def _with_sides(part: RecordedPart, timeline: Timeline, epoch_ns: int) -> Timeline:
    """The timeline with what was recorded beside the pass. `epoch_ns`: when its time 0 was, since 1970."""
    ranks = {each.pid: each.rank for each in part.reports if each.rank is not None}
    stacks = part.run.files("stacks", *(f"{part.tool}-{pid}{of}.json.gz" for pid in ranks for of in ("", "-worker-*")))
    timeline = _with_processors(_with_memory(timeline, part.reports, epoch_ns), part.reports, epoch_ns)
    return sampled_stacks.join(timeline, stacks, ranks, epoch_ns)


def _with_processors(timeline: Timeline, reports: Sequence[ProcessReport], epoch_ns: int) -> Timeline:
    """The timeline with what each training process used of the processor in its recorded steps."""
    rows = [
        {
            "rank": report.rank, "process": report.pid, "name": "recorded steps",
            "start_ns": report.processor["start_unix_ns"] - epoch_ns,
            "end_ns": report.processor["end_unix_ns"] - epoch_ns,
            **{name: report.processor[name] for name in CPU_USE_NUMBERS if name in report.processor},
        }
        for report in reports
        if report.processor and report.rank in timeline.ranks
    ]  # fmt: skip
    return timeline.with_frame("cpu_processes", text_rows.frame("cpu_processes", rows)) if rows else timeline


def _with_memory(timeline: Timeline, reports: Sequence[ProcessReport], epoch_ns: int) -> Timeline:
    """The timeline with the memory of each rank at the ends of its steps, where enough of them were reported."""
    rows = [
        {
            "rank": report.rank, "process": report.pid, "device": report.memory.device,
            "start_ns": unix_ns - epoch_ns, "end_ns": unix_ns - epoch_ns, "allocated_bytes": allocated,
            "reserved_bytes": reserved, "name": report.memory.kind,
        }
        for report in reports
        if report.rank in timeline.ranks and len(report.memory.samples) >= _FEWEST_SAMPLES
        for unix_ns, allocated, reserved in report.memory.samples
    ]  # fmt: skip
    return timeline.with_frame("memory", text_rows.frame("memory", rows)) if rows else timeline


def _loaders(report: ProcessReport) -> Iterator[ReportedLoader]:
    """Its loaders with their batches a step: where an epoch ends, another iterator goes on with the same loader."""

    def kind(loader: ReportedLoader) -> tuple[int, int, int]:
        return loader.workers, loader.tensors, loader.epoch

    for each in report.loaders:
        batches = sum(other.batches for other in report.loaders if kind(other) == kind(each))
        yield replace(each, batches_per_step=batches / report.steps_recorded if report.steps_recorded else 0.0)


def _unrecorded(reports: Sequence[ProcessReport], timeline: Timeline) -> dict[int, int]:
    """The step in ns that each rank's process timed without a recorder: on a GPU, by the GPU's clock alone.

    A host that runs ahead of its GPU ends its steps sooner.
    """
    on_gpu = {rank for rank, _ in timeline.places}
    return {
        report.rank: report.unwatched_step_ns
        for report in reports
        if report.rank in timeline.ranks
        and report.unwatched_step_ns > 0
        and (report.rank not in on_gpu or report.unwatched_clock == "device")
    }


def _whole_runs(part: RecordedPart) -> list[Path]:
    """The files with the whole runs of the training processes."""
    pids = [report.pid for report in part.reports if report.is_training]
    return part.run.files("stacks", *(f"whole-run-{part.tool}-{pid}.json.gz" for pid in pids))


# --- notes ---


def _recorder_notes(run: RunFolder) -> Iterator[str]:
    for record in run.manifest.passes:
        if record.state == "running":
            yield f"The {record.name} pass was interrupted: perfdoctor was killed while it ran."
        for note in record.notes:
            yield f"The {record.name} pass: {note}."
    yield from run.manifest.notes


def _lost_ranges(reports: Sequence[ProcessReport], system: Timeline) -> Iterator[str]:
    """A note for each rank whose program opened more ranges than arrived: some versions of nsys and NVTX lose some."""
    for report in reports:
        if report.nvtx_ranges and report.rank is not None:
            arrived = len(system.ranges.of(rank=report.rank))
            if arrived < report.nvtx_ranges:
                yield (
                    f"Rank {report.rank}: {arrived:,} of {report.nvtx_ranges:,} ranges arrived in Nsight Systems: "
                    "this version of it loses NVTX ranges."
                )


def _compared(first_name: str, first: Timeline, name: str, other: Timeline) -> Iterator[str]:
    """A note that compares the steps of the `first` pass with those of an `other` one: tools slow them differently."""
    here, there = _median_step_ns(first), _median_step_ns(other)
    if not here or not there:
        return
    difference = abs(there - here) / min(here, there)
    verdict = "they agree" if difference <= _SAME_STEP_SHARE else "the tools slow it differently: trust the shorter one"
    yield (
        f"A step took {here / 1e6:.1f} ms in the {first_name} pass, which is shown, and {there / 1e6:.1f} ms in the "
        f"{name} pass ({difference:.0%} apart): {verdict}."
    )


def _median_step_ns(timeline: Timeline) -> int:
    steps: list[int] = []
    for rank in timeline.ranks:
        marks = host_marks(timeline, rank)
        if marks is not None and marks.starts.size > 1:
            steps += np.diff(marks.starts).tolist()
    return int(np.median(steps)) if steps else 0

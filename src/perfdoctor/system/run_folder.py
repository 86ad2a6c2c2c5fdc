"""Which files has a recorded run, and what is in its manifest?

    run.json          manifest: command (secrets masked), passes with tools and versions, exit code, ranks, notes
    agents/           the report of each recorded process, one JSON file a process and pass
    torch/rank<N>.pt.trace.json.gz   nsys/<name>.nsys-rep .sqlite rank<N>.pt.trace.json.gz   ncu/<name>.ncu-rep .csv
    device/samples.csv cpu.csv topology.txt measured.json   nccl/rank<N>.log   report.html   diagnosis.json

The manifest is written before each pass and after it, so that it shows what is missing in a run that was killed.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.system.masking import MASK, masked, masked_text
from perfdoctor.system.paths import without_home, write_whole

FORMAT = 1
#: Where runs lie, if nothing else is said.
RUNS = "perfdoctor-runs"
MANIFEST = "run.json"

#: Environment variables that explain a recording. No others are kept.
_KEPT_ENVIRONMENT = regex(
    r"^(CUDA_|NCCL_|TORCH_|PYTORCH_|OMP_|MKL_NUM|KMP_|(LOCAL_)?(RANK|WORLD_SIZE)$|SLURM_(PROCID|NTASKS|NNODES)$)"
)


def explains_recording(variable: str) -> bool:
    """May the variable of this name affect speed?"""
    return _KEPT_ENVIRONMENT.match(variable) is not None


def recorded_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that may affect speed, with secrets masked."""
    return {
        name: masked_text(masked(f"{name}={value}").partition("=")[2])
        for name, value in sorted(environment.items())
        if explains_recording(name)
    }


def environment_again(recorded: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """The environment of `now` with the variables that explain a recording as they were `recorded`.

    What was masked stays as it is now.
    """
    others = {name: value for name, value in now.items() if not explains_recording(name)}
    known = {name: value for name, value in recorded.items() if MASK not in value}
    masked_ones = {name: now[name] for name in recorded.keys() - known.keys() if name in now}
    return {**others, **known, **masked_ones}


#: 2^62 ns after 1970 is the year 2116; the sum of two such times is still an int64.
Moment = Annotated[int, Meta(ge=0, lt=1 << 62)]


class PassRecord(Struct):
    """One pass: one run of the program under one tool. `state`: running, done, or failed; files are relative names.

    `do`: what the user can do where no step was recorded.
    """

    name: str
    tool_version: str = ""
    command: list[str] = field(default_factory=list)
    started_unix_ns: Moment = 0
    seconds: Annotated[float, Meta(ge=0, lt=float(1 << 32))] | None = None
    exit_code: int | None = None
    state: str = "running"
    files: list[str] = field(default_factory=list)
    bytes: int = 0
    notes: list[str] = field(default_factory=list)
    do: str = ""


class Manifest(Struct):
    format: int = FORMAT
    perfdoctor: str = ""
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    started_unix_ns: Moment = 0
    passes: list[PassRecord] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    exit_code: int | None = None
    ranks: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: The user's commit when the run began: commit, dirty, branch; empty where nobody knows.
    checkout: dict[str, Any] = field(default_factory=dict)
    #: Of which project the program is (system/project.py): name, id, program; empty where nobody knows.
    project: dict[str, str] = field(default_factory=dict)
    #: Where the program was started, from here; "~/…" where that is not around this folder. "" where nobody knows.
    started_in: str = ""


class ReportedMemory(Struct, frozen=True):
    """(ns since 1970, allocated, reserved) in bytes at the end of each recorded step. `kind`: cuda, heap or nothing."""

    kind: str = ""
    device: int = -1
    samples: tuple[tuple[int, int, int], ...] = ()


class ReportedLoader(Struct, frozen=True):
    """An iterator over a DataLoader of the recorded steps, and its first batch. `epoch`: its batches, 0 if unknown.

    `batches_per_step`: that a recorded step of its process took from this loader, by all its iterators; 0 if unknown.
    """

    batches: int
    workers: int
    tensors: int
    bytes: int
    epoch: int = 0
    batches_per_step: float = 0.0


class TimedSteps(Struct, frozen=True):
    """The lengths of consecutive steps of a process, in ns, from `start_unix_ns` on, as far as they were timed.

    Those from `recorded[0]` on, up to `recorded[1]` and without it, were lengthened by recording. `clock`: `host`, as a
    host sees its steps end, which may be ahead of its GPU, or `device`, between events in the GPU's stream.
    """

    start_unix_ns: int
    lengths_ns: tuple[int, ...]
    recorded: tuple[int, int] = (0, 0)
    clock: str = "host"

    def last(self, most: int) -> TimedSteps:
        """The last steps, `most` of them."""
        cut = max(len(self.lengths_ns) - most, 0)
        begin, behind = (max(at - cut, 0) for at in self.recorded)
        start_unix_ns = self.start_unix_ns + sum(self.lengths_ns[:cut])
        return TimedSteps(start_unix_ns, self.lengths_ns[cut:], (begin, behind), self.clock)


class TriedWorkers(Struct, frozen=True):
    """What so many `workers` did in a trial: means of a batch in ns, as fast as batches came.

    `cpu_ns`: of a core, in all workers; `own_cpu_ns`: of the process that took them; `start_ns`: until the first batch,
    without making it; `delay_ns`: of all workers, ready to run without a core, 0 if not known.
    """

    workers: int
    batch_ns: int
    cpu_ns: int
    own_cpu_ns: int
    start_ns: int
    delay_ns: int = 0


class LoaderTrial(Struct, frozen=True):
    """What batches of the loader cost in a copy of the program (agent/perfdoctor_agent/trial_batches.py), ns each.

    `make_ns`: as a worker makes them, mean of `makes`, the slowest of which took `slowest_ns`; `make_cpu_ns`: of a
    core; `make_delay_ns`: ready to run, without a core, 0 if not known; `receive_ns`: one that a worker has ready, 0 if
    not known. `taken`: by the number of workers, fewest first.
    """

    makes: int
    make_ns: int
    make_cpu_ns: int
    slowest_ns: int
    receive_ns: int = 0
    make_delay_ns: int = 0
    taken: tuple[TriedWorkers, ...] = ()


class ProcessReport(Struct, frozen=True):
    """The report of one recorded process (see recording/agent/perfdoctor_agent/report.py).

    `job`: what ranks of one job have in common, if the launcher gave it. `command` is the program's, secrets masked.
    `own_traces`: files that the program wrote with its own torch.profiler. `held_ns`: how long it stood still behind
    the recorded steps, while its trace was written and workers were tried.
    """

    pass_name: str
    pid: int
    state: str
    rank: int | None
    world_size: int | None
    trace: str
    steps_seen: int
    steps_recorded: int
    step_found_by: str
    nvtx_ranges: int
    watched_step_ns: int
    unwatched_step_ns: int
    unwatched_steps: int
    unwatched_clock: str
    stopped: bool
    ended: bool
    torch: str
    notes: tuple[str, ...]
    memory: ReportedMemory
    #: What it used of the processor in its recorded steps (agent/perfdoctor_agent/processor.py); empty if unknown.
    processor: Mapping[str, int] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    process_name: str = ""
    job: str = ""
    started_unix_ns: int = 0
    reported_unix_ns: int = 0
    own_traces: tuple[str, ...] = ()
    loaders: tuple[ReportedLoader, ...] = ()
    timed: TimedSteps | None = None
    loader_trial: LoaderTrial | None = None
    held_ns: int = 0
    #: Does its agent handle SIGTERM, and write a trace before the process ends?
    ends_late: bool = False
    #: What a trial of treatments reports (agent/perfdoctor_agent/treated.py); its reader checks it.
    treated: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_training(self) -> bool:
        """Did it step at all? Helpers that import torch do not."""
        return self.steps_seen > 0 or bool(self.trace)


#: `perfdoctor-runs/<time>-<program>` below a project, and a folder of projects above it.
_DEPTH = 3
#: In one folder: a data set has more, and is none of runs.
_MOST_FOLDERS = 1_000


def free_name(runs: Path, name: str) -> Path:
    """A path in `runs` that does not exist yet, for a run that begins now: its time, then `name`."""
    stem = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    candidate, number = stem, 1
    while candidate.exists():
        number += 1
        candidate = stem.with_name(f"{stem.name}-{number}")
    return candidate


def started_in(folder: Path) -> str:
    """The working folder, from a run's folder as `Manifest.started_in` has it: most runs lie where they began."""
    inside = Path(os.path.abspath(folder))  # noqa: PTH100 it need not exist, and is no link
    here = Path.cwd()
    return os.path.relpath(here, inside) if inside.is_relative_to(here) else without_home(str(here))


def below(path: Path) -> list[Path]:
    """The run folders below a folder that is none, the latest first; those of one depth, down to `_DEPTH`."""
    found: list[Path] = []
    folders = [path] if path.is_dir() and not (path / MANIFEST).is_file() else []
    for _ in range(_DEPTH):
        folders = [each for folder in folders for each in _folders(folder)]
        if found := [each for each in folders if "perfdoctor" in (json_object(each / MANIFEST) or {})]:
            break
    return sorted(found, key=lambda each: (each / MANIFEST).stat().st_mtime_ns, reverse=True)


def _folders(path: Path) -> list[Path]:
    try:
        return [each for each in path.iterdir() if each.is_dir() and not each.name.startswith(".")][:_MOST_FOLDERS]
    except OSError:
        return []


def json_object(file: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where the file cannot be read, is a pipe, or holds something else."""
    if not file.is_file():
        return None
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


class RunFolder:
    """One recorded run. `make` creates folders of tools."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> RunFolder:
        """Begin a new run in the folder `path`. Raises PerfdoctorError where it is not empty or cannot be written."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise PerfdoctorError(
                    f"the folder {path} is not empty", do="Choose another one with -o DIR; no file is overwritten."
                )
            folder = cls(path, manifest)
            folder.make("agents")
            folder.write()
        except OSError as error:
            raise PerfdoctorError(
                f"{path} cannot be written: {error.strerror or error}",
                do="Choose a folder that you may write to with -o DIR",
            ) from error
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder | None:
        """The run in this folder; None where it holds none. PerfdoctorError if a later perfdoctor wrote it."""
        document = json_object(path / MANIFEST)
        if document is None or "perfdoctor" not in document:  # a run.json of another program
            return None
        if document.get("format", FORMAT) != FORMAT:
            raise PerfdoctorError(
                f"{path} was written by perfdoctor {document.get('perfdoctor', '')}, in a format that is unknown here",
                do="Install that version of perfdoctor, or a later one.",
            )
        try:
            return cls(path, msgspec.convert(document, Manifest))
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the half of a pair is no text
            raise PerfdoctorError(
                f"{path / MANIFEST} is damaged: {error}", do="Give the recordings in the folder by themselves."
            ) from error

    def make(self, name: str) -> Path:
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        return folder

    def write(self) -> None:
        """Store the manifest, whole or not at all. Words of a command need not be UTF-8: `?` stands for what is not."""
        text = json.dumps(_masked(msgspec.to_builtins(self.manifest)), indent=1, ensure_ascii=False) + "\n"
        write_whole(self.path / MANIFEST, text.encode(errors="replace"))

    def reports(self, pass_name: str) -> list[ProcessReport]:
        """The reports of a pass's processes, by rank; damaged files are skipped."""
        if Path(pass_name).name != pass_name:  # a manifest may name anything
            return []
        documents = map(json_object, sorted((self.path / "agents").glob(f"{pass_name}-*.json")))
        found = [_process_report(document) for document in documents if document is not None]
        return sorted(found, key=lambda report: (report.rank is None, report.rank or 0, report.pid))

    def amend(self, report: ProcessReport, **facts: object) -> None:
        """Correct what a process reported, once it has ended."""
        file = self.path / "agents" / f"{report.pass_name}-{report.pid}.json"
        write_whole(file, json.dumps({**json.loads(file.read_text("utf-8")), **facts}).encode())

    def files(self, folder: str, *patterns: str) -> list[Path]:
        """Files of one tool's folder, by pattern, sorted by name (rank2 before rank10).

        No pipes: whoever opens one waits for ever.
        """
        every = {file for pattern in patterns for file in (self.path / folder).glob(pattern)}
        found = [file for file in every if file.is_file()]
        return sorted(found, key=lambda file: [int(n) if n.isdecimal() else n for n in re.split(r"(\d+)", file.name)])

    def bytes_on_disk(self) -> int:
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())


def _masked(document: dict[str, Any]) -> dict[str, Any]:
    """The manifest with secrets masked in its sentences, which may quote what the program raised."""
    for part in (document, *document["passes"]):
        part["notes"] = [masked_text(note) for note in part["notes"]]
    document["left_out"] = {name: masked_text(why) for name, why in document["left_out"].items()}
    return document


_NUMBERS = (
    "pid", "steps_seen", "steps_recorded", "nvtx_ranges", "watched_step_ns", "unwatched_step_ns", "unwatched_steps",
    "started_unix_ns", "held_ns",
)  # fmt: skip
_TEXTS = ("state", "step_found_by", "unwatched_clock", "torch", "process_name", "job")
_LISTS_OF_TEXTS = ("notes", "command", "own_traces")


def _process_report(document: Mapping[str, Any]) -> ProcessReport:
    """The report that an agent wrote, of any version; what is missing or damaged is 0, "" or empty."""

    def number(name: str) -> int | None:
        value = document.get(name)
        return value if _is_size(value) else None

    plain: dict[str, Any] = {name: number(name) or 0 for name in _NUMBERS}
    plain |= {name: str(document.get(name, "")) for name in _TEXTS}
    plain |= {name: tuple(str(text) for text in _listed(document.get(name))) for name in _LISTS_OF_TEXTS}
    plain["notes"] = tuple(map(masked_text, plain["notes"]))
    processor = _sizes(document.get("processor"))
    is_measured = processor.get("end_unix_ns", 0) > processor.get("start_unix_ns", 0) > 0
    return ProcessReport(
        **plain,
        pass_name=str(document.get("pass", "")),
        rank=number("rank"),
        world_size=number("world_size"),
        trace=Path(str(document.get("trace", ""))).name,
        stopped=document.get("stopped") is True,
        ended=document.get("ended") is True,
        ends_late=document.get("ends_late") is True,
        memory=_memory(document.get("memory")),
        processor=processor if is_measured else {},
        reported_unix_ns=number("unix_ns") or 0,
        loaders=tuple(_loaders(document.get("loaders"))),
        timed=_timed(document.get("timed")),
        loader_trial=_trial(document.get("loader_trial")),
        treated=document["treated"] if isinstance(document.get("treated"), dict) else {},
    )


def _sizes(document: object) -> dict[str, int]:
    """The numbers of a document; empty where any part is not as the agent writes it."""
    return dict(document) if isinstance(document, dict) and all(map(_is_size, document.values())) else {}


def _trial(document: object) -> LoaderTrial | None:
    """What was tried; None where nothing was, or any part is not as the agent writes it."""
    if not isinstance(document, dict):
        return None
    numbers = {name: document.get(name, 0) for name in LoaderTrial.__struct_fields__ if name != "taken"}
    taken, names = _listed(document.get("taken")), set(TriedWorkers.__struct_fields__)
    if not all(map(_is_size, numbers.values())) or not (numbers["makes"] and numbers["make_ns"]):
        return None
    taken = [{"delay_ns": 0, **each} if isinstance(each, dict) else {} for each in taken]  # older runs have none
    if not all(_sizes(each).keys() == names and each["batch_ns"] for each in taken):
        return None
    return LoaderTrial(**numbers, taken=tuple(TriedWorkers(**each) for each in taken))


def _loaders(document: object) -> Iterator[ReportedLoader]:
    """Yield the loaders whose facts are all known: a batch may have been of a kind that the agent cannot read."""
    names = [name for name in ReportedLoader.__struct_fields__ if name != "batches_per_step"]
    for each in _listed(document):
        if isinstance(each, dict) and all(_is_size(each.get(name)) for name in names):
            yield ReportedLoader(**{name: each[name] for name in names})


def _timed(document: object) -> TimedSteps | None:
    """The timed steps; None where any part is not as the agent writes it."""
    match document:
        case {"start_unix_ns": start, "lengths_ns": [*lengths], "recorded": [first, behind], **rest}:
            if all(map(_is_size, (start, first, behind, *lengths))) and lengths and first <= behind <= len(lengths):
                return TimedSteps(start, tuple(lengths), (first, behind), str(rest.get("clock", "host")))
    return None


def _memory(document: object) -> ReportedMemory:
    """The samples of memory; empty where any part is not as the agent writes it."""
    match document:
        case {"kind": "cuda" | "heap" as kind, "device": int(device), **rest} if _is_size(device, least=-1):
            samples = _listed(rest.get("samples"))
            if all(isinstance(each, list) and len(each) == 3 and all(map(_is_size, each)) for each in samples):
                return ReportedMemory(kind, device, tuple(map(tuple, samples)))
    return ReportedMemory()


def _is_size(value: object, least: int = 0) -> bool:
    """Is it a whole number of at least `least` that a column of int64 holds?"""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 62


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []

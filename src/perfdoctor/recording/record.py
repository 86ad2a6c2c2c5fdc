"""How is one pass recorded? The program runs once under one tool, into the run folder."""

from __future__ import annotations

import contextlib
import gzip
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from perfdoctor.recording.launch import program_run as launch
from perfdoctor.recording.outcome import outcome
from perfdoctor.recording.plan import Plan
from perfdoctor.recording.sampling import whole_run
from perfdoctor.recording.sampling.session import SamplerProcess
from perfdoctor.recording.sampling.stacks import cells_of
from perfdoctor.recording.tools import gpu_counters, ncu, nsys, nsys_sessions, torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow
from perfdoctor.system.masking import masked_command
from perfdoctor.system.paths import draft, text_of
from perfdoctor.system.run_folder import PassRecord, ProcessReport, RunFolder

#: Agents end their program themselves. One that still runs this long after its last recorded step is ended.
_STOPPING_GRACE_S = 20.0
_CHECK_EVERY_S = 1.0
#: ncu replays each kernel some forty times, so the time cannot be estimated from other passes.
NCU_TIME_LIMIT_S = 900.0
NCU_LAUNCHES = 2


class Session(Struct, frozen=True):
    """One `perfdoctor run`: what is run, how it is recorded, and where it goes."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    plan: Plan
    window: StepWindow
    folder: RunFolder
    time_limit_s: float | None = None
    #: The agent of torch's pass stays behind its window, and records others when it is asked to (`record-now`).
    stays: bool = False
    #: Gets the program's pid in each pass.
    started: Callable[[int], None] = lambda _: None
    #: How the program ended, each time it was run.
    ran: list[launch.Ended] = field(default_factory=list)

    def record(self, name: str, kernels: Sequence[str] = ()) -> launch.Ended:
        """Run the pass `name`; ncu measures `kernels`. The manifest is written before it begins and after it."""
        record = PassRecord(name, self._version(name), masked_command(self.command), started_unix_ns=time.time_ns())
        self.folder.manifest.passes.append(record)
        self._store()
        before = self.folder.bytes_on_disk()
        try:
            if name == "ncu":
                ended = self._ncu(record, kernels)
            else:
                ended = self._nsys(record) if name == "nsys" else self._torch(record)
        except BaseException:
            record.state = "failed"
            self._store()
            raise
        record.seconds, record.exit_code, record.state = round(ended.seconds, 3), ended.code, "done"
        self._hide_folders(name)
        happened = outcome(self.folder.reports(name), self.window, name, ended)
        record.notes += [*ended.notes, *happened.notes]
        record.do = happened.do
        record.bytes = self.folder.bytes_on_disk() - before
        self.folder.manifest.ranks += [of_rank(report) for report in self.folder.reports(name) if report.is_training]
        self._store()
        return ended

    def _store(self) -> None:
        with contextlib.suppress(OSError):  # a full disk must not change the program's exit code
            self.folder.write()

    def _version(self, name: str) -> str:
        machine = self.plan.machine
        if name == "torch":
            return machine.program.torch
        if name == "nsys":
            return machine.nsys.version if machine.nsys else ""
        return ncu.version(machine.ncu) if machine.ncu else ""

    # --- one tool each ---

    def _torch(self, record: PassRecord) -> launch.Ended:
        traces = self.folder.make("torch")
        with self._sampler(record) as sampler:
            ended = self._run(PassSettings("torch", traces, "cpu+cuda"), sampler=sampler)
        self._keep_own_traces(record)
        record.files += kept_traces(self.folder, "torch")
        return ended

    def _nsys(self, record: PassRecord) -> launch.Ended:
        tool, folder = self.plan.machine.nsys, self.folder.make("nsys")
        assert tool is not None
        stem, log = folder / self.plan.machine.program.name, folder / "nsys.log"
        gpu = self.plan.machine.has_gpu
        # Only the agent opens the range, so nsys must not wait for it where the agent cannot be loaded.
        has_range = gpu and not self.plan.machine.program.shut_out
        recording = PassSettings("nsys", folder, "cpu", nvtx=True, capture_range="all" if has_range else "")
        counters = self.plan.machine.counters.options(
            tool, gpus=len(self.plan.machine.devices.gpus), steps=self.window.steps if has_range else 0
        )
        plain = partial(nsys.command, tool, stem, has_gpu=gpu, has_range=has_range)
        around = launch.ProfilerCommand(partial(plain, counters=counters), log, plain if counters else None)
        for each in nsys_sessions.remove_broken():
            record.notes.append(f"{each}, which a killed nsys had left empty, was removed: nsys waits for it.")
        with self._sampler(record) as sampler:
            ended = self._run(recording, around, sampler=sampler)
        nsys.remove_requests(record.started_unix_ns, str(self.folder.path.absolute()))
        made = nsys.report_of(stem) or nsys.keep_stream(stem, record.started_unix_ns)
        record.files += [f"nsys/{made.name}"] if made else []
        if why := nsys.explain(log, made, record.started_unix_ns):
            record.notes.append(why)
        if counters and (trouble := gpu_counters.explain(text_of(log))):
            record.notes.append("the GPU's counters were not recorded: {}. {}".format(*trouble))
        record.files += kept_traces(self.folder, "nsys")
        return ended

    def _ncu(self, record: PassRecord, kernels: Sequence[str]) -> launch.Ended:
        tool, folder = self.plan.machine.ncu, self.folder.make("ncu")
        assert tool is not None
        report, log = folder / f"{self.plan.machine.program.name}.ncu-rep", folder / "ncu.log"
        wanted = partial(ncu.command, tool, ncu.options(tool), report, kernels, NCU_LAUNCHES)
        around = launch.ProfilerCommand(partial(wanted, tensor_flop=ncu.counts_tensor_flop(tool)), log)
        limit_s = min(self.time_limit_s or NCU_TIME_LIMIT_S, NCU_TIME_LIMIT_S)
        ended = self._run(PassSettings("ncu", folder, "", capture_range="first"), around, time_limit_s=limit_s)
        log_text = "\n".join(text_of(each) for each in (log, ncu.log_of(report)))
        code = None if ended.alone else ncu.program_code(ended.code, log_text)
        ended.code = ended.code if code is None else code
        if why := ncu.explain(log_text):
            record.notes.append(why)
        if report.is_file():
            ncu.export_csv(tool, report, report.with_suffix(".csv"))
            record.files += [f"ncu/{report.name}", f"ncu/{report.stem}.csv"]
        return ended

    # --- the program ---

    @contextlib.contextmanager
    def _sampler(self, record: PassRecord) -> Iterator[SamplerProcess | None]:
        """Sample the stacks of one pass and keep them; None where they cannot, or are not to, be sampled."""
        py_spy, sampler = self.plan.machine.py_spy, None
        if self.window.sampling and not py_spy.trouble:
            try:
                sampler = SamplerProcess(py_spy, with_source=self.window.source)
            except OSError as error:  # no space, no more processes: the training runs without it
                record.notes.append(f"stacks were not sampled: {error.strerror or error}")
        try:
            yield sampler
        finally:
            with contextlib.ExitStack() as at_last:  # no file of ours stays, whatever fails
                if sampler is not None:
                    at_last.callback(sampler.close)
                    sampler.end()
                self._keep_stacks(record, sampler)

    def _keep_stacks(self, record: PassRecord, sampler: SamplerProcess | None) -> None:
        """Keep what was sampled in the run folder."""
        stacks = self.folder.path / "stacks"
        if sampler is not None:
            record.notes += sampler.keep(stacks, record.name, Path.cwd())
        cells = sampler.folder if sampler is not None else Path()
        record.files += whole_run.keep(
            self.folder,
            record.name,
            Path.cwd(),
            lambda pid: cells_of(cells, pid),
            record.notes,
            with_source=self.window.source,
        )
        record.files += [f"stacks/{file.name}" for file in self.folder.files("stacks", f"{record.name}-*.json.gz")]

    def _run(
        self, recording: PassSettings, tool: launch.ProfilerCommand | None = None, *, time_limit_s: float | None = None,
        sampler: SamplerProcess | None = None,
    ) -> launch.Ended:  # fmt: skip
        """Run the program with the agent in it, and with `tool` around it."""
        rows = self.folder.make("steps").absolute() if self.stays and recording.pass_name == "torch" else None
        environment = torch_profiler.environment(
            self.environment, recording, self.window,
            reports=self.folder.path / "agents", nccl=self.folder.make("nccl"),
            sampling=sampler.settings if sampler else None,
            watch={"rows": str(rows), "watcher": 0} if rows else None,
        )  # fmt: skip
        try:
            with torch_profiler.while_running(environment) as given:
                ended = launch.run(
                    self.command, given, tool=tool, time_limit_s=time_limit_s or self.time_limit_s,
                    is_finished=overstayed(self.folder, recording.pass_name) if self.window.stop else lambda: False,
                    overdue=lambda: self._overdue(recording.pass_name), started=self.started,
                )  # fmt: skip
            self.ran.append(ended)
        finally:
            with contextlib.suppress(OSError):
                (self.folder.path / "nccl").rmdir()  # if nothing was written into it
            remove_agreed(self.folder, recording.pass_name)
        if any(report.stopped for report in self.folder.reports(recording.pass_name)):
            ended.code = 0  # it was ended on purpose
        return ended

    def _overdue(self, name: str) -> list[int]:
        """The processes that SIGTERM does not end since the agent writes their traces first."""
        return [each.pid for each in self.folder.reports(name) if each.state == "recording" and each.ends_late]

    def _keep_own_traces(self, record: PassRecord) -> None:
        """Copy the traces that processes wrote with their own profiler, where that kept ours from running."""
        for report in self.folder.reports("torch"):
            written = [file for file in map(Path, report.own_traces) if file.is_file()]
            if report.trace or not written:
                continue
            try:
                with written[-1].open("rb") as stream:
                    is_gzip = stream.read(2) == b"\x1f\x8b"
                target = self.folder.path / "torch" / f"own-{report.pid}.pt.trace.json{'.gz' * is_gzip}"
                with draft(target) as made:
                    shutil.copyfile(written[-1], made)
                self.folder.amend(report, trace=target.name.removesuffix(".gz"), step_found_by="")
            except OSError as error:  # no space, or not ours to read: it is still where the program wrote it
                record.notes.append(f"the program's own trace {written[-1].name} was not copied: {error.strerror}")
                continue
            record.files += [f"torch/{target.name}"] if target.suffix == ".gz" else []

    def _hide_folders(self, tool: str) -> None:
        """Keep only the names of the program's own traces in the reports: their folders may name users."""
        for report in self.folder.reports(tool):
            if report.own_traces:
                with contextlib.suppress(OSError):
                    self.folder.amend(report, own_traces=[Path(file).name for file in report.own_traces])


def remove_agreed(folder: RunFolder, pass_name: str) -> None:
    """Remove the files by which ranks agreed on their last step (agent/perfdoctor_agent/window_end.py)."""
    for agreed in folder.files(pass_name, "last-step-*"):
        with contextlib.suppress(OSError):
            agreed.unlink()


def overstayed(folder: RunFolder, pass_name: str) -> Callable[[], bool]:
    """A function that says whether agents requested the program's end and it still runs after the grace time."""
    next_check, since = 0.0, float("inf")

    def is_over() -> bool:
        nonlocal next_check, since
        now = time.monotonic()
        if now >= next_check:
            next_check = now + _CHECK_EVERY_S
            if any(report.stopped for report in folder.reports(pass_name)):
                since = min(since, now)
        return now - since > _STOPPING_GRACE_S

    return is_over


def kept_traces(folder: RunFolder, tool: str, limit_s: float = math.inf) -> list[str]:
    """Compress the traces of a tool, those begun within `limit_s`, and return the names of all in the run folder.

    Agents write them uncompressed, so as not to delay the training.
    """
    begun = time.monotonic()
    names = []
    for trace in folder.files(tool, "*.pt.trace.json"):
        if trace.is_symlink():  # the program may write here, also one of another user to which root has attached
            continue
        if not trace.stat().st_size:
            trace.unlink()  # the process ended before it wrote its trace
            continue
        is_late = time.monotonic() - begun > limit_s
        names.append(f"{tool}/{(trace if is_late else _compressed(trace)).name}")
    return names


def _compressed(trace: Path) -> Path:
    """Compress the trace, and return the file that is left."""
    target = trace.with_name(trace.name + ".gz")
    try:
        with trace.open("rb") as source, draft(target) as made, gzip.open(made, "wb", compresslevel=3) as packed:
            shutil.copyfileobj(source, packed, 1 << 20)
    except OSError:  # no space: the uncompressed trace is kept
        return trace
    trace.unlink()
    return target


def of_rank(report: ProcessReport) -> dict[str, object]:
    """The entry of a process in the manifest."""
    return {
        "pass": report.pass_name, "rank": report.rank, "world_size": report.world_size, "pid": report.pid,
        "torch": report.torch, "steps_seen": report.steps_seen, "steps_recorded": report.steps_recorded,
        "step_found_by": report.step_found_by, "trace": report.trace, "state": report.state,
    }  # fmt: skip

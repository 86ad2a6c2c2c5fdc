"""`perfdoctor run`: record a training without changes to it, and diagnose it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from msgspec import to_builtins
from msgspec.structs import replace

from perfdoctor.cli import analyze, hardware_options, outside_options, recorded, run_options, say, shared_options
from perfdoctor.cli.analyze import OutputFormat
from perfdoctor.cli.progress import progress
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from perfdoctor.recording.launch.program_run import Ended
    from perfdoctor.recording.plan import Plan
    from perfdoctor.recording.record import Session
    from perfdoctor.system.run_folder import RunFolder

#: A pause of less is not noticed among what a program does.
_NOTICED_NS = 500_000_000


def run(
    *,
    command: run_options.Command,
    output: run_options.Output = None,
    passes: run_options.Passes = "auto",
    steps: run_options.Steps = None,
    skip_steps: run_options.SkipSteps = 5,
    stop: run_options.Stop = None,
    timeout: run_options.Timeout = None,
    stacks: run_options.Stacks = False,
    sampling: run_options.Sampling = True,
    source: run_options.Source = True,
    modules: run_options.Modules = True,
    trial: run_options.Trial = True,
    html: run_options.Html = None,
    no_html: shared_options.NoHtml = False,
    json: run_options.Json = None,
    format_: Annotated[
        OutputFormat | None,
        typer.Option(
            "--format", help="Print it in this format on standard output, instead of as text on standard error."
        ),
    ] = None,
    rule: shared_options.OnlyRules = None,
    ignore: shared_options.IgnoredRules = None,
    own_rules: shared_options.OwnRules = None,
    config: shared_options.Config = None,
    fail_on: Annotated[
        list[str] | None,
        shared_options.fail_on("Exit with 3 if this rule finds something and the program ended with 0."),
    ] = None,
    gpu: hardware_options.Gpu = None,
    peak: hardware_options.Peak = None,
    tokens_per_step: hardware_options.TokensPerStep = None,
    parameters: hardware_options.Parameters = None,
    range_: shared_options.Range = None,
    process: shared_options.Process = None,
    no_save: run_options.NoSave = False,
    metrics: outside_options.Metrics = None,
    log: outside_options.Log = None,
    gpu_hour_price: outside_options.GpuHourPrice = None,
    cost: outside_options.ShowCost = False,
    show_all: shared_options.ShowAll = False,
    quiet: shared_options.Quiet = False,
    verbose: shared_options.Verbose = False,
) -> None:
    """Record COMMAND, unchanged, and diagnose it. The exit code is COMMAND's own."""
    analyze.check_html(html, no_html=no_html)
    if str(json) == analyze.STANDARD_OUTPUT:
        json, format_ = None, analyze.output_of(format_, analyze.STANDARD_OUTPUT, OutputFormat)
    rules = analyze.rules_of(rule or [], ignore or [], own_rules, config, quiet=quiet)
    asked = analyze.AnalysisRequest(
        rules, analyze.conditions_of(fail_on or [], rules), (),
        hardware_options.user_values(gpu, peak or [], tokens_per_step, parameters),
        shared_options.selection(range_, None), process, pricing=outside_options.pricing(gpu_hour_price, cost=cost),
        quiet=quiet, verbose=verbose,
    )  # fmt: skip
    reports = analyze.Reports(
        format_ or OutputFormat.TEXT, json, html, no_html, show_all, not no_save,
        outside_options.outside(metrics, log or []), on_error=format_ is None,
    )  # fmt: skip
    wanted = wanted_passes(command, passes)

    def notify(text: str) -> None:
        if not quiet:
            say.note(f"{text}")

    try:
        session = _session(
            command, output, wanted, steps, skip_steps, timeout,
            stop=stop, stacks=stacks, sampling=sampling, source=source, modules=modules, trial=trial,
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001 the training is started, whatever is wrong with the recording
        recorded.print_error("this run is not recorded", error)
        leave(alone(command, timeout))
    _print_plan(session, notify)
    ended = _record(session, notify, quiet=quiet, verbose=verbose)
    if ended.at_once:
        notify(f"Ended at once. What was recorded is in {session.folder.path}")
    elif not session.ran:
        notify("nothing was recorded")
    elif nothing := recorded.nothing_recorded(session.folder):
        say.failure(f"nothing to diagnose: {nothing.what}", nothing.do)
    else:
        recorded.report(session.folder, asked, reports, "run", ended.code)
    leave(ended)


# --- before ----------------------------------------------------------------------------------------------------------


def wanted_passes(command: Sequence[str], passes: str) -> tuple[str, ...] | None:
    """The passes that were asked for by name. Exits, as a shell does, if the command cannot be started at all."""
    from perfdoctor.recording import plan
    from perfdoctor.recording.launch import program

    try:
        wanted = plan.parse_passes(passes)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--passes") from None
    if trouble := program.trouble(command[0]):
        say.failure(trouble.what, trouble.do)
        raise typer.Exit(trouble.code)
    return wanted


def _session(
    command: Sequence[str], output: Path | None, wanted: tuple[str, ...] | None, steps: int | None, skip: int,
    timeout: float | None,
    *, stop: bool | None, stacks: bool, sampling: bool, source: bool, modules: bool, trial: bool,
) -> Session:  # fmt: skip
    """What is recorded, and its new folder. Raises PerfdoctorError, and what a machine may raise, if nothing can be."""
    from perfdoctor.recording import plan
    from perfdoctor.recording.record import Session
    from perfdoctor.recording.tools.torch_profiler import TRIAL_S, StepWindow, default_window
    from perfdoctor.system.run_folder import RUNS, free_name

    environment = dict(os.environ)
    machine = plan.inspect(command, environment)
    where = output or free_name(Path(RUNS), machine.program.name)
    made = plan.make(machine, wanted, where)
    if not made.passes:
        reasons: dict[str, list[str]] = {}
        for name, reason in made.left_out.items():
            reasons.setdefault(reason, []).append(name)
        why = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
        raise PerfdoctorError(
            f"none of these passes can run here: {why}",
            do="perfdoctor env says what can be recorded here, and how to enable the rest.",
        )
    several = len(made.passes) > 1
    many = default_window() if steps is None else StepWindow(steps)
    window = replace(
        many, skip=skip, stop=several if stop is None else stop, stacks=stacks, sampling=sampling, source=source,
        modules=modules, trial_s=TRIAL_S if trial else 0.0,
    )  # fmt: skip
    folder = new_folder(where, command, environment, made)
    stays = stop is False and not several
    return Session(tuple(command), environment, made, window, folder, timeout, stays)


def new_folder(where: Path, command: Sequence[str], environment: dict[str, str], plan: Plan) -> RunFolder:
    from perfdoctor import __version__
    from perfdoctor.system.checkout import checkout
    from perfdoctor.system.masking import masked_command
    from perfdoctor.system.project import project_of
    from perfdoctor.system.run_folder import Manifest, RunFolder, recorded_environment, started_in

    commit = checkout(Path())
    manifest = Manifest(
        perfdoctor=__version__, command=masked_command(command), environment=recorded_environment(environment),
        started_unix_ns=time.time_ns(), left_out=dict(plan.left_out), notes=list(plan.warnings),
        checkout=to_builtins(commit) if commit else {}, project=to_builtins(project_of(Path(), command)),
        started_in=started_in(where),
    )  # fmt: skip
    return RunFolder.create(where, manifest)


def _print_plan(session: Session, notify: Callable[[str], None]) -> None:
    notify(f"recording into {session.folder.path}")
    for line in session.plan.lines(session.window.in_words()):
        notify(f"  {line}")
    if session.window.stop:
        notify("  Each pass ends the program when its steps are recorded; --keep-going lets it finish.")


# --- meanwhile -------------------------------------------------------------------------------------------------------


def _record(session: Session, notify: Callable[[str], None], *, quiet: bool, verbose: bool) -> Ended:
    """Record each pass in turn; how the first one that failed ended, else the last one."""
    from perfdoctor.recording import machine_rates
    from perfdoctor.recording.launch.program_run import Ended
    from perfdoctor.recording.tools.cpu import CpuSampler
    from perfdoctor.recording.tools.nvml import DeviceSampler, keep_topology

    folder = session.folder
    sampler = DeviceSampler(folder.path / "device" / "samples.csv")
    cores = CpuSampler(folder.path / "device" / "cpu.csv")
    with contextlib.suppress(OSError):  # without them: the passes say what else cannot be written
        folder.make("device")
        if all([sampler.start(), cores.start()]):  # both are started
            (folder.path / "device").rmdir()
    began: list[int] = []

    def started(program: int) -> None:
        began.append(program)
        cores.follow(program)

    session = replace(session, started=started)
    ended = Ended()
    try:
        for name in session.plan.passes:
            ended = _one_pass(name, session, notify, quiet=quiet, verbose=verbose) or ended
            if ended.code or ended.at_once or ended.interrupted_by:
                break
        if not session.ran:
            ended = awaited(began[0]) if began else alone(session.command, session.time_limit_s)
    finally:
        sampled = sampler.stop()
        cores.stop()
    with contextlib.suppress(KeyboardInterrupt):  # it is the program's exit code that counts
        if sampled and not ended.at_once:
            keep_topology(folder.path / "device" / "topology.txt")
        if not ended.at_once:
            machine_rates.keep_beside(folder, session.plan.machine)
    folder.manifest.exit_code = ended.code
    store(folder, notify)
    return ended


def _one_pass(
    name: str, session: Session, notify: Callable[[str], None], *, quiet: bool, verbose: bool
) -> Ended | None:
    kernels: tuple[str, ...] = ()
    if name == "ncu":
        kernels = _kernels_to_measure(session.folder)
        if not kernels:
            session.folder.manifest.left_out["ncu"] = "the passes before it found no kernels"
            notify("  ncu is left out: the passes before it found no kernels")
            return None
    if len(session.plan.passes) > 1:
        notify(f"pass {session.plan.passes.index(name) + 1} of {len(session.plan.passes)}: {name}")
    earlier = len(session.ran)
    try:
        ended = session.record(name, kernels)
        let_go_of_closed_streams()
        if name == "nsys":
            _export(session, notify, quiet=quiet, verbose=verbose)
    except KeyboardInterrupt:
        if len(session.ran) == earlier:
            raise
        # The program has ended, with an exit code of its own.
        notify(
            f"the {name} pass: what follows the program was ended by Ctrl-C; {session.folder.path} has what was kept"
        )
        return session.ran[-1]
    except Exception as error:  # noqa: BLE001 an error of the recording must not change the program's exit code
        recorded.print_error(f"the {name} pass failed", error)
        session.folder.manifest.notes.append(f"The {name} pass: {getattr(error, 'what', error)}.")
        return session.ran[-1] if len(session.ran) > earlier else None
    record = session.folder.manifest.passes[-1]
    for note in record.notes if not record.do else ():  # without a step they are the result
        notify(f"the {name} pass: {note}")
    notify(f"the {name} pass took {ended.seconds:.1f} s and {record.bytes / 1e6:.1f} MB{_held(name, session.folder)}")
    return ended


def _held(name: str, folder: RunFolder) -> str:
    """How long the program stood still for the recording, where that can be noticed."""
    held_ns = max((report.held_ns for report in folder.reports(name)), default=0)
    tried = any(report.loader_trial for report in folder.reports(name))
    why = "its trace was written and workers were tried" if tried else "its trace was written"
    return f"; the program stood still for {held_ns / 1e9:.1f} s of it while {why}" if held_ns >= _NOTICED_NS else ""


def alone(command: Sequence[str], time_limit_s: float | None) -> Ended:
    """Run the program, unrecorded, as it would run without perfdoctor."""
    from perfdoctor.recording.launch import program_run

    began: list[int] = []
    try:
        ended = program_run.run(command, os.environ, time_limit_s=time_limit_s, started=began.append)
    except Exception:  # noqa: BLE001 whatever it is, the program is started
        if began:
            return awaited(began[0])
        program_run.take_over(command)
    let_go_of_closed_streams()
    for note in ended.notes:
        say.note(f"{note}")
    return ended


def awaited(program: int) -> Ended:
    """How the program ended, where what watched over it failed."""
    from perfdoctor.recording.launch.program_run import Ended

    _, status = os.waitpid(program, 0)
    code = os.waitstatus_to_exitcode(status)
    return Ended(code if code >= 0 else 128 - code, signal=max(-code, 0))


def let_go_of_closed_streams() -> None:
    """Print into nothing if nobody reads any more (a terminal was closed: SIGHUP), so that the recording is kept."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        poll = select.poll()
        poll.register(number, 0)  # POLLHUP, POLLERR and POLLNVAL are always reported
        if any(found & (select.POLLHUP | select.POLLERR) for _, found in poll.poll(0)):
            os.dup2(nowhere, number)
    os.close(nowhere)


def _kernels_to_measure(folder: RunFolder) -> tuple[str, ...]:
    from perfdoctor.readers.open import read
    from perfdoctor.recording.tools.ncu import top_kernels

    try:
        return top_kernels(read([folder.path]))
    except PerfdoctorError:
        return ()


def _export(session: Session, notify: Callable[[str], None], *, quiet: bool, verbose: bool) -> None:
    """Export the reports of nsys to SQLite while nsys is at hand, so that the folder can be read on any machine."""
    from perfdoctor.readers.nsys.export import export_beside

    record, folder = session.folder.manifest.passes[-1], session.folder
    nsys = session.plan.machine.nsys
    for report in folder.files("nsys", "*.nsys-rep", "*.qdrep"):
        try:
            with progress(quiet=quiet, verbose=verbose) as update:
                update(f"Exporting {report.name} to SQLite")
                made = export_beside(report, nsys.path if nsys else None)
        except PerfdoctorError as error:
            record.notes.append(f"{error.what}. {error.do}")
            notify(f"{error.what}. {error.do}")
            continue
        record.files.append(f"nsys/{made.name}")
        record.bytes += made.stat().st_size
        store(folder, notify)


def store(folder: RunFolder, notify: Callable[[str], None]) -> None:
    try:
        folder.write()
    except OSError as error:
        notify(f"{folder.path} cannot be written any more: {error.strerror or error}")


# --- after -----------------------------------------------------------------------------------------------------------


def leave(ended: Ended) -> NoReturn:
    """Exit as the program did. Where a signal ended it, by that signal: a parent sees no difference."""
    if ended.signal and ended.code == 128 + ended.signal:
        import resource  # of Linux, as recording is

        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))  # the program has written its own core
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no disposition
            signal.signal(ended.signal, signal.SIG_DFL)
        os.kill(os.getpid(), ended.signal)
    raise typer.Exit(ended.code)

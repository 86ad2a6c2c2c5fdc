"""`perfdoctor run`: record a training without changes to it, and diagnose it."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.cli import analyze, completion, hardware_options, selection_options, shared_options
from perfdoctor.cli.analyze import Format
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perfdoctor.model.selection import Selection
    from perfdoctor.model.timeline import UserValues
    from perfdoctor.recording.launch.program_run import Ended
    from perfdoctor.recording.plan import Plan
    from perfdoctor.recording.record import Session
    from perfdoctor.system.run_folder import RunFolder
    from perfdoctor.vocabulary.rulebook import Rule

RUNS = "perfdoctor-runs"
EXAMPLES = """\b
Examples:
  perfdoctor run -- python train.py
  perfdoctor run -- torchrun --nproc-per-node 2 train.py --epochs 1
  perfdoctor run --passes nsys,torch --steps 20 -- python train.py
"""


def run(
    *,
    command: Annotated[list[str], typer.Argument(help="The training, as you would start it.", metavar="COMMAND")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="The run folder.", show_default=f"{RUNS}/<time>-<program>"),
    ] = None,
    passes: Annotated[
        str,
        typer.Option(
            help="auto, or some of torch, nsys, ncu: the program runs once for each.",
            metavar="auto|NAMES",
            autocompletion=completion.passes,
        ),
    ] = "auto",
    steps: Annotated[int, typer.Option(min=1, help="Steps to record.")] = 10,
    skip_steps: Annotated[int, typer.Option(min=1, help="Steps to skip before them.")] = 5,
    stop: Annotated[
        bool | None,
        typer.Option(
            "--stop-after-steps/--keep-going",
            help="End the program when its steps are recorded.",
            show_default="stop only if there are several passes",
        ),
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=1, help="Seconds a pass may take.", metavar="SECONDS")] = None,
    stacks: Annotated[bool, typer.Option("--stacks", help="Record Python stacks too: slows the program.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the HTML report here.", show_default="report.html in the folder"),
    ] = None,
    no_html: shared_options.NoHtml = False,
    json: Annotated[
        Path | None,
        typer.Option(
            help="Write the diagnosis here; - is standard output, behind the program's own.",
            metavar="FILE",
            show_default="diagnosis.json in the folder",
        ),
    ] = None,
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format", help="Print it in this format on standard output, instead of as text on standard error."
        ),
    ] = None,
    rule: shared_options.OnlyRules = None,
    ignore: shared_options.IgnoredRules = None,
    fail_on: Annotated[
        list[str] | None,
        shared_options.fail_on("Exit with 3 if this rule finds something and the program ended with 0."),
    ] = None,
    gpu: hardware_options.Gpu = None,
    peak: hardware_options.Peak = None,
    tokens_per_step: hardware_options.TokensPerStep = None,
    parameters: hardware_options.Parameters = None,
    range_: selection_options.Range = None,
    process: selection_options.Process = None,
    show_all: shared_options.ShowAll = False,
    quiet: shared_options.Quiet = False,
    verbose: shared_options.Verbose = False,
) -> None:
    """Record COMMAND, unchanged, and diagnose it. The exit code is COMMAND's own."""
    if html is not None and no_html:
        raise typer.BadParameter("--html and --no-html exclude each other.")
    if str(json) == analyze.STANDARD_OUTPUT:
        json, format_ = None, analyze.output_of(format_, analyze.STANDARD_OUTPUT)
    rules = analyze.rules_of(rule or [], ignore or [])
    conditions = analyze.conditions_of(fail_on or [], rules)
    values = hardware_options.user_values(gpu, peak or [], tokens_per_step, parameters)
    part = selection_options.selection(range_, None)
    session = _session(command, output, passes, steps, skip_steps, timeout, stop=stop, stacks=stacks)
    notify = _printer(quiet=quiet)
    _print_plan(session, notify)
    code, at_once = _record(session, notify, quiet=quiet, verbose=verbose)
    if at_once:
        notify(f"Ended at once. What was recorded is in {session.folder.path}")
        raise typer.Exit(code)
    _report(
        session.folder, rules, conditions, values, part, process, code, format_=format_, html=html, no_html=no_html,
        json=json, show_all=show_all, quiet=quiet, verbose=verbose,
    )  # fmt: skip


def _printer(*, quiet: bool) -> Callable[[str], None]:
    return lambda text: None if quiet else typer.echo(f"perfdoctor: {text}", err=True)


# --- before ----------------------------------------------------------------------------------------------------------


def _session(
    command: Sequence[str], output: Path | None, passes: str, steps: int, skip: int, timeout: float | None,
    *, stop: bool | None, stacks: bool,
) -> Session:  # fmt: skip
    from perfdoctor.recording import plan
    from perfdoctor.recording.launch import program_run as launch
    from perfdoctor.recording.record import Session
    from perfdoctor.recording.tools.torch_profiler import Window

    try:
        wanted = plan.parse_passes(passes)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--passes") from None
    environment = dict(os.environ)
    if not launch.is_startable(command[0]):
        typer.echo(f"perfdoctor: {launch.not_startable(command[0])}", err=True)
        raise typer.Exit(launch.exit_code_of(command[0]))
    machine = plan.inspect(command, environment)
    where = output or _free_name(machine.program.name)
    made = plan.make(machine, wanted, where)
    if wanted and not made.passes:
        why = "; ".join(f"{name}: {reason}" for name, reason in made.left_out.items())
        raise PerfdoctorError(
            f"none of these passes can run here: {why}",
            do="Leave out --passes, or run perfdoctor env to see what is missing.",
        )
    several = len(made.passes) > 1
    window = Window(steps, skip, several if stop is None else stop, stacks)
    return Session(tuple(command), environment, made, window, _folder(where, command, environment, made), timeout)


def _free_name(name: str) -> Path:
    stem = Path(RUNS) / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    candidate, number = stem, 1
    while candidate.exists():
        number += 1
        candidate = stem.with_name(f"{stem.name}-{number}")
    return candidate


def _folder(where: Path, command: Sequence[str], environment: dict[str, str], plan: Plan) -> RunFolder:
    from perfdoctor import __version__
    from perfdoctor.system.masking import masked_command
    from perfdoctor.system.run_folder import Manifest, RunFolder, recorded_environment

    manifest = Manifest(
        perfdoctor=__version__, command=masked_command(command), environment=recorded_environment(environment),
        started_unix_ns=time.time_ns(), left_out=dict(plan.left_out), notes=list(plan.warnings),
    )  # fmt: skip
    return RunFolder.create(where, manifest)


def _print_plan(session: Session, notify: Callable[[str], None]) -> None:
    notify(f"recording into {session.folder.path}")
    for line in session.plan.lines(session.window.steps, session.window.skip):
        notify(f"  {line}")
    if session.window.stop:
        notify("  Each pass ends the program when its steps are recorded; --keep-going lets it finish.")


# --- meanwhile -------------------------------------------------------------------------------------------------------


def _record(session: Session, notify: Callable[[str], None], *, quiet: bool, verbose: bool) -> tuple[int, bool]:
    """Each pass in turn. The exit code is that of the first pass that failed, else of the last one."""
    from perfdoctor.recording import machine_rates
    from perfdoctor.recording.tools import topology
    from perfdoctor.recording.tools.cpu import CpuSampler
    from perfdoctor.recording.tools.nvml import DeviceSampler

    folder = session.folder
    sampler = DeviceSampler(folder.make("device") / "samples.csv")
    cores = CpuSampler(folder.path / "device" / "cpu.csv")
    if all([sampler.start(), cores.start()]):  # both are started
        (folder.path / "device").rmdir()
    session = replace(session, started=cores.follow)
    code, at_once = 0, False
    try:
        for name in session.plan.passes:
            ended = _one_pass(name, session, notify, quiet=quiet, verbose=verbose)
            if ended is None:
                continue
            code, at_once = ended.code, ended.at_once
            if code or at_once or ended.interrupted_by:
                break
    finally:
        sampled = sampler.stop()
        cores.stop()
    if sampled and not at_once:
        topology.store(folder.path / "device" / "topology.txt")
    if not at_once:
        machine_rates.keep_beside(folder, session.plan.machine)
    folder.manifest.exit_code = code
    _store(folder, notify)
    return code, at_once


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
    try:
        ended = session.record(name, kernels)
    except PerfdoctorError as error:  # the training has run: an error of the recording must not change its exit code
        notify(f"the {name} pass: {error.what}. {error.do}")
        session.folder.manifest.notes.append(f"The {name} pass: {error.what}.")
        return None
    record = session.folder.manifest.passes[-1]
    for note in record.notes:
        notify(f"the {name} pass: {note}")
    if name == "nsys":
        _export(session, notify, quiet=quiet, verbose=verbose)
    notify(f"the {name} pass took {ended.seconds:.1f} s and {record.bytes / 1e6:.1f} MB")
    return ended


def _kernels_to_measure(folder: RunFolder) -> tuple[str, ...]:
    from perfdoctor.readers.open import read
    from perfdoctor.recording.tools.ncu import top_kernels

    try:
        return top_kernels(read([folder.path]))
    except PerfdoctorError:
        return ()


def _export(session: Session, notify: Callable[[str], None], *, quiet: bool, verbose: bool) -> None:
    """Export to SQLite while nsys is available, so that the folder can be read on any machine."""
    from perfdoctor.readers.nsys.export import export_beside

    record, folder = session.folder.manifest.passes[-1], session.folder
    nsys = session.plan.machine.nsys
    for report in folder.files("nsys", "*.nsys-rep", "*.qdrep"):
        try:
            with analyze.progress(quiet=quiet, verbose=verbose) as progress:
                progress(f"Exporting {report.name} to SQLite")
                made = export_beside(report, nsys.path if nsys else None)
        except PerfdoctorError as error:
            record.notes.append(f"{error.what}. {error.do}")
            notify(f"{error.what}. {error.do}")
            continue
        record.files.append(f"nsys/{made.name}")
        record.bytes += made.stat().st_size
        _store(folder, notify)


def _store(folder: RunFolder, notify: Callable[[str], None]) -> None:
    try:
        folder.write()
    except OSError as error:
        notify(f"{folder.path} cannot be written any more: {error.strerror or error}")


# --- after -----------------------------------------------------------------------------------------------------------


def _report(
    folder: RunFolder, rules: Sequence[Rule], conditions: Sequence[str], user_values: UserValues | None,
    part: Selection | None, process: int | None,
    code: int, *,
    format_: Format | None, html: Path | None, no_html: bool, json: Path | None, show_all: bool, quiet: bool,
    verbose: bool,
) -> None:  # fmt: skip
    """Diagnose and write. Errors are printed, and the exit code stays the program's."""
    met = False
    try:
        examination = analyze.diagnosed(
            [folder.path], rules, user_values=user_values, quiet=quiet, verbose=verbose, selection=part, process=process
        )
        diagnosis = examination.diagnosis
        sys.stdout.flush()
        analyze.write_json(json or folder.path / "diagnosis.json", diagnosis)
        page = None if no_html else analyze.write_html(html, [folder.path], examination, text=False)
        analyze.show(
            diagnosis, format_ or Format.TEXT, show_all=show_all, quiet=quiet, on_error=format_ is None, page=page
        )
        analyze.print_page_path(page, on_error=True)
        met = analyze.is_met(conditions, diagnosis)
    except PerfdoctorError as error:
        typer.echo(f"perfdoctor: {error.what}\n  → {error.do}", err=True)
    except KeyboardInterrupt:
        typer.echo(f"perfdoctor: not diagnosed. Later: perfdoctor analyze {folder.path}", err=True)
    except BrokenPipeError:
        pass
    raise typer.Exit(code or (analyze.CONDITION_MET if met else 0))

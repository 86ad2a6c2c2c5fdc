"""`perfdoctor attach`: record a window of a training that runs already, and diagnose it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from msgspec.structs import replace

from perfdoctor.cli import analyze, hardware_options, outside_options, recorded, run_options, say, shared_options
from perfdoctor.cli.analyze import OutputFormat
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from perfdoctor.recording.attaching.target import Target
    from perfdoctor.recording.tools.torch_profiler import StepWindow
    from perfdoctor.system.run_folder import RunFolder

_LIMIT_S = 600.0
#: As of any command that could not do what it was asked for.
NOTHING_RECORDED = 1


def attach(
    pid: Annotated[int, typer.Argument(min=1, help="The process that trains, or with --children one above it.")],
    *,
    children: Annotated[
        bool, typer.Option("--children", help="Also all below it that train: the ranks of a launcher.")
    ] = False,
    output: run_options.Output = None,
    steps: run_options.Steps = None,
    skip_steps: run_options.SkipSteps = 5,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds until it leaves, recorded or not.", metavar="SECONDS")
    ] = _LIMIT_S,
    stacks: run_options.Stacks = False,
    sampling: run_options.Sampling = True,
    source: run_options.Source = True,
    modules: run_options.Modules = True,
    html: run_options.Html = None,
    no_html: shared_options.NoHtml = False,
    json: run_options.Json = None,
    format_: Annotated[
        OutputFormat | None,
        typer.Option("--format", help="Print it in this format on standard output, instead of as text."),
    ] = None,
    rule: shared_options.OnlyRules = None,
    ignore: shared_options.IgnoredRules = None,
    own_rules: shared_options.OwnRules = None,
    config: shared_options.Config = None,
    fail_on: Annotated[list[str] | None, shared_options.fail_on("Exit with 3 if this rule finds something.")] = None,
    gpu: hardware_options.Gpu = None,
    peak: hardware_options.Peak = None,
    tokens_per_step: hardware_options.TokensPerStep = None,
    parameters: hardware_options.Parameters = None,
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
    """Record some steps of a training that runs, and diagnose them."""
    analyze.check_html(html, no_html=no_html)
    if str(json) == analyze.STANDARD_OUTPUT:
        json, format_ = None, analyze.output_of(format_, analyze.STANDARD_OUTPUT, OutputFormat)
    rules = analyze.rules_of(rule or [], ignore or [], own_rules, config, quiet=quiet)
    asked = analyze.AnalysisRequest(
        rules, analyze.conditions_of(fail_on or [], rules), (),
        hardware_options.user_values(gpu, peak or [], tokens_per_step, parameters),
        None, process, pricing=outside_options.pricing(gpu_hour_price, cost=cost), quiet=quiet, verbose=verbose,
    )  # fmt: skip
    reports = analyze.Reports(
        format_ or OutputFormat.TEXT, json, html, no_html, show_all, not no_save,
        outside_options.outside(metrics, log or []),
    )  # fmt: skip
    window = _window(steps, skip_steps, stacks=stacks, sampling=sampling, source=source, modules=modules)
    signal.signal(signal.SIGTERM, _ended)
    where = output or _new_name(pid)
    every = _processes(pid, children=children)
    targets, why = _permitted(every, where, quiet=quiet)
    if targets:
        folder, why = _recorded(targets, where, window, timeout, asked)
        where = folder.path
    if why is None:
        recorded.report(folder, asked, reports, "attach", 0)
    else:
        _from_outside(every, where, why, with_source=source, reports=reports)


def _window(steps: int | None, skip: int, *, stacks: bool, sampling: bool, source: bool, modules: bool) -> StepWindow:
    from perfdoctor.recording.tools.torch_profiler import StepWindow, default_window

    many = default_window() if steps is None else StepWindow(steps)
    return replace(many, skip=skip, stacks=stacks, sampling=sampling, source=source, modules=modules)


def _ended(number: int, _frame: object) -> NoReturn:
    """Leave on SIGTERM as on Ctrl-C: with nothing of ours in the programs, and no files left."""
    sys.exit(128 + number)


def _new_name(pid: int) -> Path:
    from perfdoctor.recording.attaching.target import inspect
    from perfdoctor.recording.launch import program
    from perfdoctor.system.run_folder import RUNS, free_name

    found = inspect(pid)
    return free_name(Path(RUNS), program.Program(found.command).name if found and found.command else "attach")


def _processes(pid: int, *, children: bool) -> list[Target]:
    """The processes to attach to. PerfdoctorError where there is none."""
    from perfdoctor.recording.attaching import ranks

    return ranks.chosen(pid, children=children)


def _permitted(every: Sequence[Target], where: Path, *, quiet: bool) -> tuple[list[Target], PerfdoctorError | None]:
    """Return those of them that may be attached to, and why the last of the others may not."""
    import tempfile

    from perfdoctor.recording.attaching import checks
    from perfdoctor.recording.tools.torch_profiler import AGENT

    above = next(folder for folder in where.absolute().parents if folder.exists())
    found, why = [], None
    for target in every:
        trouble = checks.trouble(target, (AGENT, Path(tempfile.gettempdir()), above))
        if trouble is None:
            found.append(target)
            continue
        why = trouble
        if not quiet and len(every) > 1:  # of a single one it is said as the reason why nothing was recorded
            say.note(f"process {target.pid} is not attached to: {trouble.what}. {trouble.do}")
    return found, why


def _recorded(
    targets: Sequence[Target], where: Path, window: StepWindow, limit_s: float, asked: analyze.AnalysisRequest
) -> tuple[RunFolder, PerfdoctorError | None]:
    """Record into a new run folder; why nothing was recorded, if so."""
    from perfdoctor.recording.attaching import session

    def notify(text: str) -> None:
        if not asked.quiet:
            say.note(text)

    folder = session.new_folder(where, targets)
    notify(f"recording into {folder.path}: {window.in_words()}")
    return folder, session.record(folder, targets, window, limit_s, notify).why


def _from_outside(
    every: Sequence[Target], where: Path, why: PerfdoctorError, *, with_source: bool, reports: analyze.Reports
) -> None:
    """Say why nothing was recorded, and what is seen from outside. Exits with 1, as there is no diagnosis of steps."""
    from perfdoctor.cli import from_outside
    from perfdoctor.recording.attaching.checks import is_seen_from_outside

    say.failure(f"nothing was recorded: {why.what}", why.do)
    seen = [each for each in every if is_seen_from_outside(each)]
    if seen:
        as_json = reports.output is OutputFormat.JSON
        from_outside.look(seen, where, why, with_source=with_source, as_json=as_json)
    raise typer.Exit(NOTHING_RECORDED)

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

_LIMIT_S = 600.0


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
    """Record some steps of a training that runs already, diagnose them, and leave it as it was."""
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
    targets = _targets(pid, children=children, output=output, quiet=quiet)
    _recorded(targets, output, window, timeout, asked, reports)


def _window(steps: int | None, skip: int, *, stacks: bool, sampling: bool, source: bool, modules: bool) -> StepWindow:
    from perfdoctor.recording.tools.torch_profiler import StepWindow, default_window

    many = default_window() if steps is None else StepWindow(steps)
    return replace(many, skip=skip, stacks=stacks, sampling=sampling, source=source, modules=modules)


def _ended(number: int, _frame: object) -> NoReturn:
    """Leave on SIGTERM as on Ctrl-C: with nothing of ours in the programs, and no files left."""
    sys.exit(128 + number)


def _targets(pid: int, *, children: bool, output: Path | None, quiet: bool) -> list[Target]:
    """The processes to attach to. PerfdoctorError where there is none."""
    import tempfile

    from perfdoctor.recording.attaching import checks, ranks
    from perfdoctor.recording.tools.torch_profiler import AGENT

    places = (
        AGENT,
        Path(tempfile.gettempdir()),
        (output or Path()).absolute() if output is None else output.absolute().parent,
    )
    found, why = [], None
    for target in ranks.chosen(pid, children=children):
        trouble = checks.trouble(target, places)
        if trouble is None:
            found.append(target)
            continue
        why = trouble
        if not quiet:
            say.note(f"process {target.pid} is left out: {trouble.what}. {trouble.do}")
    if not found:
        assert why is not None
        raise why
    return found


def _recorded(
    targets: Sequence[Target], output: Path | None, window: StepWindow, limit_s: float,
    asked: analyze.AnalysisRequest, reports: analyze.Reports,
) -> None:  # fmt: skip
    from perfdoctor.recording.attaching import session
    from perfdoctor.recording.launch import program
    from perfdoctor.system.run_folder import RUNS, free_name

    def notify(text: str) -> None:
        if not asked.quiet:
            say.note(text)

    where = output or free_name(Path(RUNS), program.Program(targets[0].command).name)
    folder = session.new_folder(where, targets)
    notify(f"recording into {folder.path}: {window.in_words()}")
    outcome = session.record(folder, targets, window, limit_s, notify)
    if outcome.why is not None:
        raise PerfdoctorError(f"nothing was recorded: {outcome.why.what}", do=outcome.why.do)
    recorded.report(folder, asked, reports, "attach", 0)

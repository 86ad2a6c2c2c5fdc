"""`perfdoctor analyze`: diagnose a recorded profile."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from perfdoctor.cli import (
    cross_check as cross_checking,
)
from perfdoctor.cli import (
    hardware_options,
    outside_options,
    own_rules_options,
    report_files,
    scale_options,
    selection_options,
    shared_options,
    stored,
)
from perfdoctor.cli.progress import progress
from perfdoctor.cli.rules import chosen
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perfdoctor.diagnosis.questions import Question
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.model.run import Selection
    from perfdoctor.model.timeline import UserValues
    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.findings import Advice
    from perfdoctor.system.remote import RemoteFile
    from perfdoctor.vocabulary.rulebook import Rule

CONDITION_MET = 3
ANY = "any"
STANDARD_OUTPUT = "-"
EXAMPLES = """\b
Examples:
  perfdoctor analyze rank0.pt.trace.json.gz
  perfdoctor analyze profile.nsys-rep --fail-on input-wait
  perfdoctor analyze profile.sqlite --what-if "input-wait, launch-bound=50%"
  perfdoctor analyze profile.nsys-rep --range forward --steps 3..5
  perfdoctor analyze traces/ --json - --no-html
  perfdoctor analyze profile.nsys-rep --parameters 7B --tokens-per-step 16k
  perfdoctor analyze profile.nsys-rep --rules perf/rules
  perfdoctor analyze s3://bucket/run-7/ --cluster tcp://head:8786
  perfdoctor analyze diagnosis.json --format brief
"""


class OutputFormat(str, Enum):
    """What is printed to standard output."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    #: In less than 60 lines, to be pasted into an issue or a chat.
    BRIEF = "brief"


Html = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the HTML report here. [default: report.html in a run folder, else NAME.perfdoctor.html here]",
    ),
]
CrossCheck = Annotated[
    bool, typer.Option("--cross-check", help="Compare our numbers with those of nsys on the same report.")
]


class AnalysisRequest(Struct, frozen=True):
    """What is diagnosed by which rules, and what is asked of it. `process`: which training of a command.

    `cluster`: which Dask cluster reads the files.
    """

    rules: Sequence[Rule]
    conditions: Sequence[str] = ()
    questions: Sequence[Question] = ()
    user_values: UserValues | None = None
    part: Selection | None = None
    process: int | None = None
    cluster: str | None = None
    pricing: outside_options.Pricing | None = None

    @property
    def known(self) -> dict[str, Rule]:
        """All rules of ours, and those that are used: what was stored before may name any of them."""
        from perfdoctor.vocabulary.rulebook import load_rules

        return {**load_rules(), **{rule.id: rule for rule in self.rules}}


class Files(Struct, frozen=True):
    """What is written where. `html`: None is a place that depends on what is read."""

    json: Path | None
    html: Path | None
    no_html: bool


def analyze(
    *,
    given: scale_options.Recordings,
    html: Html = None,
    no_html: shared_options.NoHtml = False,
    json: Annotated[
        str | None, typer.Option(help="Write the diagnosis as JSON; - is standard output.", metavar="FILE")
    ] = None,
    format_: Annotated[
        OutputFormat | None, typer.Option("--format", help="What is printed to standard output.")
    ] = None,
    rule: shared_options.OnlyRules = None,
    ignore: shared_options.IgnoredRules = None,
    own_rules: own_rules_options.OwnRules = None,
    config: own_rules_options.Config = None,
    fail_on: Annotated[list[str] | None, shared_options.fail_on("Exit with 3 if this rule finds something.")] = None,
    what_if_text: shared_options.WhatIf = None,
    gpu: hardware_options.Gpu = None,
    peak: hardware_options.Peak = None,
    tokens_per_step: hardware_options.TokensPerStep = None,
    parameters: hardware_options.Parameters = None,
    range_: selection_options.Range = None,
    steps: selection_options.Steps = None,
    process: selection_options.Process = None,
    jobs: scale_options.Jobs = None,
    cluster: scale_options.Cluster = None,
    cross_check: CrossCheck = False,
    save: Annotated[bool, typer.Option("--save", help="Store it in the history of the project.")] = False,
    metrics: outside_options.Metrics = None,
    log: outside_options.Log = None,
    gpu_hour_price: outside_options.GpuHourPrice = None,
    cost: outside_options.ShowCost = False,
    show_all: shared_options.ShowAll = False,
    quiet: shared_options.Quiet = False,
    verbose: shared_options.Verbose = False,
) -> None:
    """Diagnose recorded profiles."""
    check_html(html, no_html=no_html)
    output = output_of(format_, json)
    rules = rules_of(rule or [], ignore or [], own_rules, config, quiet=quiet)
    asked = AnalysisRequest(
        rules, conditions_of(fail_on or [], rules), questions_of(what_if_text, rules),
        hardware_options.user_values(gpu, peak or [], tokens_per_step, parameters),
        selection_options.selection(range_, steps), process, scale_options.cluster(cluster),
        outside_options.pricing(gpu_hour_price, cost=cost),
    )  # fmt: skip
    outside = outside_options.outside(metrics, log or [])
    scale_options.set_jobs(jobs)
    files = Files(Path(json) if json not in (None, STANDARD_OUTPUT) else None, html, no_html)
    of_recordings = {
        "--html": html, "--rule": rule, "--ignore": ignore, "--rules": own_rules, "--what-if": what_if_text,
        "--gpu": gpu, "--peak": peak, "--tokens-per-step": tokens_per_step, "--range": range_, "--steps": steps,
        "--process": process, "--cross-check": cross_check, "--save": save, "--metrics": metrics, "--log": log,
        "--gpu-hour-price": gpu_hour_price, "--cost": cost,
    }  # fmt: skip
    with scale_options.at_hand(given, cluster, quiet=quiet, verbose=verbose) as paths:
        here = [path for path in paths if isinstance(path, Path)]
        if files.json:
            report_files.check_json(files.json, here)
        if (kept := stored.diagnosis_of(paths, of_recordings)) is not None:
            _print_again(kept, asked, output, files, show_all=show_all, quiet=quiet)
            return
        _analyze(
            paths, asked, output, files,
            cross_check=cross_check, save=save, outside=outside, show_all=show_all, quiet=quiet, verbose=verbose,
        )  # fmt: skip


def _print_again(
    kept: Diagnosis, asked: AnalysisRequest, output: OutputFormat, files: Files, *, show_all: bool, quiet: bool
) -> None:
    if files.json:
        write_json(files.json, kept)
    show(kept, output, show_all=show_all, quiet=quiet)
    if is_met(asked.conditions, kept):
        raise typer.Exit(CONDITION_MET)


def _analyze(
    paths: Sequence[Path | RemoteFile], asked: AnalysisRequest, output: OutputFormat, files: Files, *,
    cross_check: bool, save: bool, outside: outside_options.Outside, show_all: bool, quiet: bool, verbose: bool,
) -> None:  # fmt: skip
    here = [path for path in paths if isinstance(path, Path)]
    if cross_check:
        cross_checking.check(here)
    examination = diagnosed(paths, asked, quiet=quiet, verbose=verbose)
    diagnosis = examination.diagnosis
    page = None
    try:
        with progress(quiet=quiet, verbose=verbose) as update:
            update("Writing the report")
            page = _write_files(examination, files, paths, text=output is OutputFormat.TEXT)
    finally:  # the diagnosis is shown even if a file cannot be written
        show(diagnosis, output, show_all=show_all, quiet=quiet, page=page)
    if cross_check:
        _cross_check(here, diagnosis, output, show_all=show_all, quiet=quiet, verbose=verbose)
    print_page_path(page, on_error=output is not OutputFormat.TEXT)
    if save:
        store(examination, paths, source="analyze", process=asked.process, quiet=quiet)
    publish(examination, paths, outside, page, process=asked.process, quiet=quiet)
    if is_met(asked.conditions, diagnosis):
        raise typer.Exit(CONDITION_MET)


def _cross_check(
    paths: Sequence[Path], diagnosis: Diagnosis, output: OutputFormat, *, show_all: bool, quiet: bool, verbose: bool
) -> None:
    with progress(quiet=quiet, verbose=verbose) as update:
        checked = cross_checking.cross_checked(paths, update)
    cross_checking.show(checked, diagnosis, show_all=show_all, quiet=quiet, err=output is not OutputFormat.TEXT)


def store(
    examination: Examination, paths: Sequence[Path | RemoteFile], *, source: str, process: int | None, quiet: bool
) -> None:
    """Into the history. Where that fails, a line says why, and all else goes on."""
    from perfdoctor.cli import history

    def notify(text: str) -> None:
        if not quiet:
            typer.echo(f"perfdoctor: {text}", err=True)

    history.save(examination, paths, source=source, process=process, notify=notify)


def publish(
    examination: Examination, paths: Sequence[Path | RemoteFile], outside: outside_options.Outside, page: Path | None,
    *, process: int | None, quiet: bool,
) -> None:  # fmt: skip
    """To other tools. Raises PerfdoctorError for the first that could not be reached, when all were tried."""
    if outside.metrics is None and not outside.trackers:
        return
    from perfdoctor.cli import outside as tools

    tools.publish(examination, paths, outside, page, process=process, quiet=quiet)


# --- options ---------------------------------------------------------------------------------------------------------


def check_html(html: Path | None, *, no_html: bool) -> None:
    if html is not None and no_html:
        raise typer.BadParameter("--html and --no-html exclude each other.")


def output_of(format_: OutputFormat | None, json: str | None) -> OutputFormat:
    if json != STANDARD_OUTPUT:
        return format_ or OutputFormat.TEXT
    if format_ not in (None, OutputFormat.JSON):
        raise typer.BadParameter(f"--json - and --format {format_.value if format_ else ''} both want standard output.")
    return OutputFormat.JSON


def rules_of(
    only: Sequence[str] = (), ignored: Sequence[str] = (), own: Sequence[str] | None = None, config: Path | None = None,
    *, quiet: bool = False,
) -> list[Rule]:  # fmt: skip
    own_rules_options.print_unused(own, config, quiet=quiet)
    known = own_rules_options.all_rules(own, config)
    chosen([*only, *ignored], known)
    tuned = own_rules_options.tuned(known, config)
    return [rule for name, rule in tuned.items() if (not only or name in only) and name not in ignored]


def conditions_of(names: Sequence[str], rules: Sequence[Rule]) -> list[str]:
    chosen([name for name in names if name != ANY], {rule.id: rule for rule in rules})
    return list(names)


def questions_of(text: str | None, rules: Sequence[Rule] = ()) -> tuple[Question, ...]:
    """About rules of ours, or any of these."""
    if text is None:
        return ()
    from perfdoctor.diagnosis.questions import questions

    return questions(text, AnalysisRequest(rules).known)


# --- the work --------------------------------------------------------------------------------------------------------


def diagnosed(paths: Sequence[Path | RemoteFile], asked: AnalysisRequest, *, quiet: bool, verbose: bool) -> Examination:
    """The diagnosis of these recordings."""
    with progress(quiet=quiet, verbose=verbose) as update:
        update("starting")
        from perfdoctor.model.run import WHOLE_RECORDING
        from perfdoctor.scale.read import read_run

        run = read_run(
            paths, update,
            process=asked.process, selection=asked.part or WHOLE_RECORDING, user_values=asked.user_values,
            cluster=asked.cluster,
        )  # fmt: skip
        from perfdoctor.diagnosis.engine import examine

        examination = examine(run, asked.rules, asked.questions)
    return _with_cost(examination, paths, asked.pricing, quiet=quiet) if asked.pricing else examination


def _with_cost(
    examination: Examination, paths: Sequence[Path | RemoteFile], pricing: outside_options.Pricing, *, quiet: bool
) -> Examination:
    from perfdoctor.cli import outside as tools

    return tools.with_cost(examination, paths, pricing, quiet=quiet)


# --- output ----------------------------------------------------------------------------------------------------------


def _write_files(
    examination: Examination, files: Files, paths: Sequence[Path | RemoteFile], *, text: bool
) -> Path | None:
    if files.json:
        write_json(files.json, examination.diagnosis)
    return None if files.no_html else write_html(files.html, paths, examination, text=text)


def write_json(target: Path, diagnosis: Diagnosis) -> None:
    from perfdoctor.report import json_report

    try:
        report_files.write(target, lambda: json_report.render(diagnosis))
    except OSError as error:
        raise _unwritable("--json", target, error) from error


def write_html(
    named: Path | None, paths: Sequence[Path | RemoteFile], examination: Examination, *, text: bool
) -> Path | None:
    """Where the page was written. None, with a message, where the default folder cannot be written to."""
    from perfdoctor.report import html
    from perfdoctor.views.build import views

    run, diagnosis = examination.run, examination.diagnosis
    wanted = named or report_files.default_html(paths)
    target = report_files.free_html(wanted, paths)
    try:
        report_files.write(target, lambda: html.render(diagnosis, views(run, diagnosis)))
    except OSError as error:
        if named:
            raise _unwritable("--html", target, error) from error
        typer.echo(f"perfdoctor: no report written: {target}: {error.strerror or error}", err=True)
        return None
    if target != wanted:
        typer.echo(f"perfdoctor: {wanted} was not written by perfdoctor and is kept.", err=not text)
    return target


def _unwritable(option: str, target: Path, error: OSError) -> PerfdoctorError:
    return PerfdoctorError(
        f"{option} {target} cannot be written: {error.strerror or error}",
        do="Choose a file in a folder that you may write to.",
    )


def show(
    diagnosis: Diagnosis,
    output: OutputFormat,
    *,
    show_all: bool,
    quiet: bool,
    on_error: bool = False,
    page: Path | None = None,
) -> None:
    """Print it on standard output or error. On a terminal findings are links to the page, where it supports links."""
    from perfdoctor.report import json_report, markdown, terminal
    from perfdoctor.report.terminal_text import Terminal
    from perfdoctor.report.words import wording

    if output is OutputFormat.JSON:
        typer.echo(json_report.render(diagnosis), nl=False)
    elif quiet:
        typer.echo(wording.verdict(diagnosis), err=on_error)
    elif output is OutputFormat.MARKDOWN:
        typer.echo(markdown.render(diagnosis), nl=False)
    elif output is OutputFormat.BRIEF:
        from perfdoctor.report import brief

        typer.echo(brief.render(diagnosis), nl=False)
    else:
        terminal.render(diagnosis, Terminal(stderr=on_error), show_all=show_all, page=page)


def print_page_path(page: Path | None, *, on_error: bool) -> None:
    """Print where the page was written, as a link where the terminal supports them."""
    if page is not None:
        from perfdoctor.report.terminal import print_report_path
        from perfdoctor.report.terminal_text import Terminal

        print_report_path(page, Terminal(stderr=on_error))


def is_met(conditions: Sequence[str], diagnosis: Diagnosis) -> bool:
    """Has a named rule found something? Prints a message for a rule that was not checked: that does not mean clear."""
    found = {advice.rule for advice in _all(diagnosis.findings)}
    for outcome in diagnosis.outcomes:
        if outcome.rule in conditions and outcome.status in ("skipped", "failed"):
            why = f"lacks {', '.join(outcome.missing)}" if outcome.missing else "failed"
            typer.echo(f"perfdoctor: --fail-on {outcome.rule}: the rule was not checked: it {why}.", err=True)
    return (ANY in conditions and bool(found)) or bool(found & set(conditions))


def _all(findings: Sequence[Advice]) -> Iterator[Advice]:
    for advice in findings:
        yield advice
        yield from _all(advice.symptoms)

"""`perfdoctor analyze`: diagnose a recorded profile."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from msgspec import Struct

from perfdoctor.cli import cross_check as cross_checking
from perfdoctor.cli import hardware_options, outside_options, report_files, say, scale_options, shared_options
from perfdoctor.cli.progress import progress
from perfdoctor.cli.rules import chosen
from perfdoctor.report.json_document import MARKER

if TYPE_CHECKING:
    from perfdoctor.diagnosis.questions import Question
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.model.run import Selection
    from perfdoctor.model.timeline import UserValues
    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.system.remote import RemoteFile
    from perfdoctor.vocabulary.rulebook import Rule

CONDITION_MET = 3
ANY = "any"
STANDARD_OUTPUT = "-"


class OutputFormat(str, Enum):
    """What is printed to standard output."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    #: In less than 60 lines, to be pasted into an issue or a chat.
    BRIEF = "brief"
    SARIF = "sarif"
    GITHUB = "github"


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
    """What is diagnosed by which rules, and what is asked of it. `process`: which training of a command, from 1.

    `cluster`: which Dask cluster reads the files. `quiet`, `verbose`: what is printed meanwhile.
    """

    rules: Sequence[Rule]
    conditions: Sequence[str] = ()
    questions: Sequence[Question] = ()
    user_values: UserValues | None = None
    part: Selection | None = None
    process: int | None = None
    cluster: str | None = None
    pricing: outside_options.Pricing | None = None
    quiet: bool = False
    verbose: bool = False

    @property
    def known(self) -> dict[str, Rule]:
        """All rules of ours, and those that are used: what was stored before may name any of them."""
        from perfdoctor.vocabulary.rulebook import load_rules

        return {**load_rules(), **{rule.id: rule for rule in self.rules}}


Format = TypeVar("Format", bound=Enum)


class Reports(Struct, frozen=True):
    """What is printed and written of a diagnosis, and where. `html`: None for a place that depends on what is read.

    `on_error`: is text printed on standard error, since standard output is the recorded program's?
    """

    output: OutputFormat
    json: Path | None
    html: Path | None
    no_html: bool
    show_all: bool
    save: bool
    outside: outside_options.Outside = outside_options.Outside()
    on_error: bool = False


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
    own_rules: shared_options.OwnRules = None,
    config: shared_options.Config = None,
    fail_on: Annotated[list[str] | None, shared_options.fail_on("Exit with 3 if this rule finds something.")] = None,
    what_if_text: shared_options.WhatIf = None,
    gpu: hardware_options.Gpu = None,
    peak: hardware_options.Peak = None,
    tokens_per_step: hardware_options.TokensPerStep = None,
    parameters: hardware_options.Parameters = None,
    range_: shared_options.Range = None,
    steps: shared_options.Steps = None,
    process: shared_options.Process = None,
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
    output = output_of(format_, json, OutputFormat)
    rules = rules_of(rule or [], ignore or [], own_rules, config, quiet=quiet)
    asked = AnalysisRequest(
        rules, conditions_of(fail_on or [], rules), questions_of(what_if_text, rules),
        hardware_options.user_values(gpu, peak or [], tokens_per_step, parameters),
        shared_options.selection(range_, steps), process, scale_options.cluster(cluster),
        outside_options.pricing(gpu_hour_price, cost=cost), quiet, verbose,
    )  # fmt: skip
    json_file = Path(json) if json is not None and json != STANDARD_OUTPUT else None
    outside = outside_options.outside(metrics, log or [])
    reports = Reports(output, json_file, html, no_html, show_all, save, outside)
    scale_options.set_jobs(jobs)
    of_recordings = {
        "--html": html, "--rule": rule, "--ignore": ignore, "--rules": own_rules, "--what-if": what_if_text,
        "--gpu": gpu, "--peak": peak, "--tokens-per-step": tokens_per_step, "--range": range_, "--steps": steps,
        "--process": process, "--cross-check": cross_check, "--save": save, "--metrics": metrics, "--log": log,
        "--gpu-hour-price": gpu_hour_price, "--cost": cost,
    }  # fmt: skip
    with scale_options.at_hand(given, cluster, quiet=quiet, verbose=verbose) as paths:
        if reports.json:
            report_files.check_ours("--json", reports.json, MARKER, paths)
        if (diagnosis := _stored(paths, of_recordings)) is None:
            diagnosis = _analyze(paths, asked, reports, cross_check=cross_check)
        else:
            if reports.json:
                write_json(reports.json, diagnosis)
            show(diagnosis, reports, quiet=quiet)
    if is_met(asked.conditions, diagnosis):
        raise typer.Exit(CONDITION_MET)


def _stored(paths: Sequence[Path | RemoteFile], options: Mapping[str, object]) -> Diagnosis | None:
    """The diagnosis that the one path is, or holds; None for a recording.

    Raises UsageError if one of the `options`, by name, was given: they ask more than a diagnosis holds.
    """
    if len(paths) != 1 or not isinstance(paths[0], Path):
        return None
    if paths[0].suffix != ".json" and not (paths[0] / "diagnosis.json").is_file():  # nearly all
        return None
    from perfdoctor.report.stored_diagnosis import only_stored

    do = "Give the recording, or only --format, --json, --all, --fail-on and --quiet."
    return only_stored(paths, options, do)


def _analyze(
    paths: Sequence[Path | RemoteFile], asked: AnalysisRequest, reports: Reports, *, cross_check: bool
) -> Diagnosis:
    """Diagnose the recordings, and write and print all reports. Returns the diagnosis."""
    here = [path for path in paths if isinstance(path, Path)]
    is_text = reports.output is OutputFormat.TEXT
    if cross_check:
        cross_checking.check(here)
    examination = diagnosed(paths, asked)
    diagnosis, page = examination.diagnosis, None
    try:
        with progress(quiet=asked.quiet, verbose=asked.verbose) as update:
            update("Writing the report")
            if reports.json:
                write_json(reports.json, diagnosis)
            page = None if reports.no_html else write_html(reports.html, paths, examination, text=is_text)
    finally:  # the diagnosis is shown even if a file cannot be written
        show(diagnosis, reports, quiet=asked.quiet, page=page)
    if cross_check:
        with progress(quiet=asked.quiet, verbose=asked.verbose) as update:
            checked = cross_checking.cross_checked(here, update)
        cross_checking.show(checked, diagnosis, show_all=reports.show_all, quiet=asked.quiet, err=not is_text)
    print_page_path(page, on_error=not is_text)
    if reports.save:
        from perfdoctor.cli import history

        history.save(examination, paths, source="analyze", process=asked.process, quiet=asked.quiet)
    publish(examination, paths, asked, reports.outside, page)
    return diagnosis


def publish(
    examination: Examination, paths: Sequence[Path | RemoteFile], asked: AnalysisRequest,
    outside: outside_options.Outside, page: Path | None,
) -> None:  # fmt: skip
    """Write to the other tools of `outside`. Raises PerfdoctorError for the first that failed, when all were tried."""
    if outside.metrics is not None or outside.trackers:
        from perfdoctor.cli import outside as tools

        tools.publish(examination, paths, outside, page, process=asked.process, quiet=asked.quiet)


# --- options ---------------------------------------------------------------------------------------------------------


def check_html(html: Path | None, *, no_html: bool) -> None:
    if html is not None and no_html:
        raise typer.BadParameter("--html and --no-html exclude each other.")


def output_of(format_: Format | None, json: str | None, formats: type[Format]) -> Format:
    if json != STANDARD_OUTPUT:
        return format_ or formats("text")
    if format_ is not None and format_.value != "json":
        raise typer.BadParameter(f"--json - and --format {format_.value} both want standard output.")
    return formats("json")


def rules_of(
    only: Sequence[str] = (), ignored: Sequence[str] = (), own: Sequence[str] | None = None, config: Path | None = None,
    *, quiet: bool = False,
) -> list[Rule]:  # fmt: skip
    shared_options.print_unused(own, config, quiet=quiet)
    known = shared_options.all_rules(own, config)
    wanted, unwanted = ({rule.id for rule in chosen(names, known)} for names in (only, ignored))
    tuned = shared_options.tuned(known, config)
    return [rule for name, rule in tuned.items() if (not only or name in wanted) and name not in unwanted]


def conditions_of(names: Sequence[str], rules: Sequence[Rule]) -> list[str]:
    named = chosen([name for name in names if name != ANY], {rule.id: rule for rule in rules})
    return [*([ANY] if ANY in names else []), *(rule.id for rule in named)]


def questions_of(text: str | None, rules: Sequence[Rule] = ()) -> tuple[Question, ...]:
    """The questions of `--what-if`, which name rules of ours or any of `rules`."""
    if text is None:
        return ()
    from perfdoctor.diagnosis.questions import questions

    return questions(text, AnalysisRequest(rules).known)


# --- the work --------------------------------------------------------------------------------------------------------


def diagnosed(paths: Sequence[Path | RemoteFile], asked: AnalysisRequest) -> Examination:
    """The diagnosis of the recordings at `paths`, with costs where these are asked for."""
    with progress(quiet=asked.quiet, verbose=asked.verbose) as update:
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
    if asked.pricing is None:
        return examination
    from perfdoctor.cli import outside as tools

    return tools.with_cost(examination, paths, asked.pricing, quiet=asked.quiet)


# --- output ----------------------------------------------------------------------------------------------------------


def write_json(target: Path, diagnosis: Diagnosis) -> None:
    from perfdoctor.report import json_report

    report_files.written("--json", target, lambda: json_report.render(diagnosis))


def write_html(
    named: Path | None, paths: Sequence[Path | RemoteFile], examination: Examination, *, text: bool
) -> Path | None:
    """Write the page to `named`, else to its default place, and return where it is.

    Where the default place cannot be written to, a line says so, and None is returned. `text`: is text the output?
    """
    from perfdoctor.report import html
    from perfdoctor.views.build import views

    run, diagnosis = examination.run, examination.diagnosis
    wanted = named or report_files.default_html(paths)
    target = report_files.free_html(wanted, paths)
    is_asked = named is not None
    if not report_files.page_written(target, lambda: html.render(diagnosis, views(run, diagnosis)), is_asked=is_asked):
        return None
    if target != wanted:
        say.line(f"perfdoctor: {wanted} was not written by perfdoctor and is kept.", err=not text)
    return target


def show(diagnosis: Diagnosis, reports: Reports, *, quiet: bool, page: Path | None = None) -> None:
    """Print the diagnosis. On a terminal that supports links, its findings link to the `page`."""
    from perfdoctor.report import annotations, json_report, markdown, sarif, terminal
    from perfdoctor.report.terminal_text import Terminal
    from perfdoctor.report.words import wording

    if reports.output is OutputFormat.JSON:
        say.document(json_report.render(diagnosis))
    elif reports.output in (OutputFormat.SARIF, OutputFormat.GITHUB):
        form = sarif if reports.output is OutputFormat.SARIF else annotations
        say.document(form.render(diagnosis, _places(diagnosis)))
    elif quiet:
        say.line(wording.verdict(diagnosis), err=reports.on_error)
    elif reports.output is OutputFormat.MARKDOWN:
        say.document(markdown.render(diagnosis))
    elif reports.output is OutputFormat.BRIEF:
        from perfdoctor.report import brief

        say.document(brief.render(diagnosis))
    else:
        terminal.render(diagnosis, Terminal(stderr=reports.on_error), show_all=reports.show_all, page=page)


def _places(diagnosis: Diagnosis) -> dict[str, tuple[str, int]]:
    """File and line in the checkout of each finding, by its rule, and of the program, by ""."""
    from perfdoctor.records.findings import own_line, with_symptoms
    from perfdoctor.system import checkout

    lines = {advice.rule: own_line(advice) for advice in with_symptoms(diagnosis.findings)}
    command = next((shlex.join(each.command) for each in diagnosis.processes if each.diagnosed), "")
    program = command or (diagnosis.project.program if diagnosis.project else "")
    found = checkout.places(lines.values(), program, checkout.workspace())
    return {rule: found[line] for rule, line in {"": "", **lines}.items() if line in found}


def print_page_path(page: Path | None, *, on_error: bool) -> None:
    """Print where the page was written, as a link where the terminal supports them."""
    if page is not None:
        from perfdoctor.report.terminal import print_report_path
        from perfdoctor.report.terminal_text import Terminal

        print_report_path(page, Terminal(stderr=on_error))


def is_met(conditions: Sequence[str], diagnosis: Diagnosis) -> bool:
    """Has a rule of `conditions` found something? Prints a line for one that was not checked: it may not be clear."""
    from perfdoctor.records.findings import with_symptoms

    found = {advice.rule for advice in with_symptoms(diagnosis.findings)}
    for outcome in diagnosis.outcomes:
        if outcome.rule in conditions and outcome.status in ("skipped", "failed"):
            why = f"lacks {', '.join(outcome.missing)}" if outcome.missing else "failed"
            say.note(f"--fail-on {outcome.rule}: the rule was not checked: it {why}.")
    return (ANY in conditions and bool(found)) or bool(found & set(conditions))

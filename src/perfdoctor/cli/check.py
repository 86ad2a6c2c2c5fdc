"""`perfdoctor check`: is a training slower than its stored baseline? For CI."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.cli import hardware_options, report_files, say, scale_options, shared_options
from perfdoctor.cli.analyze import CONDITION_MET, STANDARD_OUTPUT, AnalysisRequest, diagnosed, rules_of
from perfdoctor.cli.compare import limit_of, timeline_of
from perfdoctor.cli.compare_output import CHOOSE
from perfdoctor.cli.history import Db, history_of
from perfdoctor.report.json_document import MARKER

if TYPE_CHECKING:
    from perfdoctor.api.check_runs import Side
    from perfdoctor.comparison.check import Check

DEFAULT_BASELINE = "main"
#: Where GitHub Actions shows Markdown of a step.
SUMMARY = "GITHUB_STEP_SUMMARY"


class CheckFormat(str, Enum):
    """What is printed to standard output."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    GITHUB = "github"
    SARIF = "sarif"
    JUNIT = "junit"


#: What our own files of a format begin with: others are not overwritten.
_MARKERS = {
    CheckFormat.JSON: MARKER, CheckFormat.MARKDOWN: b"<!-- perfdoctor check",
    CheckFormat.SARIF: b'"name": "perfdoctor"', CheckFormat.JUNIT: b'<testsuites name="perfdoctor',
}  # fmt: skip


def check(
    *,
    paths: Annotated[
        list[str],
        typer.Argument(help="Run folders, recordings, or diagnosis.json files; each is one run.", metavar="PATH"),
    ],
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="NAME|PATH",
            show_default=DEFAULT_BASELINE,
            help="What is pinned by this name in the history, or recordings; may be repeated.",
        ),
    ] = None,
    fail_above: Annotated[
        str | None,
        typer.Option(
            "--fail-above",
            metavar="PERCENT",
            show_default="3%",
            help="Exit with 3 if the step is surely longer by more.",
        ),
    ] = None,
    program: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Take all commands with this text in them for one program.")
    ] = None,
    format_: Annotated[CheckFormat | None, typer.Option("--format", help="What is printed to standard output.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write it as JSON.", metavar="FILE")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write it for a pull request.", metavar="FILE")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write it for code scanning.", metavar="FILE")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write it as a test report.", metavar="FILE")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the comparison as an HTML page.", metavar="FILE")] = None,
    db: Db = None,
    own_rules: shared_options.OwnRules = None,
    config: shared_options.Config = None,
    gpu: hardware_options.Gpu = None,
    peak: hardware_options.Peak = None,
    range_: shared_options.Range = None,
    steps: shared_options.Steps = None,
    process: shared_options.Process = None,
    jobs: scale_options.Jobs = None,
    cluster: scale_options.Cluster = None,
    show_all: shared_options.ShowAll = False,
    quiet: shared_options.Quiet = False,
    verbose: shared_options.Verbose = False,
) -> None:
    """Compare recordings with a stored baseline, for CI."""
    limit = limit_of(fail_above)
    output, files = _outputs(format_, dict(zip(_MARKERS, (json, markdown, sarif, junit), strict=True)))
    asked = AnalysisRequest(
        rules_of(own=own_rules, config=config, quiet=quiet),
        user_values=hardware_options.user_values(gpu, peak or [], None, None),
        part=shared_options.selection(range_, steps), process=process, cluster=scale_options.cluster(cluster),
        quiet=quiet, verbose=verbose,
    )  # fmt: skip
    scale_options.set_jobs(jobs)
    names = list(dict.fromkeys(baseline or [DEFAULT_BASELINE]))
    from perfdoctor.api.check_runs import Reader, checked, stored_runs

    stored = stored_runs(names, history_of(db, verbose=verbose))
    recorded = [name for name in names if name not in stored]
    with scale_options.runs_at_hand([*paths, *recorded], asked) as given:
        local = [path for each in given for path in each.local]
        for kind, path in files.items():
            report_files.check_ours(f"--{kind.value}", path, _MARKERS[kind], local)
        drawn = timeline_of if html is not None else None
        read = Reader(lambda paths: diagnosed(paths, asked), asked.known, asked.process, drawn)
        after = read.recordings(given[: len(paths)])
        before = read.baseline(names, stored, dict(zip(recorded, given[len(paths) :], strict=True)))
        found = checked(names, before, after, limit, program)
        _show(found, output, show_all=show_all, quiet=quiet)
        for kind, path in files.items():
            report_files.written(f"--{kind.value}", path, partial(_renderers()[kind], found), CHOOSE)
        if html is not None:
            _write_page(html, found, before, after, local)
    if found.failed:
        raise typer.Exit(CONDITION_MET)


def _outputs(
    given: CheckFormat | None, named: Mapping[CheckFormat, Path | None]
) -> tuple[CheckFormat, dict[CheckFormat, Path]]:
    """The format of standard output, which `-` in `named` asks for too, and the files to write by format."""
    wanted = [kind for kind, path in named.items() if str(path) == STANDARD_OUTPUT] + ([given] if given else [])
    if len(set(wanted)) > 1:
        raise typer.BadParameter(f"{' and '.join(kind.value for kind in wanted)} both want standard output.")
    files = {kind: path for kind, path in named.items() if path is not None and str(path) != STANDARD_OUTPUT}
    return wanted[0] if wanted else CheckFormat.TEXT, files


def _renderers() -> dict[CheckFormat, Callable[[Check], str]]:
    from perfdoctor.report.check import github, junit, sarif
    from perfdoctor.report.comparison import json_report

    return {
        CheckFormat.JSON: json_report.render_check, CheckFormat.MARKDOWN: github.comment,
        CheckFormat.GITHUB: github.render, CheckFormat.SARIF: sarif.render, CheckFormat.JUNIT: junit.render,
    }  # fmt: skip


def _show(found: Check, output: CheckFormat, *, show_all: bool, quiet: bool) -> None:
    from perfdoctor.report.check import terminal, words
    from perfdoctor.report.terminal_text import Terminal

    if output is CheckFormat.GITHUB:
        _summarise(found)
    if output is not CheckFormat.TEXT:
        say.document(_renderers()[output](found))
    elif quiet:
        say.line(words.verdict(found))
    else:
        terminal.render(found, Terminal(), show_all=show_all)


def _write_page(target: Path, found: Check, before: Side, after: Side, local: Sequence[Path]) -> None:
    from perfdoctor.report.check import words
    from perfdoctor.report.comparison import html

    sides = (("before", before), ("after", after))
    timelines = {name: side.timeline for name, side in sides if side.timeline is not None}
    page = report_files.free_html(target, local)
    report_files.written("--html", page, lambda: html.render(found.comparison, timelines, words.heading(found)), CHOOSE)


def _summarise(found: Check) -> None:
    """Append the check to GitHub's summary of the step. A line says why if it cannot be written."""
    from perfdoctor.report.check import github

    target = os.environ.get(SUMMARY, "")
    if not target:
        return
    try:
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(github.summary(github.comment(found), file.tell()))
    except OSError as error:
        say.note(f"no summary written: {target}: {error.strerror or error}")

"""`perfdoctor compare`: what changed between two runs, and is it more than noise?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from perfdoctor.cli import hardware_options, report_files, selection_options, shared_options
from perfdoctor.cli.analyze import (
    CONDITION_MET,
    STANDARD_OUTPUT,
    Asked,
    Format,
    check_html,
    output_of,
    print_page_path,
    rules_of,
)
from perfdoctor.cli.analyze import diagnosed as diagnosed_run
from perfdoctor.errors import PerfdoctorError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfdoctor.comparison.records import Comparison, Snapshot
    from perfdoctor.diagnosis.records import Examination

EXAMPLES = """\b
Examples:
  perfdoctor compare before/ after/
  perfdoctor compare main.nsys-rep branch.nsys-rep --fail-above 5%
  perfdoctor compare --before a1/ a2/ a3/ --after b1/ b2/ b3/
  perfdoctor compare old/diagnosis.json new/diagnosis.json --format markdown
"""
_PERCENT = 100
DEFAULT_PAGE = "comparison.html"
_HEAD = 1024


class SeveralValues(TyperCommand):
    """`--before A B C` is `--before A --before B --before C`, as it reads in a shell."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        option, spread = "", []
        for word in args:
            if word.startswith("-") and word != STANDARD_OUTPUT:
                option = word if word in ("--before", "--after") else ""
                spread += [] if option else [word]
            else:
                spread += [option, word] if option else [word]
        return super().parse_args(ctx, spread)


Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the comparison as an HTML page here. [default: comparison.html here]"),
]


def compare(
    *,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A run folder, a recording, or a diagnosis.json: before, and after.", metavar="BEFORE AFTER"
        ),
    ] = None,
    before: Annotated[
        list[Path] | None, typer.Option("--before", help="Several runs before; more may follow it.", metavar="PATH...")
    ] = None,
    after: Annotated[
        list[Path] | None, typer.Option("--after", help="Several runs after; more may follow it.", metavar="PATH...")
    ] = None,
    fail_above: Annotated[
        str | None,
        typer.Option("--fail-above", metavar="PERCENT", help="Exit with 3 if the step is surely longer by more: 5%."),
    ] = None,
    html: Html = None,
    no_html: shared_options.NoHtml = False,
    json: Annotated[
        str | None, typer.Option(help="Write the comparison as JSON; - is standard output.", metavar="FILE")
    ] = None,
    format_: Annotated[Format | None, typer.Option("--format", help="What is printed to standard output.")] = None,
    gpu: hardware_options.Gpu = None,
    peak: hardware_options.Peak = None,
    range_: selection_options.Range = None,
    steps: selection_options.Steps = None,
    show_all: shared_options.ShowAll = False,
    quiet: shared_options.Quiet = False,
    verbose: shared_options.Verbose = False,
) -> None:
    """Compare recordings of two versions of a training."""
    check_html(html, no_html=no_html)
    output = output_of(format_, json)
    limit = _limit(fail_above)
    sides = _sides(paths or [], before or [], after or [])
    asked = Asked(
        rules_of([], []), user_values=hardware_options.user_values(gpu, peak or [], None, None),
        part=selection_options.selection(range_, steps),
    )  # fmt: skip
    json_file = Path(json) if json is not None and json != STANDARD_OUTPUT else None
    if json_file:
        report_files.check_json(json_file, [*sides[0], *sides[1]])
    runs = [_Runs(side, asked, drawn=not no_html, quiet=quiet, verbose=verbose) for side in sides]
    from perfdoctor.comparison.compare import compare as compared

    comparison = compared(runs[0].snapshots, runs[1].snapshots)
    if json_file:
        _write_json(json_file, comparison)
    _show(comparison, output, show_all=show_all, quiet=quiet)
    if not no_html:
        timelines = {name: run.timeline for name, run in zip(("before", "after"), runs, strict=True) if run.timeline}
        page = _write_html(html, comparison, timelines, [*sides[0], *sides[1]])
        print_page_path(page, on_error=output is not Format.TEXT)
    if limit is not None and comparison.judged.low is not None and comparison.judged.low > limit:
        raise typer.Exit(CONDITION_MET)


class _Runs:
    """One side: a snapshot of each run, and the first that was read in full, for its timeline."""

    def __init__(self, paths: Sequence[Path], asked: Asked, *, drawn: bool, quiet: bool, verbose: bool) -> None:
        from perfdoctor.comparison.snapshot import of_document, of_examination
        from perfdoctor.vocabulary.rulebook import load_rules

        rules = load_rules()
        self.snapshots: list[Snapshot] = []
        self.timeline: Any = None
        for path in paths:
            document = _document(path)
            if document is not None:
                self.snapshots.append(of_document(str(path), document, rules))
                continue
            examination = diagnosed_run([path], asked, quiet=quiet, verbose=verbose)
            self.snapshots.append(of_examination(str(path), examination, rules, [path]))
            if drawn and self.timeline is None:
                self.timeline = _timeline(examination)


def _timeline(examination: Examination) -> Any:
    from perfdoctor.report.comparison.html import MOST_TIMELINE_BYTES
    from perfdoctor.views.pages import timeline

    return next(iter(timeline.view(examination.run, examination.diagnosis, MOST_TIMELINE_BYTES)), None)


def _document(path: Path) -> dict[str, Any] | None:
    """The diagnosis that this file holds; None where it is anything else."""
    import msgspec

    from perfdoctor.report.json_report import FORMAT

    if not path.is_file() or path.suffix != ".json":
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if report_files.JSON_MARKER not in head or b'"format"' not in head:
        return None
    try:
        document = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError:
        return None
    if not isinstance(document, dict) or "time" not in document:
        raise PerfdoctorError(f"{path} is no diagnosis", do="Give a run folder, a recording or a diagnosis.json.")
    if document.get("format") != FORMAT:
        raise PerfdoctorError(f"{path} has a format that is unknown here", do="Install a later version of perfdoctor.")
    return document


def _limit(text: str | None) -> float | None:
    if text is None:
        return None
    number = hardware_options.number(text.strip().removesuffix("%"))
    if number is None and text.strip().removesuffix("%").strip() in ("0", "0.0"):
        return 0.0
    if number is None:
        raise UsageError(f"--fail-above {text}: that is no percentage", do="Give one: --fail-above 5%")
    return number / _PERCENT


def _sides(
    paths: Sequence[Path], before: Sequence[Path], after: Sequence[Path]
) -> tuple[Sequence[Path], Sequence[Path]]:
    if before or after:
        if paths or not before or not after:
            raise UsageError("give BEFORE and AFTER, or --before and --after", do="See perfdoctor compare --help.")
        return before, after
    if len(paths) != 2:
        raise UsageError(
            f"compare takes two recordings, {len(paths)} are given",
            do="Give BEFORE and AFTER; several runs of each with --before A B C --after D E F.",
        )
    return paths[:1], paths[1:]


def _show(comparison: Comparison, output: Format, *, show_all: bool, quiet: bool) -> None:
    from perfdoctor.report.comparison import json_report, markdown, terminal, words
    from perfdoctor.report.terminal_text import Terminal

    if output is Format.JSON:
        typer.echo(json_report.render(comparison), nl=False)
    elif quiet:
        typer.echo(words.verdict(comparison))
    elif output is Format.MARKDOWN:
        typer.echo(markdown.render(comparison), nl=False)
    else:
        terminal.render(comparison, Terminal(), show_all=show_all)


def _write_json(target: Path, comparison: Comparison) -> None:
    from perfdoctor.report.comparison import json_report

    try:
        report_files.write(target, lambda: json_report.render(comparison))
    except OSError as error:
        raise PerfdoctorError(
            f"--json {target} cannot be written: {error.strerror or error}", do="Choose another file."
        ) from error


def _write_html(named: Path | None, comparison: Comparison, timelines: dict[str, Any], inputs: Sequence[Path]) -> Path:
    from perfdoctor.report.comparison import html

    target = report_files.free_html(named or Path(DEFAULT_PAGE), inputs)
    try:
        report_files.write(target, lambda: html.render(comparison, timelines))
    except OSError as error:
        raise PerfdoctorError(
            f"--html {target} cannot be written: {error.strerror or error}", do="Choose another file, or --no-html."
        ) from error
    return target

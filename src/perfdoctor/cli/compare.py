"""`perfdoctor compare`: what changed between two runs, and is it more than noise?"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from perfdoctor.cli import hardware_options, report_files, scale_options, scaling, shared_options
from perfdoctor.cli.analyze import (
    CONDITION_MET,
    STANDARD_OUTPUT,
    AnalysisRequest,
    check_html,
    diagnosed,
    output_of,
    rules_of,
)
from perfdoctor.cli.compare_output import ComparisonFormat, Shown
from perfdoctor.cli.rerun import reruns_of
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.report.json_document import MARKER

if TYPE_CHECKING:
    from perfdoctor.comparison.compare import Reruns
    from perfdoctor.comparison.records import Comparison, Snapshot
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.recording.treated_run import TrialReport
    from perfdoctor.report.given_run import Given

_PERCENT = 100
DEFAULT_PAGE = "comparison.html"


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
        list[str] | None,
        typer.Argument(
            help="A run folder, a recording, or a diagnosis.json: before, and after. Also at s3://, gs:// or https://.",
            metavar="BEFORE AFTER",
        ),
    ] = None,
    before: Annotated[
        list[str] | None, typer.Option("--before", help="Several runs before; more may follow it.", metavar="PATH...")
    ] = None,
    after: Annotated[
        list[str] | None, typer.Option("--after", help="Several runs after; more may follow it.", metavar="PATH...")
    ] = None,
    rerun: Annotated[
        int | None,
        typer.Option(
            min=3, metavar="N", help="Run both recorded commands again, in turn, N times each, and judge by these runs."
        ),
    ] = None,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Judge the step, or an item of the job's work, also of other GPUs, numbers of ranks or programs.",
        ),
    ] = False,
    other_program: Annotated[bool, typer.Option("--other-program", hidden=True)] = False,  # its name before
    by_scaling: scaling.ByScaling = False,
    weak: scaling.Weak = False,
    strong: scaling.Strong = False,
    network: scaling.Network = None,
    fail_above: Annotated[
        str | None,
        typer.Option("--fail-above", metavar="PERCENT", help="Exit with 3 if the step is surely longer by more: 5%."),
    ] = None,
    html: Html = None,
    no_html: shared_options.NoHtml = False,
    json: Annotated[
        str | None, typer.Option(help="Write the comparison as JSON; - is standard output.", metavar="FILE")
    ] = None,
    format_: Annotated[
        ComparisonFormat | None, typer.Option("--format", help="What is printed to standard output.")
    ] = None,
    own_rules: shared_options.OwnRules = None,
    config: shared_options.Config = None,
    gpu: hardware_options.Gpu = None,
    peak: hardware_options.Peak = None,
    range_: shared_options.Range = None,
    steps: shared_options.Steps = None,
    jobs: scale_options.Jobs = None,
    cluster: scale_options.Cluster = None,
    show_all: shared_options.ShowAll = False,
    quiet: shared_options.Quiet = False,
    verbose: shared_options.Verbose = False,
) -> None:
    """Compare two versions of a training, or numbers of GPUs."""
    check_html(html, no_html=no_html)
    output = output_of(format_, json, ComparisonFormat)
    limit = limit_of(fail_above)
    asked = AnalysisRequest(
        rules_of(own=own_rules, config=config, quiet=quiet),
        user_values=hardware_options.user_values(gpu, peak or [], None, None),
        part=shared_options.selection(range_, steps), cluster=scale_options.cluster(cluster),
        quiet=quiet, verbose=verbose,
    )  # fmt: skip
    scale_options.set_jobs(jobs)
    json_file = Path(json) if json is not None and json != STANDARD_OUTPUT else None
    shown = Shown(output, json_file, html, no_html=no_html, show_all=show_all, quiet=quiet)
    if by_scaling:
        _only_with(
            before or after or fail_above or rerun, "--before, --after, --fail-above and --rerun are not for --scaling"
        )
        series = scaling.asked(paths or [], weak=weak, strong=strong, network=network)
        with scale_options.runs_at_hand([each.path for each in series.given], asked) as given:
            scaling.show(series, given, asked, shown)
        return
    _only_with(weak or strong or network, "--weak, --strong and --network are about --scaling")
    sides = _sides(paths or [], before or [], after or [])
    if rerun and max(map(len, sides)) > 1:
        raise UsageError("--rerun takes one run of each side", do="Give BEFORE and AFTER: it makes the other runs.")
    reruns = rerun and reruns_of(sides[0][0], sides[1][0], rerun, quiet=quiet)
    with scale_options.runs_at_hand([*sides[0], *sides[1]], asked) as given:
        both = given[: len(sides[0])], given[len(sides[0]) :]
        comparison = _compare(both, asked, shown, reruns or None, anyway=anyway or other_program)
    if limit is not None and comparison.not_comparable:
        raise PerfdoctorError(
            "--fail-above: the two sides are not comparable",
            do="Record both alike, or let --anyway judge them all the same.",
        )
    if limit is not None and comparison.is_longer_by(limit):
        raise typer.Exit(CONDITION_MET)


def _remember(comparison: Comparison, settings: Mapping[str, str]) -> None:
    """Add what was promised and what came to the ledger of a project that has a history; the same runs once."""
    from perfdoctor.cli import history

    history.save_promises(promise_rows(comparison, settings), quiet=True, only_if_there=True)


def promise_rows(comparison: Comparison, settings: Mapping[str, str]) -> list[dict[str, object]]:
    """Rows of the ledger: the promise of each rule whose finding is gone, on a GPU, as shares of the step before.

    `settings`: of AFTER. What was edited nobody knows: the fix is `EDIT`. Without a GPU a recording does not say on
    what kind of machine it was made.
    """
    from perfdoctor.history.promises import EDIT

    step_ns = comparison.step.before.mean_ns
    if not settings.get("GPU") or comparison.may_be_two_programs:
        return []
    rows = []
    for each in comparison.promises:
        is_said_alone = any(other.rules == each.rules for other in comparison.promises[1:])
        if len(each.rules) != 1 or (each.whole and is_said_alone):
            continue
        shares = [ns / step_ns for ns in (each.low, each.likely, each.high, each.shown_ns)]
        key = repr((comparison.before, comparison.after, each.rules, shares))
        rows.append({
            "id": hashlib.sha256(key.encode()).hexdigest()[:12], "rule": each.rules[0], "fix": EDIT,
            "machine": settings["GPU"], "torch": settings.get("torch", ""), "size": "", "promised_low": shares[0],
            "promised_likely": shares[1], "promised_high": shares[2], "measured_likely": shares[3],
            "pairs": min(comparison.step.before.runs, comparison.step.after.runs), "verdict": each.kept,
            "source": "compare",
        })  # fmt: skip
    return rows


def _only_with(given: object, why: str) -> None:
    if given:
        raise UsageError(why, do="See perfdoctor compare --help.")


def _compare(
    sides: Sequence[Sequence[Given]], asked: AnalysisRequest, shown: Shown, reruns: Reruns | None, *,
    anyway: bool,
) -> Comparison:  # fmt: skip
    local = [path for side in sides for each in side for path in each.local]
    if shown.json_file:
        report_files.check_ours("--json", shown.json_file, MARKER, local)
    read = [_read(side, asked, drawn=not shown.no_html) for side in sides]
    from perfdoctor.comparison.compare import compare as compared
    from perfdoctor.report.comparison import json_report

    comparison = compared(read[0][0], read[1][0], reruns=reruns, anyway=anyway)
    timelines = {name: timeline for name, (_, timeline) in zip(("before", "after"), read, strict=True) if timeline}
    shown.write(
        comparison,
        "perfdoctor.report.comparison",
        lambda: json_report.render(comparison),
        DEFAULT_PAGE,
        local,
        timelines,
    )
    _remember(comparison, read[1][0][0].settings)
    return comparison


def _read(given: Sequence[Given], asked: AnalysisRequest, *, drawn: bool) -> tuple[list[Snapshot], Any]:
    """A snapshot of each run of one side, and if a page is `drawn`, the timeline of the first that was recorded."""
    from perfdoctor.comparison.from_facts import of_trial
    from perfdoctor.comparison.snapshot import of_document, of_examination

    rules, snapshots, timeline = asked.known, [], None
    for each in given:
        if (document := each.document()) is not None:
            snapshots.append(of_document(each.name, document, rules))
            continue
        if (trial := _trial(each)) is not None:
            snapshots.append(of_trial(each.name, trial))
            continue
        examination = diagnosed(each.paths, asked)
        snapshots.append(of_examination(each.name, examination, rules, each.local))
        if drawn and timeline is None:
            timeline = timeline_of(examination)
    return snapshots, timeline


def _trial(given: Given) -> TrialReport | None:
    """The trial of `perfdoctor treat` that it is the folder of; None where it is anything else."""
    from perfdoctor.recording.treated_run import read_trial

    is_folder = len(given.paths) == len(given.local) == 1 and given.local[0].is_dir()
    return read_trial(given.local[0]) if is_folder else None


def timeline_of(examination: Examination) -> Any:
    from perfdoctor.report.comparison.html import MOST_TIMELINE_BYTES
    from perfdoctor.views.pages import timeline

    return next(iter(timeline.view(examination.run, examination.diagnosis, MOST_TIMELINE_BYTES)), None)


def limit_of(text: str | None) -> float | None:
    if text is None:
        return None
    number = hardware_options.number(text.strip().removesuffix("%"))
    if number is None and text.strip().removesuffix("%").strip() in ("0", "0.0"):
        return 0.0
    if number is None:
        raise UsageError(f"--fail-above {text}: that is no percentage", do="Give one: --fail-above 5%")
    return number / _PERCENT


def _sides(paths: Sequence[str], before: Sequence[str], after: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    if before or after:
        if paths or not before or not after:
            raise UsageError("give BEFORE and AFTER, or --before and --after", do="See perfdoctor compare --help.")
        return before, after
    if len(paths) != 2:
        raise UsageError(
            f"compare takes two recordings, {len(paths)} {'is' if len(paths) == 1 else 'are'} given",
            do="Give BEFORE and AFTER; several runs of each with --before A B C --after D E F.",
        )
    return paths[:1], paths[1:]

"""`perfdoctor history`: the earlier runs of this project, and how a number developed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.cli import examples, say
from perfdoctor.errors import PerfdoctorError, UsageError

if TYPE_CHECKING:
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.system.remote import RemoteFile

_LAST = "last"

Db = Annotated[
    Path | None,
    typer.Option("--db", metavar="FILE", help="The history.", show_default=".perfdoctor/history.db of the project"),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="[RUN]", help="First digits of its id, last, last~1, a pin or a run folder.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only what was asked for.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also print which file is used.")]
Tag = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only runs with this tag.")]

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


def _example(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  perfdoctor history {line}" for line in lines)


@app.callback(invoke_without_command=True, epilog=examples.of("history"))
def _history(
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="How many runs, newest first.")] = 20,
    tag: Tag = None,
    json: Json = False,
    db: Db = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the ids, one a line.")] = False,
    verbose: Verbose = False,
) -> None:
    """List earlier runs, and follow a number from run to run."""
    if context.invoked_subcommand is not None:
        return
    from perfdoctor.history import runs, store
    from perfdoctor.report import history_json, history_terminal
    from perfdoctor.report.terminal_text import Terminal

    with store.read(_file(db, verbose=verbose)) as history:
        rows, number = runs.listed(history, limit=limit, tag=tag), runs.count(history)
    if json:
        say.document(history_json.runs(rows))
    elif quiet:
        for row in rows:
            say.line(row["id"])
    elif tag is not None and not rows:
        say.note(f"no run has the tag {tag!r}")
    else:
        history_terminal.runs(rows, len(rows) if tag is not None else number, Terminal())


@app.command("show", epilog=_example("show", "show 3fa9c1", "show last~1 --json"))
def _show(
    run: RunArgument = _LAST, *, json: Json = False, db: Db = None, quiet: Quiet = False, verbose: Verbose = False
) -> None:
    """Show all that is stored of one run."""
    from perfdoctor.history import runs, store
    from perfdoctor.report import history_json, history_terminal
    from perfdoctor.report.terminal_text import Terminal
    from perfdoctor.report.words.foreign_text import clean

    with store.read(_file(db, verbose=verbose)) as history:
        found = runs.stored(history, runs.resolved(history, run))
    if json:
        say.document(history_json.run(found))
    elif quiet:
        say.line(clean(found.facts["verdict"] or ""))
    else:
        history_terminal.run(found, Terminal())


@app.command("trend", epilog=_example("trend", "trend mfu --program train.py", "trend input_wait --html waits.html"))
def _trend(
    metric: Annotated[
        str, typer.Argument(metavar="[METRIC]", help="step, mfu, memory, throughput, idle, a part of the step …")
    ] = "step",
    *,
    like: Annotated[
        str | None, typer.Option(metavar="RUN", help="The series of this run.", show_default="last")
    ] = None,
    program: Annotated[str | None, typer.Option(metavar="TEXT", help="All commands with this text in them.")] = None,
    tag: Tag = None,
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the series as CSV.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with the chart.")] = None,
    db: Db = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only what changed, in a sentence.")] = False,
    verbose: Verbose = False,
) -> None:
    """Follow a number from run to run, and find where it changed."""
    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other.")
    from perfdoctor.cli import report_files
    from perfdoctor.history import runs, series, store
    from perfdoctor.history.metrics import metric as named
    from perfdoctor.report import history_json, history_terminal
    from perfdoctor.report.html import render_trend
    from perfdoctor.report.terminal_text import Terminal
    from perfdoctor.report.words import trends

    wanted = named(metric)
    with store.read(_file(db, verbose=verbose)) as history:
        chosen = runs.resolved(history, like) if like else None
        found = series.trend(history, wanted, folder=Path.cwd(), like=chosen, program=program, tag=tag)
    if not found.points:
        raise UsageError(f"that run has no {wanted.name}", do="perfdoctor history show prints what it has.")
    if json:
        say.document(history_json.trend(found))
    elif csv:
        say.document(history_json.trend_csv(found))
    elif quiet:
        say.line(trends.heading(found))
    else:
        history_terminal.trend(found, Terminal())
    if html:
        if html.is_file() and not report_files.is_page(html):
            raise PerfdoctorError(f"--html {html} exists and was not written by perfdoctor", do="Choose another file.")
        report_files.written("--html", html, lambda: render_trend(found))


@app.command("promises", epilog=_example("promises", "promises --csv > promises.csv"))
def _promises(
    *,
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    db: Db = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only how many there are.")] = False,
    verbose: Verbose = False,
) -> None:
    """List what was promised for each fix that was tried, and what came."""
    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other.")
    from perfdoctor.history import promises, store
    from perfdoctor.report import history_json, history_terminal
    from perfdoctor.report.terminal_text import Terminal

    with store.read(_file(db, verbose=verbose)) as history:
        rows = promises.listed(history)
    if json:
        say.document(history_json.promises(rows))
    elif csv:
        say.document(history_json.promises_csv(rows))
    elif quiet:
        say.line(str(len(rows)))
    else:
        history_terminal.promises(rows, Terminal())


@app.command("pin", epilog=_example("pin main", "pin before-amp 3fa9c1 9b0c77", "pin main --remove"))
def _pin(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What comparisons will call it.")],
    run: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="The runs; the last one if none.")] = None,
    *,
    add: Annotated[bool, typer.Option("--add", help="Add them to the runs that have this name.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the name away.")] = False,
    db: Db = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Give a run a name, to compare others with it."""
    from perfdoctor.history import runs, store

    runs.named(name, "pin")
    with store.written(_existing(db, verbose=verbose)) as history:
        if remove:
            runs.unpin(history, name)
            return
        ids = [runs.resolved(history, each) for each in run or [_LAST]]
        runs.pin(history, name, ids, add=add)
    _say(f"{name}: {', '.join(ids)}", quiet=quiet)


@app.command("tag", epilog=_example("tag nightly", "tag bf16 3fa9c1", "tag bf16 3fa9c1 --remove"))
def _tag(
    tag: Annotated[str, typer.Argument(metavar="TAG")],
    run: RunArgument = _LAST,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Take the tag away.")] = False,
    db: Db = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Tag a run, to list and follow only such runs."""
    from perfdoctor.history import runs, store

    runs.named(tag, "tag")
    with store.written(_existing(db, verbose=verbose)) as history:
        name = runs.resolved(history, run)
        if not remove:
            runs.tag(history, tag, name)
        elif not runs.untag(history, tag, name):
            raise UsageError(f"{name} has no tag {tag!r}", do="perfdoctor history show prints its tags.")
    _say(f"{name}: #{tag}", quiet=quiet or remove)


@app.command("note", epilog=_example('note "with the new loader"', 'note "node 7 was hot" 3fa9c1'))
def _note(
    text: Annotated[str, typer.Argument(metavar="TEXT")],
    run: RunArgument = _LAST,
    *,
    db: Db = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write a remark to a run."""
    from perfdoctor.history import runs, store

    with store.written(_existing(db, verbose=verbose)) as history:
        name = runs.resolved(history, run)
        runs.note(history, text, name)
    _say(f"{name}: noted", quiet=quiet)


@app.command("prune", epilog=_example("prune --keep 200", "prune --keep 90d --dry-run"))
def _prune(
    *,
    keep: Annotated[str, typer.Option(metavar="N|DAYSd", help="The newest N runs, or those of so many days.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print which runs would go.")] = False,
    db: Db = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Remove old runs; pinned ones stay."""
    from perfdoctor.history import runs, store

    with store.written(_existing(db, verbose=verbose)) as history:
        ids = runs.to_prune(history, keep)
        if dry_run:
            for each in ids:
                say.line(each)
            return
        if ids:
            runs.remove(history, ids)
        left = runs.count(history)
    _say(f"{len(ids)} runs removed, {left} kept", quiet=quiet)


@app.command("merge", epilog=_example("merge ../other/.perfdoctor/history.db"))
def _merge(
    other: Annotated[Path, typer.Argument(metavar="OTHER.db", help="Another history; it stays as it is.")],
    *,
    db: Db = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Add the runs of another history to this one."""
    from perfdoctor.history import runs, store

    if not other.is_file():
        raise PerfdoctorError(f"there is no file {other}", do="Name the history.db of another project or machine.")
    with store.written(_file(db, verbose=verbose)) as history:
        merged = runs.merge(history, other)
    _say(f"{merged.added} runs added, {merged.known} were known", quiet=quiet)
    if merged.damaged:
        _say(f"{merged.damaged} rows were left out: they are no runs", quiet=False)
    if merged.pins:
        _say(f"pinned here to other runs, and kept: {', '.join(merged.pins)}", quiet=quiet)


# --- for commands that try fixes -----------------------------------------------------------------------------------


def earlier_promises(machine: str) -> list[dict[str, object]]:
    """What was measured on this kind of machine before; nothing where there is no history, or it cannot be read."""
    from perfdoctor.history import promises, store

    try:
        file = store.history_file(Path.cwd())
        if file is None or not file.exists():
            return []
        with store.read(file) as history:
            return promises.listed(history, machine=machine)
    except (PerfdoctorError, RuntimeError):
        return []


def with_measured(examination: Examination) -> Examination:
    """The diagnosis of a run on this machine, with what fixes saved here before. What goes wrong changes nothing."""
    from msgspec.structs import replace

    from perfdoctor.history.measured_fixes import as_measured
    from perfdoctor.recording.treated_run import machine_facts
    from perfdoctor.treatments import catalogue
    from perfdoctor.treatments.choice import Machine

    try:
        gpus = examination.diagnosis.gpus
        rows = earlier_promises(Machine(gpu=gpus[0].name if gpus else "", **machine_facts()).kind)
        if not rows:
            return examination
        advised_by = {name: each.advice for name, each in catalogue.shipped().items() if each.advice}
        return replace(examination, diagnosis=as_measured(examination.diagnosis, rows, advised_by))
    except Exception as error:  # noqa: BLE001 the diagnosis is what the user waits for
        say.note(f"what was measured here before was not used: {type(error).__name__}: {error}")
        return examination


def save_promises(rows: Sequence[dict[str, object]], *, quiet: bool, only_if_there: bool = False) -> None:
    """Store rows of fixes that were tried; `only_if_there`: in no new history. What goes wrong prints a line."""
    from perfdoctor.history import promises, store

    try:
        file = store.history_file(Path.cwd())
        if file is None or not rows or (only_if_there and not file.exists()):
            return
        with store.written(file) as history:
            count = promises.save(history, rows)
    except (PerfdoctorError, RuntimeError) as error:
        say.note(f"not stored in the history: {getattr(error, 'what', error)}")
    else:
        _say(f"{count} rows of what was promised and measured: perfdoctor history promises", quiet=quiet)


# --- for commands that diagnose ---------------------------------------------------------------------------------------


def save(
    examination: Examination, paths: Sequence[Path | RemoteFile], *, source: str, process: int | None, quiet: bool
) -> None:
    """Store the run in the project's history. What goes wrong prints a line: the user waits for the diagnosis."""
    try:
        from perfdoctor.history import facts, runs, store
        from perfdoctor.report.words import wording

        file = store.history_file(Path.cwd())
        if file is None:
            return
        verdict = wording.verdict(examination.diagnosis)
        found = facts.facts(examination, paths, source=source, process=process, verdict=verdict)
        with store.written(file) as history:
            name = runs.save(history, found)
    except Exception as error:  # noqa: BLE001 the exit code and the reports stay as they are
        from perfdoctor.report.words.foreign_text import clean

        why = f"{error.what}. {error.do}" if isinstance(error, PerfdoctorError) else f"{type(error).__name__}: {error}"
        say.note(f"not stored in the history: {clean(why)}")
    else:
        if not quiet:
            say.note(f"stored in the history as {name}")


def history_of(given: Path | None, *, verbose: bool) -> Path | None:
    """The `given` file, else the project's; None where the user wants none."""
    from perfdoctor.history import store

    found = given or store.history_file(Path.cwd())
    if verbose and found:
        say.line(str(found), err=True)
    return found


def _file(given: Path | None, *, verbose: bool) -> Path:
    from perfdoctor.history import store

    found = history_of(given, verbose=verbose)
    if found is None:
        raise UsageError(
            f"{store.VARIABLE} is {store.OFF}: nothing is stored", do="Unset it, or name a file with --db."
        )
    return found


def _existing(given: Path | None, *, verbose: bool) -> Path:
    """The file of the history. Raises PerfdoctorError if there is none: it would be made only to find no run in it."""
    from perfdoctor.history import store

    return store.existing(_file(given, verbose=verbose))


def _say(text: str, *, quiet: bool) -> None:
    if not quiet:
        say.line(text, err=True)

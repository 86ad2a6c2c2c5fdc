"""`perfdoctor query`: a question in SQL about a recording."""

from __future__ import annotations

import csv
import json as json_format
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdoctor.cli import say, scale_options, shared_options
from perfdoctor.cli.export_tables import is_exported
from perfdoctor.cli.progress import progress
from perfdoctor.report.words.foreign_text import clean, csv_cell

if TYPE_CHECKING:
    from perfdoctor.export.tables.query import QueryResult
    from perfdoctor.model.run import Run
    from perfdoctor.system.remote import RemoteFile

#: What is asked where nothing is: what there is.
_TABLES = "SELECT table_name, count(*) AS column_count FROM columns GROUP BY table_name ORDER BY min(id)"
_SHOWN, _ALL = 100, 10_000_000


def query(
    *,
    given: Annotated[
        str, typer.Argument(help="A run folder, a folder of traces, a file, or an exported database.", metavar="PATH")
    ],
    sql: Annotated[
        str | None, typer.Argument(help="One question: SELECT … [default: which tables there are]", metavar="SQL")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="At most so many rows. [default: 100; with --json or --csv all]", metavar="N"),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long the question may take.", metavar="N")] = 60.0,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON: columns, rows, and whether there are more.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer alone.")] = False,
    verbose: shared_options.Verbose = False,
) -> None:
    """Ask a recording in SQL. Nothing is written."""
    if json and as_csv:
        raise typer.BadParameter("--json and --csv exclude each other.")
    most = limit or (_ALL if json or as_csv else _SHOWN)
    with scale_options.at_hand([given], None, quiet=quiet, verbose=verbose) as paths:
        answer = _answered(paths, sql or _TABLES, most, seconds, quiet=quiet, verbose=verbose)
    rows = ([_plain(value) for value in row] for row in answer.rows)
    if json:
        said = {"note": answer.note} if answer.note else {}
        document = {"columns": answer.columns, "rows": list(rows), "is_cut": answer.is_cut, **said}
        say.document(f"{json_format.dumps(document, ensure_ascii=False, allow_nan=False)}\n")
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([csv_cell(value) for value in row] for row in (answer.columns, *rows))
    else:
        _print_table(answer)
    if answer.note and not quiet:
        say.note(answer.note)
    if answer.is_cut and not quiet:
        say.note(f"the first {most} rows; --limit shows more.")


def _answered(
    paths: Sequence[Path | RemoteFile], sql: str, limit: int, seconds: float, *, quiet: bool, verbose: bool
) -> QueryResult:
    with progress(quiet=quiet, verbose=verbose) as update:
        update("starting")
        of: Path | Run
        first = paths[0]
        if len(paths) == 1 and isinstance(first, Path) and is_exported(first):
            of = first
        else:
            from perfdoctor.scale.read import read_run

            of = read_run(paths, update)
        from perfdoctor.export.tables.query import query as ask

        update("Asking")
        return ask(of, sql, limit=limit, seconds=seconds)


def _plain(value: Any) -> Any:
    """The value as JSON and CSV have it: bytes are hexadecimal digits, infinity is null."""
    if isinstance(value, bytes):
        return value.hex()
    return None if isinstance(value, float) and value in (float("inf"), float("-inf")) else value


def _print_table(answer: QueryResult) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    numbers = [
        all(isinstance(row[at], (int, float, type(None))) for row in answer.rows) for at in range(len(answer.columns))
    ]
    for name, is_number in zip(answer.columns, numbers, strict=True):
        table.add_column(
            Text(clean(name)), justify="right" if is_number else "left", overflow="ellipsis", no_wrap=is_number
        )
    for row in answer.rows:
        table.add_row(*(Text("" if value is None else clean(str(_plain(value)))) for value in row))
    Console(soft_wrap=False).print(table)

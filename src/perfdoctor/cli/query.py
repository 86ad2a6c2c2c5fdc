"""`perfdoctor query`: a question in SQL about a recording."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdoctor.cli import say, scale_options, shared_options
from perfdoctor.cli.progress import progress
from perfdoctor.report.words.foreign_text import clean, one_line

if TYPE_CHECKING:
    from perfdoctor.records.query_result import QueryResult
    from perfdoctor.system.remote import RemoteFile

#: What is asked where nothing is: what there is, and of what was recorded how much.
_TABLES = """
SELECT table_name, count(*) AS column_count, row_count FROM columns
LEFT JOIN signals ON signals.name = table_name AND is_recorded GROUP BY table_name ORDER BY min(columns.id)"""
_COLUMNS = "Columns of one: SELECT column_name, unit, meaning FROM columns WHERE table_name = 'kernels'"
_SHOWN, _ALL = 100, 10_000_000
#: Of a line in a pipe: rich needs a number.
_WIDEST = 1_000_000


class QueryFormat(str, Enum):
    """What is printed to standard output."""

    TABLE = "table"
    TSV = "tsv"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def query(
    *,
    given: Annotated[
        str, typer.Argument(help="A run folder, a folder of traces, a file, or an exported database.", metavar="PATH")
    ],
    sql: Annotated[
        str | None, typer.Argument(help="One question: SELECT … [default: which tables there are]", metavar="SQL")
    ] = None,
    format_: Annotated[
        QueryFormat, typer.Option("--format", help="What is printed to standard output.")
    ] = QueryFormat.TABLE,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="At most so many rows. [default: 100 in a table, else all]", metavar="N"),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long the question may take.", metavar="N")] = 60.0,
    json: Annotated[bool, typer.Option("--json", help="As --format json: columns, rows, are there more.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="As --format csv.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer alone.")] = False,
    verbose: shared_options.Verbose = False,
) -> None:
    """Ask a recording in SQL. Nothing is written."""
    output = _output(format_, json=json, as_csv=as_csv)
    most = limit or (_SHOWN if output is QueryFormat.TABLE else _ALL)
    with scale_options.at_hand([given], None, quiet=quiet, verbose=verbose) as paths:
        answer = _answered(paths, sql or _TABLES, most, seconds, quiet=quiet, verbose=verbose)
    rows = ([_plain(value) for value in row] for row in answer.rows)
    if output is QueryFormat.JSON:
        said = {"note": answer.note} if answer.note else {}
        document = {"columns": answer.columns, "rows": list(rows), "is_cut": answer.is_cut, **said}
        say.document(f"{json_format.dumps(document, ensure_ascii=False, allow_nan=False)}\n")
    elif output is QueryFormat.PARQUET:
        from perfdoctor.export.tables import files

        say.data(files.answer_as_parquet(answer.columns, list(rows)))
    elif output is QueryFormat.TABLE:
        _print_table(answer)
    else:
        say.table((answer.columns, *rows), "," if output is QueryFormat.CSV else "\t")
    if answer.note and not quiet:
        say.note(answer.note)
    if sql is None and not quiet:
        say.note(_COLUMNS)
    if answer.is_cut and not quiet:
        say.note(f"the first {most} rows; --limit shows more.")


def _output(given: QueryFormat, *, json: bool, as_csv: bool) -> QueryFormat:
    """The format that the options ask for. Raises BadParameter, before anything is read, where they disagree."""
    short = [QueryFormat.JSON] * json + [QueryFormat.CSV] * as_csv
    named = {*short, *([given] if given is not QueryFormat.TABLE else [])}
    if len(named) > 1:
        raise typer.BadParameter("--json, --csv and another --format exclude each other.")
    output = named.pop() if named else given
    if output is QueryFormat.PARQUET:
        from perfdoctor.export.tables import files

        files.check()
        if sys.stdout.isatty():
            raise typer.BadParameter("Parquet is not for a terminal: --format parquet > answer.parquet")
    return output


def _answered(
    paths: Sequence[Path | RemoteFile], sql: str, limit: int, seconds: float, *, quiet: bool, verbose: bool
) -> QueryResult:
    with progress(quiet=quiet, verbose=verbose) as update:
        update("starting")
        from perfdoctor.export.tables.query import query_paths

        return query_paths(paths, sql, update, limit=limit, seconds=seconds)


def _plain(value: Any) -> Any:
    """The value as the other formats have it: bytes are hexadecimal digits, infinity is null."""
    if isinstance(value, bytes):
        return value.hex()
    return None if isinstance(value, float) and value in (float("inf"), float("-inf")) else value


def _print_table(answer: QueryResult) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = clean if sys.stdout.isatty() else one_line
    table = Table(box=None, pad_edge=False, header_style="bold")
    numbers = [
        all(isinstance(row[at], (int, float, type(None))) for row in answer.rows) for at in range(len(answer.columns))
    ]
    for name, is_number in zip(answer.columns, numbers, strict=True):
        table.add_column(
            Text(shown(name)), justify="right" if is_number else "left", overflow="ellipsis", no_wrap=is_number
        )
    for row in answer.rows:
        table.add_row(*(Text("" if value is None else shown(str(_plain(value)))) for value in row))
    # What reads a pipe has no width: lines are as long as they are.
    Console(soft_wrap=False, width=None if sys.stdout.isatty() else _WIDEST).print(table)

"""`perfdoctor export`: the merged timeline and the findings in it, for another tool to show."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.cli import export_tables, report_files, say, scale_options, shared_options
from perfdoctor.cli.analyze import AnalysisRequest, diagnosed, rules_of
from perfdoctor.cli.progress import progress
from perfdoctor.errors import UsageError

if TYPE_CHECKING:
    from perfdoctor.diagnosis.records import Examination

_HEAD_BYTES = 1024
_GZIP = b"\x1f\x8b"
#: The slowest level makes the file a fifth smaller, and takes twenty times as long.
_LEVEL = 1


def export(
    *,
    given: scale_options.Recordings,
    perfetto: Annotated[
        Path | None,
        typer.Option(help="Write Perfetto's format here; compressed if the name ends in .gz.", metavar="FILE"),
    ] = None,
    own_rules: shared_options.OwnRules = None,
    config: shared_options.Config = None,
    sqlite: Annotated[
        Path | None, typer.Option(help="Write all tables into an SQLite database.", metavar="FILE")
    ] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write one Parquet file a table here.", metavar="DIR")] = None,
    arrow: Annotated[
        Path | None, typer.Option(help="Write an Arrow file: all events, or the one --table.", metavar="FILE")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="Only this table; may be repeated. See docs/tables.md.", metavar="NAME")
    ] = None,
    range_: shared_options.Range = None,
    steps: shared_options.Steps = None,
    process: shared_options.Process = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
    verbose: shared_options.Verbose = False,
) -> None:
    """Write the merged timeline, for Perfetto or as tables."""
    outputs = None
    if table or any(path is not None for path in (sqlite, parquet, arrow)):
        from perfdoctor.export.tables.write import Outputs

        outputs = Outputs(sqlite, parquet, arrow, tuple(table or ()))
        outputs.check_asked()
    if perfetto is None and not outputs:
        raise UsageError("there is no output file", do="Give one: --perfetto train.pftrace, or --sqlite train.db.")
    part = shared_options.selection(range_, steps)
    rules = rules_of(own=own_rules, config=config, quiet=quiet)
    asked = AnalysisRequest(rules, part=part, process=process, quiet=quiet, verbose=verbose)
    with scale_options.at_hand(given, None, quiet=quiet, verbose=verbose) as paths:
        if perfetto is not None:
            report_files.check_free("--perfetto", perfetto, paths, _is_ours, by="perfdoctor export")
        if outputs:
            export_tables.check_files(outputs, paths)
        examination = diagnosed(paths, asked)
        if perfetto is not None:
            _export(examination, perfetto, quiet=quiet, verbose=verbose)
        if outputs:
            export_tables.export(examination, outputs, quiet=quiet, verbose=verbose)
    if not quiet:
        _say_what_is_left_out(
            examination, outputs.only if outputs and outputs.only and perfetto is None else ("kernels",)
        )
    if perfetto is not None and not quiet:
        say.line(f"Open {perfetto} at https://ui.perfetto.dev (it stays on your machine).", err=True)


def _export(examination: Examination, perfetto: Path, *, quiet: bool, verbose: bool) -> None:
    from perfdoctor.export.perfetto import render

    with progress(quiet=quiet, verbose=verbose) as update:
        update(f"Writing {perfetto.name}")
        try:
            _write(perfetto, render(examination))
        except OSError as error:
            raise report_files.unwritable(f"--perfetto {perfetto}", error) from error


def _say_what_is_left_out(examination: Examination, tables: Sequence[str]) -> None:
    from perfdoctor.export.tables.contents import left_out

    if note := left_out(examination.run, tables):
        say.note(note)


def _is_ours(file: Path) -> bool:
    """Does it begin like our files, or is it empty?"""
    from perfdoctor.export.perfetto import FIRST_TRACK

    try:
        with file.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError:
        return False
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(head, _HEAD_BYTES)
        except zlib.error:
            return False
    return FIRST_TRACK.encode() in head or not head


def _write(target: Path, pieces: Iterable[bytes]) -> None:
    """Write the file whole or not at all. Raises OSError. A device such as /dev/null is written to directly."""
    with report_files.place(target) as made, made.open("wb") as plain:
        is_packed = target.suffix == ".gz" and made != target
        with gzip.GzipFile("", "wb", _LEVEL, plain, mtime=0) if is_packed else nullcontext(plain) as stream:
            stream.writelines(pieces)

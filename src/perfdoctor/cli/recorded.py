"""How is a run that was just recorded diagnosed and written, so that no error of that changes what the program did?"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perfdoctor.cli import analyze, say
from perfdoctor.errors import PerfdoctorError, is_a_bug
from perfdoctor.report.words.foreign_text import clean_block

if TYPE_CHECKING:
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.system.run_folder import RunFolder


def nothing_recorded(folder: RunFolder) -> PerfdoctorError | None:
    """Why there is nothing to diagnose, and what to do, where no pass left a recording to read."""
    passes = folder.manifest.passes
    recorded = [[file for file in each.files if not file.startswith("stacks/")] for each in passes]
    if not passes or not all(
        each.do and (each.exit_code or not files) for each, files in zip(passes, recorded, strict=True)
    ):
        return None
    return PerfdoctorError("; ".join(passes[0].notes), do=passes[0].do)


def report(folder: RunFolder, asked: analyze.AnalysisRequest, reports: analyze.Reports, source: str, code: int) -> None:
    """Diagnose and write. Errors are printed; the exit code stays `code`, unless a condition is met.

    `source`: the command that recorded it, as the history names it.
    """
    met = False
    try:
        from perfdoctor.cli import history

        examination = history.with_measured(analyze.diagnosed([folder.path], asked))
        sys.stdout.flush()
        page = _write(folder, examination, reports, quiet=asked.quiet)
        if reports.save:
            history.save(examination, [folder.path], source=source, process=asked.process, quiet=asked.quiet)
        met = analyze.is_met(asked.conditions, examination.diagnosis)
        try:  # other tools may take some time: whoever does not wait has all reports
            analyze.publish(examination, [folder.path], asked, reports.outside, page)
        except KeyboardInterrupt:
            say.note(f"not all was logged. Later: perfdoctor analyze {folder.path} --log …")
        except PerfdoctorError as error:  # it says where to
            say.failure(error.what, error.do)
    except KeyboardInterrupt:
        say.note(f"not diagnosed. Later: perfdoctor analyze {folder.path}")
    except BrokenPipeError:
        pass
    except Exception as error:  # noqa: BLE001 the exit code stays the program's
        print_error("not diagnosed", error)
    if met and not code:
        raise typer.Exit(analyze.CONDITION_MET)


def _write(folder: RunFolder, examination: Examination, reports: analyze.Reports, *, quiet: bool) -> Path | None:
    """Write and print all reports. Returns the page that was written, if any."""
    diagnosis, page = examination.diagnosis, None
    analyze.write_json(reports.json or folder.path / "diagnosis.json", diagnosis)
    if not reports.no_html:
        page = analyze.write_html(reports.html, [folder.path], examination, text=False)
    analyze.show(diagnosis, reports, quiet=quiet, page=page)
    analyze.print_page_path(page, on_error=True)
    return page


def print_error(what: str, error: Exception) -> None:
    """Say why something of ours failed; the program goes on. What nobody expected is a bug, and keeps its traceback."""
    if isinstance(error, PerfdoctorError):
        say.failure(f"{what}: {error.what}", error.do)
    elif isinstance(error, OSError) and not is_a_bug(error):
        where = f": {error.filename}" if error.filename else ""
        say.note(f"{what}: {clean_block(f'{error.strerror or error}{where}')}")
    else:
        traceback.print_exception(error)
        say.note(f"{what}. This is a bug of perfdoctor; the program is not affected.")

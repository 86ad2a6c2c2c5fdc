"""Where does a comparison go: to standard output in one format, into a JSON file, onto a page?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from msgspec import Struct

from perfdoctor.cli import report_files
from perfdoctor.cli.analyze import OutputFormat, print_page_path
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

#: What to do where a file cannot be written.
CHOOSE = "Choose another file."


class Shown(Struct, frozen=True):
    """What was asked for of a comparison. `html`: None for the default page, in this folder."""

    output: OutputFormat
    json_file: Path | None
    html: Path | None
    no_html: bool
    show_all: bool
    quiet: bool

    def write(
        self, local: Sequence[Path], default_page: str, *,
        verdict: Callable[[], str], as_json: Callable[[], str], as_markdown: Callable[[], str],
        as_text: Callable[[Console], None], as_html: Callable[[], str], as_brief: Callable[[], str],
    ) -> None:  # fmt: skip
        """Print and write the comparison. `local`: recordings on this machine, which are never overwritten."""
        if self.json_file:
            report_files.written("--json", self.json_file, as_json, CHOOSE)
        if self.output is OutputFormat.JSON:
            typer.echo(as_json(), nl=False)
        elif self.quiet:
            typer.echo(verdict())
        elif self.output is OutputFormat.MARKDOWN:
            typer.echo(as_markdown(), nl=False)
        elif self.output is OutputFormat.BRIEF:
            typer.echo(as_brief(), nl=False)
        else:
            from perfdoctor.report.terminal_text import Terminal

            as_text(Terminal())
        if not self.no_html:
            self._write_page(report_files.free_html(self.html or Path(default_page), local), as_html)

    def _write_page(self, page: Path, as_html: Callable[[], str]) -> None:
        """Write the page. A line says why if it cannot be written, and nobody asked for it; else PerfdoctorError."""
        try:
            report_files.written("--html", page, as_html, "Choose another file, or --no-html.")
        except PerfdoctorError as error:
            if self.html is not None or not isinstance(error.__cause__, OSError):
                raise
            typer.echo(
                f"perfdoctor: no report written: {page}: {error.__cause__.strerror or error.__cause__}", err=True
            )
        else:
            print_page_path(page, on_error=self.output is not OutputFormat.TEXT)

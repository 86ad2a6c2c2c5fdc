"""Where does a comparison go: to standard output in one format, into a JSON file, onto a page?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfdoctor.cli import report_files, say
from perfdoctor.cli.analyze import print_page_path

#: What to do where a file cannot be written.
CHOOSE = "Choose another file."


class ComparisonFormat(str, Enum):
    """What is printed of a comparison to standard output."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    BRIEF = "brief"


class Shown(Struct, frozen=True):
    """What was asked for of a comparison. `html`: None for the default page, in this folder."""

    output: ComparisonFormat
    json_file: Path | None
    html: Path | None
    no_html: bool
    show_all: bool
    quiet: bool

    def write(
        self, found: Any, reports: str, as_json: Callable[[], str], default_page: str, local: Sequence[Path],
        *of_page: Any,
    ) -> None:  # fmt: skip
        """Print what was `found`, and write its files and its page, by the modules of the package `reports`.

        `local`: recordings on this machine, which are never overwritten. `of_page`: what the page shows besides.
        """

        def module(form: str) -> Any:
            return import_module(f"{reports}.{form}")

        if self.json_file:
            report_files.written("--json", self.json_file, as_json, CHOOSE)
        if self.output is ComparisonFormat.JSON:
            say.document(as_json())
        elif self.quiet:
            say.line(module("words").verdict(found))
        elif self.output is not ComparisonFormat.TEXT:
            markdown = module("markdown")
            render = markdown.brief if self.output is ComparisonFormat.BRIEF else markdown.render
            say.document(render(found))
        else:
            from perfdoctor.report.terminal_text import Terminal

            module("terminal").render(found, Terminal(), show_all=self.show_all)
        if not self.no_html:
            page = report_files.free_html(self.html or Path(default_page), local)
            is_written = report_files.page_written(
                page, lambda: module("html").render(found, *of_page), is_asked=self.html is not None,
                do="Choose another file, or --no-html.",
            )  # fmt: skip
            if is_written:
                print_page_path(page, on_error=self.output is not ComparisonFormat.TEXT)

"""Which words in the terminal are links, and to where?

Only to the HTML report, to references of rules, and to source files under the working directory: an address from a
trace is never linked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.report.words.code_lines import SOURCE_LINE
from perfdoctor.report.words.foreign_text import is_web_address

if TYPE_CHECKING:
    from rich.console import Console

#: Terminals that would print a link's address as text.
_WITHOUT_LINKS = {"dumb", "linux"}


def can_link(console: Console) -> bool:
    """Is it a real terminal with colour? A pipe, a file or NO_COLOR gets no links, even if colour is forced."""
    isatty = getattr(console.file, "isatty", None)
    is_plain = console.color_system is None or console.no_color or console.legacy_windows
    return not is_plain and isatty is not None and isatty() and os.environ.get("TERM") not in _WITHOUT_LINKS


class TerminalLinks:
    """Link styles for this console; "" where it has no links."""

    def __init__(self, console: Console, page: Path | None = None) -> None:
        self._is_on = can_link(console)
        self._page = page.absolute().as_uri() if page is not None and page.is_file() else ""

    def to_page(self) -> str:
        return self._style(self._page)

    def to_finding(self, number: int) -> str:
        """Link to the finding with this number in the HTML report."""
        return self._style(f"{self._page}#finding-{number}" if self._page else "")

    def to_web(self, address: str) -> str:
        """Link to a reference of a rule."""
        return self._style(address if is_web_address(address) else "")

    def to_source(self, text: str) -> Iterator[tuple[int, int, str]]:
        """(start, end, style) of each source line in the text whose file is under the working directory."""
        for found in SOURCE_LINE.finditer(text) if self._is_on else ():
            if file := _own_file(found["file"]):
                yield found.start(), found.end(), self._style(f"{file.as_uri()}#{found['torch'] or found['python']}")

    def _style(self, address: str) -> str:
        return f"link {address}" if self._is_on and address else ""


def _own_file(name: str) -> Path | None:
    """An existing file under the working directory. Other paths are not accessed: they may be on a remote disk."""
    here = os.path.normpath(Path.cwd())
    path = Path(os.path.normpath(os.path.join(here, name)))  # noqa: PTH118 (nothing may be accessed before the check)
    return path if path.is_relative_to(here) and path.is_file() else None

"""A part of a page that a benchmark writes, between two marks of its own; all else stays as it is."""

from __future__ import annotations

from collections.abc import Sequence


def with_section(page: str, part: Sequence[str], begin: str, end: str) -> str:
    """The page with this part between its marks, at the end where it has none yet."""
    text = "\n".join([begin, "", *part, "", end])
    if begin not in page:
        return f"{page.rstrip()}\n\n{text}\n"
    return page[: page.index(begin)] + text + page[page.index(end) + len(end) :]

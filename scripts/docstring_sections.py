"""How is a docstring drawn as Markdown? Its prose and examples, and its sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent

_DOCTEST = re.compile(r"(?:^>>>.*\n(?:^(?!>>>|$).*\n?)*)+", re.MULTILINE)
#: A heading, and the indented lines below it.
_SECTION = re.compile(r"^(Args|Returns|Raises|Example):\n((?:(?: {4}.*)?(?:\n|\Z))*)", re.MULTILINE)
#: A name and what it means, which goes on in lines that are indented further.
_ENTRY = re.compile(r"^(\*{0,2}\w+): (.*(?:\n {4}.*)*)", re.MULTILINE)


def marked(text: str) -> str:
    """The docstring as Markdown: examples become blocks of code, single line breaks stay in the paragraph."""
    parts, end = [], 0
    for found in _SECTION.finditer(text):
        parts += [_prose(text[end : found.start()]), *_section(found[1], dedent(found[2]).strip())]
        end = found.end()
    return "\n".join(f"{part}\n" for part in (*parts, _prose(text[end:])) if part)


def _prose(text: str) -> str:
    text = text.strip()
    return _DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", f"{text}\n").rstrip() if text else ""


def _section(title: str, body: str) -> Iterator[str]:
    if title == "Args":
        yield "\n".join(f"* `{name}`: {_line(meaning)}" for name, meaning in _ENTRY.findall(body))
    elif title == "Returns":
        yield f"**Returns:** {_line(body)}"
    elif title == "Raises":
        yield from (f"**Raises `{name}`:** {_line(when)}" for name, when in _ENTRY.findall(body))
    else:
        yield f"```{'pycon' if body.startswith('>>>') else 'python'}\n{body}\n```"


def _line(text: str) -> str:
    return " ".join(text.split())

"""How is text from a trace made safe to print? It may hold markup, escape sequences, names of 5,000 characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import commonprefix

from perfdoctor.patterns import regex

NAME_LIMIT = 96
PROSE_LIMIT = 400
#: Sentences of ours, with what a file holds in them: what is cut out of their middle is missed.
SENTENCES_LIMIT = 2_000

_ESCAPES = regex(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?")
# Besides C0 and C1: characters that reorder or hide text (bidirectional marks, zero-width, line separators).
_UNSEEN = regex("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
#: Formulas (OWASP, CSV injection), and the commands of GitHub's and Azure's logs.
_COMMANDS = ("=", "+", "-", "@", "::", "##[", "##vso[")
_SURROGATES = regex("[\ud800-\udfff]")
#: What the runners of GitHub and Azure obey at the begin of a line, or anywhere in it: a blank takes its meaning.
#: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
_RUNNER_COMMANDS = regex(
    r"((?:^|(?<=\s)):)(?=:(?:error|warning|notice|debug|(?:end)?group|add-(?:mask|matcher|path)|remove-matcher|stop-commands"
    r"|save-state|set-(?:output|env)|echo)\b)|(##)(?=\[|vso\[)"
)


def is_web_address(text: str) -> bool:
    """May a link lead there as it is? An address is never shortened: it would lead elsewhere."""
    return re.fullmatch(r"https?://[!-~]+", text) is not None


def clean_block(text: str) -> str:
    """The text with its line breaks and indentation, without escape sequences and control characters."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _SURROGATES.sub("\ufffd", _RUNNER_COMMANDS.sub(r"\g<0> ", _UNSEEN.sub("", text)))


def clean(text: str, limit: int = PROSE_LIMIT) -> str:
    """One printable line of at most `limit` characters, no word longer than a name may be."""
    return shorten(" ".join(shorten(word, NAME_LIMIT) for word in clean_block(text).split()), limit)


def clean_note(text: str) -> str:
    """A note, or what a finding says, in one printable line."""
    return clean(text, SENTENCES_LIMIT)


def one_line(text: str) -> str:
    """The text in one line, as long as it is."""
    return " ".join(clean_block(text).splitlines())


def message(what: str, do: str) -> str:
    """The two lines of an error on a terminal: what happened, and what to do. Names of files may hold anything."""
    return f"perfdoctor: {one_line(what)}\n  → {one_line(do)}"


def csv_cell(value: object) -> object:
    """A cell of CSV: no formula for a spreadsheet, no command for a CI system that reads lines; numbers stay."""
    if not isinstance(value, str):
        return value
    text = clean_block(value)
    return f"'{text}" if text.lstrip().startswith(_COMMANDS) else text


def clean_name(text: str, limit: int = NAME_LIMIT) -> str:
    """A kernel's or file's name. Both ends are kept: C++ has the function at the front and the types at the end."""
    return shorten(" ".join(clean_block(text).split()).removeprefix("void "), limit)


def shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def names_apart(texts: Sequence[str], limit: int) -> list[str]:
    """Names as `clean_name` gives them; of those that would look alike, the part in which they differ is kept."""
    full = [clean_name(text, PROSE_LIMIT * 10) for text in texts]
    shown = [shorten(text, limit) for text in full]
    alike: dict[str, set[str]] = {}
    for text, short in zip(full, shown, strict=True):
        alike.setdefault(short, set()).add(text)
    return [
        _around(text, len(commonprefix([*alike[short]])), limit) if len(alike[short]) > 1 else short  # noqa: RUF071
        for text, short in zip(full, shown, strict=True)
    ]


def _around(text: str, at: int, limit: int) -> str:
    """The begin of the text, and what is around position `at`, in `limit` characters."""
    head = limit // 3
    room = limit - head - 2
    begin = max(min(at - room // 4, len(text) - room), head)
    end = begin + room
    return f"{text[:head]}{'…' if begin > head else ''}{text[begin:end]}{'…' if end < len(text) else ''}"

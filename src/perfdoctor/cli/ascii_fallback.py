"""What replaces a character that a terminal cannot show? `x` for ×, and so on, instead of question marks."""

from __future__ import annotations

import codecs
import sys

NAME = "perfdoctor-plain"
_PLAIN = {
    "×": "x", "·": "|", "–": "-", "−": "-", "→": "->", "…": "...", "µ": "u", "’": "'", "°": " deg ", "“": '"', "”": '"',
    "■": "#", "█": "#", "▓": "%", "▒": "+", "░": "-",
}  # fmt: skip


def replaced(error: UnicodeError) -> tuple[str, int]:
    """An error handler for encoders, for `codecs.register_error`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in lost), error.end


def set_up() -> None:
    """Let no text of ours raise an error, whatever the encoding of standard output and error."""
    codecs.register_error(NAME, replaced)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=NAME)

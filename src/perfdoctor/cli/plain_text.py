"""What stands for a character that a terminal cannot show? `x` for ×, and so on, instead of a question mark each."""

from __future__ import annotations

import codecs
import sys

NAME = "perfdoctor-plain"
_PLAIN = {
    "×": "x", "·": "|", "–": "-", "−": "-", "→": "->", "…": "...", "µ": "u", "’": "'", "°": " deg ", "“": '"', "”": '"',
    "■": "#", "█": "#", "▓": "%", "▒": "+", "░": "-",
}  # fmt: skip


def replaced(error: UnicodeError) -> tuple[str, int]:
    """An error handler for encoders, as `codecs.register_error` wants it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in lost), error.end


def set_up() -> None:
    """No text of ours ends in a traceback, whatever the encoding of the two streams."""
    codecs.register_error(NAME, replaced)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=NAME)

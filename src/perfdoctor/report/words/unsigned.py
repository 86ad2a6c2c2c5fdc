"""What in a text says who ran a program, and where? It is left out of what is pasted for others to read."""

from __future__ import annotations

from pathlib import Path

from perfdoctor.patterns import regex
from perfdoctor.system.masking import MASK, masked

#: Home folders as systems name them: `/home/ada`, `/Users/ada`, `/root`, `C:\Users\ada`, also below a mount.
_HOME = regex(
    r"(?<![/\w.-])(?:/[\w.-]+)*/(?:home|Users|u|users)/[^/\s:'\"]+|(?<![/\w.-])/root(?=[/\s:]|$)|[A-Za-z]:\\Users\\[^\\\s:'\"]+"
)
#: Any other place of one machine: its last two parts say which file it is.
_PLACE = regex(r"(?<![\w.~…)\]}>:*/-])(?:/[^/\s:'\"()]+){2,}(?=/[^/\s:'\"()]+/[^/\s:'\"()]+)")
#: `api_key="…"` within a line of code.
_ASSIGNED = regex(
    r"(?i)(\w*(?:key|token|secret|passw|credential|auth)\w*\s*[=:]\s*[rbfu]?)(\"[^\"]*\"|'[^']*'|\"[^\"]*$|'[^']*$)"
)


def unsigned(text: str) -> str:
    """The text without home folders, other absolute paths but for their last two parts, and what looks like a secret.

    Names of kernels stay as they are: `radix_sort_keys::policy` is no secret.
    """
    text = _ASSIGNED.sub(lambda found: found[1] + MASK, text)
    text = " ".join(word if "::" in word else masked(word) for word in text.split(" "))
    home = str(Path.home())
    text = text.replace(home, "~") if len(home) > 1 else text
    return _PLACE.sub("…", _HOME.sub("~", text))

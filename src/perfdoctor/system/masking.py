"""Which words of a command line look like secrets? The standard library alone: the agent loads this file as well."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MASK = "***"

_SECRET_NAME = r"[\w.-]*(?:key|token|secret|passw(?:or)?d|passphrase|credential|auth|cookie)[\w.-]*"  # noqa: S105
_SECRET_OPTION = re.compile(rf"^--?{_SECRET_NAME}$", re.IGNORECASE)
_ASSIGNED_SECRET = re.compile(rf"^((?:--?)?{_SECRET_NAME}[=:])(?=.)", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
#: Tokens with a known format: Hugging Face, OpenAI, GitHub, AWS, Slack, JSON web tokens, Weights & Biases.
_KNOWN_TOKEN = re.compile(
    r"\b(?:hf_\w{16,}|sk-[\w-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|AKIA[0-9A-Z]{12,}|xox[abpr]-[\w-]{10,}"
    r"|eyJ[\w-]{8,}\.[\w.-]+|[0-9a-f]{40})\b"
)


def masked_command(words: Sequence[str]) -> list[str]:
    """The command with values that look like secrets replaced by ***."""
    result: list[str] = []
    hide_next = False
    for word in words:
        result.append(MASK if hide_next and not word.startswith("-") else masked(word))
        hide_next = bool(_SECRET_OPTION.match(word))
    return result


def masked(word: str) -> str:
    assigned = _ASSIGNED_SECRET.match(word)
    if assigned:
        return assigned[1] + MASK
    return _KNOWN_TOKEN.sub(MASK, _IN_ADDRESS.sub(MASK, word))

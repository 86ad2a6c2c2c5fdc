"""Which words of a command line look like secrets? The standard library alone: the agent loads this file as well."""

from __future__ import annotations

import math
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MASK = "***"

#: Words in the names of options, variables and members that hold secrets.
_WORDS = (
    r"(?:key|token|secret|passw(?:or)?d|passwd|pass|pwd|passphrase|credential|auth|authorization|cookie|signature|sig)"
)
_SECRET_NAME = rf"[\w.-]{{0,64}}{_WORDS}s?(?:[_.-][\w.-]{{0,64}})?"
#: Plain words that end like one of these.
_HARMLESS = (
    r"(?!(?:[\w.-]{0,64}[_.-])?"
    r"(?:bypass|compass|monkey|(?:max|min|num|n)[_.-](?:[\w.-]{0,64}[_.-])?tokens?|tokens?[_.-](?:per|len)[\w.-]{0,64})\b)"
)
#: Sizes and places, which options like `--key-dim` and `-p` have as well: a run is repeated with them.
_PLAIN_VALUE = re.compile(r"[\"']?(?:-?[\d.]{1,6}|true|false|none|null)[\"']?$", re.IGNORECASE)
_PLACE = re.compile(r"[/.]")
_SECRET_OPTION = re.compile(rf"^(?:--?{_HARMLESS}{_SECRET_NAME}|-p)$", re.IGNORECASE)
_ASSIGNED_SECRET = re.compile(rf"^([-+]{{0,2}}{_HARMLESS}{_SECRET_NAME}[=:]\s{{0,8}})(?=.)", re.IGNORECASE)
#: In the middle of a word: parameters of an address, members of JSON, headers.
_INSIDE = re.compile(
    rf"([?&;,{{\s][\"']?{_HARMLESS}{_SECRET_NAME}[\"']?\s{{0,8}}[=:]\s{{0,8}}(?:bearer |basic )?[\"']?)"
    r"([^\s\"'&;,}]+)",
    re.IGNORECASE,
)
_HEADER = re.compile(r"\b((?:bearer|basic)\s+)[\w+/=.~-]{8,}", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
#: Tokens with a known format, as their issuers document it: Hugging Face, OpenAI and Anthropic, GitHub, AWS, Slack,
#: JSON web tokens, NVIDIA, Google, GitLab, Weights & Biases, Stripe, npm, PyPI, Groq, Replicate, Azure, private keys.
_KNOWN_TOKEN = re.compile(
    r"\b(?:hf_\w{16,}|sk-[\w-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|(?:AKIA|ASIA)[0-9A-Z]{12,}|xox[abeprs]-[\w-]{10,}"
    r"|eyJ[\w-]{8,}\.[\w.-]+|nvapi-[\w-]{16,}|AIza[\w-]{30,}|ya29\.[\w-]{16,}|gl(?:pat|rt|dt|ptt)-[\w-]{16,}|wandb_v1_\w{16,}"
    r"|[sr]k_(?:live|test)_\w{16,}|npm_\w{30,}|pypi-[\w-]{16,}|gsk_\w{16,}|r8_\w{30,}|dckr_pat_[\w-]{16,}|dapi[0-9a-f]{32}"
    r"|[0-9a-f]{40})(?![\w-])|-----BEGIN [A-Z ]*PRIVATE KEY-----.*",
    re.DOTALL,
)
#: Letters of both cases and digits, as random as only keys are: bits a character, of at least so many characters.
_RANDOM = re.compile(
    r"(?<![\w+/.])(?=[A-Za-z]{0,127}\d)(?=[A-Z\d]{0,127}[a-z])(?=[a-z\d]{0,127}[A-Z])[A-Za-z0-9]{32,128}={0,2}(?![\w+/.])"
)
_RANDOM_BITS = 4.2


def masked_command(words: Sequence[str]) -> list[str]:
    """The command with values that look like secrets replaced by ***."""
    result: list[str] = []
    before, hide_next = "", False
    for word in words:
        is_hidden = hide_next and not word.startswith("-") and not _PLAIN_VALUE.match(word)
        result.append(MASK if is_hidden and not (before == "-p" and _PLACE.search(word)) else masked(word))
        before, hide_next = word, bool(_SECRET_OPTION.match(word))
    return result


def masked(word: str) -> str:
    """The word with what looks like a secret replaced by ***; `?` stands for bytes that are no UTF-8. Best effort."""
    word = word.encode("utf-8", "replace").decode()
    assigned = _ASSIGNED_SECRET.match(word)
    if assigned:
        return word if _PLAIN_VALUE.match(word, assigned.end()) else assigned[1] + MASK
    for expression in (_INSIDE, _HEADER):
        word = expression.sub(rf"\g<1>{MASK}", word)
    word = _KNOWN_TOKEN.sub(MASK, _IN_ADDRESS.sub(MASK, word))
    return _RANDOM.sub(lambda found: MASK if _bits(found[0]) >= _RANDOM_BITS else found[0], word)


def _bits(text: str) -> float:
    """Shannon's entropy of the characters, in bits a character."""
    shares = [text.count(character) / len(text) for character in set(text)]
    return -sum(share * math.log2(share) for share in shares)

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
#: Sizes, which options like `--key-dim` and `-p` have as well: a run is repeated with them.
_PLAIN_VALUE = re.compile(r"[\"']?(?:-?[\d.]{1,6}|true|false|none|null)[\"']?$", re.IGNORECASE)
_SECRET_OPTION = re.compile(rf"^(?:--?{_HARMLESS}{_SECRET_NAME})$", re.IGNORECASE)
_ASSIGNED_SECRET = re.compile(rf"^([-+]{{0,2}}{_HARMLESS}{_SECRET_NAME}[=:]\s{{0,8}})(?=.)", re.IGNORECASE)
#: In the middle of a word: parameters of an address, members of JSON, headers.
_INSIDE = re.compile(
    rf"((?:^|[?&;,{{\s])[\"']?{_HARMLESS}{_SECRET_NAME}[\"']?\s{{0,8}}[=:](?!:)\s{{0,8}}(?:bearer |basic )?[\"']?)"
    r"([^\s\"'&;,}]+)",
    re.IGNORECASE,
)
_HEADER = re.compile(r"\b((?:bearer|basic)\s+)[\w+/=.~-]{8,}", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
#: The part of an address by which messages are sent into a channel of Slack, Discord or Teams.
_HOOK = re.compile(
    r"((?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks|webhook\.office\.com)/)\S+"
)
#: Tokens with a known format, as their issuers document it: Hugging Face, OpenAI and Anthropic, GitHub, AWS, Slack,
#: JSON web tokens, NVIDIA, Google, GitLab, Weights & Biases, Stripe, npm, PyPI, Groq, Replicate, Docker, Databricks,
#: SendGrid, Mailchimp, Twilio, DigitalOcean, HashiCorp, Grafana, Linear, Postman, New Relic, Square, Telegram,
#: Artifactory, Shopify, Pulumi, Sentry, Tailscale, Figma, Supabase, age, private keys.
_KNOWN_TOKEN = re.compile(
    r"\b(?:hf_\w{16,}|sk-[\w-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{12,}"
    r"|xox[abeprs]-[\w-]{10,}|xapp-[\w-]{10,}|eyJ[\w-]{8,}\.[\w.-]+|eyJ[\w+/-]{40,}={0,2}|nvapi-[\w-]{16,}|AIza[\w-]{30,}"
    r"|ya29\.[\w-]{16,}|GOCSPX-[\w-]{20,}|gl(?:pat|rt|dt|ptt)-[\w-]{16,}|wandb_v1_\w{16,}|[srp]k_(?:live|test)_\w{16,}"
    r"|npm_\w{30,}|pypi-[\w-]{16,}|gsk_\w{16,}|r8_\w{30,}|dckr_(?:pat|oat)_[\w-]{16,}|dapi[0-9a-f]{32}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|[0-9a-f]{32}-us\d{1,2}|(?:AC|SK)[0-9a-f]{32}|do[opr]_v1_[0-9a-f]{32,}|hv[bs]\.[\w-]{20,}"
    r"|gl(?:sa|c)_[\w+/=]{20,}|lin_api_\w{20,}|PMAK-[\w-]{24,}|NRAK-[0-9A-Z]{20,}|sq0(?:atp|csp|idp)-[\w-]{20,}"
    r"|\d{8,10}:AA[\w-]{30,}|AKCp\w{40,}|shp(?:at|ca|pa|ss)_[0-9a-f]{32}|pul-[0-9a-f]{40}|sntry[su]_[\w+/=-]{20,}"
    r"|tskey-[\w-]{16,}|fig[dou]_[\w-]{20,}|sbp_[0-9a-f]{40}|AGE-SECRET-KEY-1\w{40,}|[0-9a-f]{40})(?![\w-])"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*",
    re.DOTALL,
)
#: Letters of both cases and digits, or base64 with its end, as random as only keys are: bits a character, and how often
#: the kind of character changes. Words written together, `Float8AllToAllExpertMajor`, change less often.
_RANDOM = re.compile(
    r"(?<![\w+/.])(?=[A-Za-z]{0,127}\d)(?=[A-Z\d]{0,127}[a-z])(?=[a-z\d]{0,127}[A-Z])[A-Za-z0-9]{32,128}={0,2}(?![\w+/.])"
    r"|(?<![\w+/.=])[A-Za-z0-9+/]{38,128}={1,2}(?![\w+/.])"
)
_RANDOM_BITS, _RANDOM_CHANGES = 4.2, 0.45
#: A shorter one, where a password may be: 20 random characters have 4.1 bits each, `H100PCIe80GB` 3.3.
_PASSWORD = re.compile(r"(?=\D*\d)(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[\x21-\x7e]{8,128}$")
_PASSWORD_BITS = 3.5
#: `-p` is a password's option for these; to others it is a port, a partition or a folder.
_TAKE_PASSWORDS = frozenset(("sshpass", "mysql", "mysqldump", "login"))
_USER = re.compile(r"([^\s:/@]+:)(?!\d{1,5}$)[^\s/].*")
#: A text without any of these words, and without a long one, holds no secret that is known here.
_OF_SECRETS = (
    "key",
    "token",
    "secret",
    "pass",
    "pwd",
    "cred",
    "auth",
    "cookie",
    "sig",
    "bearer",
    "basic",
    "@",
    " -",
    "hook",
)
_LONG = re.compile(r"[\w+/=.:-]{16}")


def masked_command(words: Sequence[str]) -> list[str]:
    """The command with values that look like secrets replaced by ***."""
    takes_password = not _TAKE_PASSWORDS.isdisjoint(word.rpartition("/")[2] for word in words)
    result: list[str] = []
    before = ""
    for word in words:
        is_value = not word.startswith("-") and not _PLAIN_VALUE.match(word)
        is_secret = _SECRET_OPTION.match(before) or (before == "-p" and (takes_password or _is_password(word)))
        if is_value and is_secret:
            result.append(MASK)
        elif takes_password and word.startswith("-p") and len(word) > 2:
            result.append("-p" + MASK)
        elif before in ("-u", "--user") and (user := _USER.fullmatch(word)):
            result.append(user[1] + MASK)
        else:
            result.append(masked(word))
        before = word
    return result


def masked_text(text: str) -> str:
    """A text of words, as the name of a range, with what looks like a secret replaced by ***.

    Names of C++ stay: `radix_sort_keys::policy` is no secret.
    """
    if not may_hold_secret(text):
        return text
    if "::" not in text and "<" not in text:
        for expression, shown in ((_INSIDE, rf"\g<1>{MASK}"), (_HEADER, rf"\g<1>{MASK}"), (_KNOWN_TOKEN, MASK)):
            text = expression.sub(shown, text)
    words = text.split(" ")
    asked = ["" if "::" in word or "<" in word else word for word in words]
    return " ".join(shown if before else word for word, before, shown in zip(words, asked, masked_command(asked)))


def may_hold_secret(text: str) -> bool:
    lower = text.lower()
    return any(word in lower for word in _OF_SECRETS) or _LONG.search(text) is not None


def masked(word: str) -> str:
    """The word with what looks like a secret replaced by ***; `?` stands for bytes that are no UTF-8. Best effort."""
    word = word.encode("utf-8", "replace").decode()
    assigned = _ASSIGNED_SECRET.match(word)
    if assigned:
        return word if _PLAIN_VALUE.match(word, assigned.end()) else assigned[1] + MASK
    for expression in (_INSIDE, _HEADER, _HOOK):
        word = expression.sub(rf"\g<1>{MASK}", word)
    word = _KNOWN_TOKEN.sub(MASK, _IN_ADDRESS.sub(MASK, word))
    return _RANDOM.sub(lambda found: MASK if _is_random(found[0]) else found[0], word)


def _is_random(text: str) -> bool:
    return _bits(text) >= _RANDOM_BITS and _changes(text) >= _RANDOM_CHANGES


def _is_password(word: str) -> bool:
    return _PASSWORD.match(word) is not None and _bits(word) >= _PASSWORD_BITS and "/" not in word


def _changes(text: str) -> float:
    """How often the kind of character changes, of all places where it may: 0.62 where letters and digits are random."""
    kinds = [0 if each.isdecimal() else 1 if each.islower() else 2 if each.isupper() else 3 for each in text]
    return sum(one != other for one, other in zip(kinds, kinds[1:])) / max(len(text) - 1, 1)


def _bits(text: str) -> float:
    """Shannon's entropy of the characters, in bits a character."""
    shares = [text.count(character) / len(text) for character in set(text)]
    return -sum(share * math.log2(share) for share in shares)

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
#: As it is, and within strings of JSON.
_QUOTE = r"\\{0,3}[\"']"
#: Plain words that end like one of these, with what follows if that is none of them: `bypass-cache`.
_HARMLESS = (
    r"(?!(?:[\w.-]{0,64}[_.-])?"
    r"(?:bypass|compass|monkey|(?:max|min|num|n)[_.-](?:[\w.-]{0,64}[_.-])?tokens?|tokens?[_.-](?:per|len)[^\W_]{0,32})"
    rf"(?:[_.-](?!{_WORDS}s?(?![^\W_]))[^\W_]{{1,32}}){{0,6}}(?=(?:{_QUOTE})?\]?\s{{0,8}}[=:]|$))"
)
#: Sizes, which options like `--key-dim` and `-p` have as well: a run is repeated with them.
_PLAIN_VALUE = re.compile(r"[\"']?(?:-?[\d.]{1,6}|true|false|none|null)[\"']?$", re.IGNORECASE)
#: How many tokens a training reads: `--total-tokens 4_194_304`, `train.tokens=10B`.
_COUNT = re.compile(r"[\"']?\d[\d._]{0,24}(?:e\+?\d{1,3})?[kmbgt]?[\"']?$", re.IGNORECASE)
#: Members of samples, metrics and special tokens: `--image-key jpg`, `pad_token=<pad>`.
_NAME_OF_DATA = re.compile(
    r"(?:^|[\W_])(?:image|label|text|caption|video|audio|input|output|target|prompt|response|chosen|rejected|sort|monitor"
    r"|metric|cond|(?:first|cond)_stage|state_dict|pad|eos|bos|unk|sep|cls|mask|stop)[_-](?:key|token)s?(?:[_-]ids?)?$",
    re.IGNORECASE,
)
_VALUE_OF_DATA = re.compile(r"[\"']?(?![0-9a-f]{16,}[\"']?$)[\w./|<>\[\]{}()#,+-]{1,64}[\"']?$", re.IGNORECASE)
_SECRET_OPTION = re.compile(rf"^(?:--?{_HARMLESS}{_SECRET_NAME})$", re.IGNORECASE)
#: Members of a configuration whose value is the next word: `--opts DB.PASSWORD x`. `server.key` is a file.
_SECRET_MEMBER = re.compile(
    rf"{_HARMLESS}(?:(?-i:(?:[A-Z][A-Z0-9_]{{0,63}}\.){{1,8}}[A-Z0-9_]{{0,64}}{_WORDS.upper()})"
    r"|(?:[\w-]{1,64}\.){1,8}[\w-]{0,64}(?:passw(?:or)?d|passphrase|secret|(?:api|access|private)_?key))$",
    re.IGNORECASE,
)
_ASSIGNED_SECRET = re.compile(rf"^([-+]{{0,2}}{_HARMLESS}{_SECRET_NAME}[=:]\s{{0,8}})(?=.)", re.IGNORECASE)
#: A string of Python or JSON, and one that may have been cut off.
_STRING = r"(?:\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
_CUT_STRING = r"(?:\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?)"
#: In the middle of a word: parameters of an address, members of JSON, headers, arguments of functions.
_MEMBER = (
    rf"(?P<head>(?P<front>^|[?&;,{{\s#(\[\\\"'`|]|(?<!:)[=/@:+](?=[\w.-]{{1,196}}=))(?:{_QUOTE})?"
    rf"(?P<name>{_HARMLESS}{_SECRET_NAME})"
    rf"(?:(?:{_QUOTE})?\s{{0,8}}(?:={{1,3}}>?|:=?)|{_QUOTE}\]\s{{0,8}}={{1,3}})(?!:)\s{{0,8}})"
    rf"(?P<value>[\[(]\s{{0,8}}{_CUT_STRING}(?:\s{{0,8}},\s{{0,8}}{_CUT_STRING})*"
    r"|[bfru]{0,2}(?:\"(?:[^\"\\\n]|\\.)+|'(?:[^'\\\n]|\\.)+|(?P<quote>\\{1,3}[\"'])(?:(?!(?P=quote))(?:\\{2,8}.|.))+)"
    r"|(?:(?<=authorization:)|(?<=authorization: )|(?<=cookie:)|(?<=cookie: ))[^\"'\n]+"
    r"|(?:(?:bearer|basic|token) )?[^\s\"'&;,}]+)"
)
_INSIDE = re.compile(_MEMBER, re.IGNORECASE)
#: Behind others a name is rarely that of a secret: `f(key=g)`, `max_keys=64`.
_KNOWN_FRONTS = frozenset("?&;,{ \t\n")
_KEYS = frozenset(("key", "keys", "token", "tokens"))
_OPENED = re.compile(r"[bfruBFRU]{0,2}\\{0,3}[\"']|[\[(]\s*(?=[\"'])")
#: A word with a name of C++ in front of any value.
_OF_CPP = r"(?!\S*://)[^\s\"'=]*?(?:::|<)\S*"
_NAME_OF_CPP = re.compile(_OF_CPP)
_INSIDE_BUT_CPP = re.compile(rf"(?<!\S){_OF_CPP}|{_MEMBER}", re.IGNORECASE)
#: A command as lists are printed: `['--password', 'x']`. A string in front of a colon is a key.
_LISTED = re.compile(rf"(?<!\\){_STRING}(?:\s{{0,8}},\s{{0,8}}(?:{_STRING}|[\"'][^\"'\\\n]*\Z))+(?!\s{{0,8}}:)")
_ONE_LISTED = re.compile(r"\"((?:[^\"\\\n]|\\.)*)(?:\"|\Z)|'((?:[^'\\\n]|\\.)*)(?:'|\Z)")
#: The words of a text: what is in quotation marks is one.
_PIECE = re.compile(r"(?:[-+]{0,2}[\w.-]{1,64}=)?(?:\"(?:[^\"\\]|\\.)*\"|'[^']*')\S*|\S+", re.DOTALL)
_QUOTED = re.compile(r"[^\s\"']*([\"'])")
#: Programs that take a script as a word, and the option before it.
_SHELL = re.compile(r"(?:ba|z|da|k|fi)?sh$|su$|python[\d.]*$")
_SCRIPT = re.compile(r"-[A-Za-z]*c$")
_DEEPEST = 4
#: How shells write a quotation mark within such marks, and what stands for it meanwhile.
_IN_QUOTES = (("'\"'\"'", "\\\\\\'"), ("'\\''", "\\\\'"))
_HEADER = re.compile(r"\b((?:bearer|basic)\s+)[\w+/=.~-]{8,}", re.IGNORECASE)
#: Where there is a password, which may hold slashes and more of them, up to the last @: `host:80/x@y` has none.
_IN_ADDRESS = re.compile(r"(?<=://)(?:[^/@\s:]*:(?!\d{1,5}[/?#])(?:(?!://|[\"'](?:[,;:)}\]\s]|$))\S)+|[^/@\s]+)(?=@)")
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
_OF_USER = frozenset(("-u", "-U", "--user", "--proxy-user"))
_GLUED_USER = re.compile(r"(?:-[uU]|--(?:proxy-)?user=)(?=.)")
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
    "'-",
    '"-',
    "hook",
)
_LONG = re.compile(r"[\w+/=.:-]{16}")


def masked_command(words: Sequence[str]) -> list[str]:
    """The command with values that look like secrets replaced by ***."""
    return _masked_words(words, 0, but_cpp=False)


def masked_text(text: str) -> str:
    """A text of words, as the name of a range, with what looks like a secret replaced by ***.

    Names of C++ stay: `radix_sort_keys::policy` is no secret.
    """
    return _masked_sentence(text, 0, but_cpp=True) if may_hold_secret(text) else text


def may_hold_secret(text: str) -> bool:
    lower = text.lower()
    return any(word in lower for word in _OF_SECRETS) or _LONG.search(text) is not None


def masked(word: str) -> str:
    """The word with what looks like a secret replaced by ***; `?` stands for bytes that are no UTF-8. Best effort."""
    word = word.encode("utf-8", "replace").decode()
    for written, instead in _IN_QUOTES:
        if written in word:
            return masked(word.replace(written, instead)).replace(instead, written)
    assigned = _ASSIGNED_SECRET.match(word)
    if assigned:
        name, value = assigned[1].rstrip("=: "), word[assigned.end() :]
        return word if _PLAIN_VALUE.match(value) or _is_of_data(name, value) else assigned[1] + MASK
    word = _INSIDE.sub(_masked_member, _masked_lists(word, _DEEPEST, but_cpp=False))
    for expression in (_HEADER, _HOOK):
        word = expression.sub(rf"\g<1>{MASK}", word)
    word = _KNOWN_TOKEN.sub(MASK, _IN_ADDRESS.sub(MASK, word))
    return _RANDOM.sub(lambda found: MASK if _is_random(found[0]) else found[0], word)


def _masked_words(words: Sequence[str], depth: int, *, but_cpp: bool) -> list[str]:
    """The words without secrets. `depth`: in how many other words they stand, as those of a script do."""
    bare = [word.strip("\"'") for word in words]
    names = [word.rpartition("/")[2] for word in bare]
    takes_password = not _TAKE_PASSWORDS.isdisjoint(names)
    result: list[str] = []
    before, has_shell = "", False
    for word, plain, name in zip(words, bare, names):
        if word == "\\":  # the line goes on
            result.append(word)
            continue
        glued = _GLUED_USER.match(plain)
        user = _USER.fullmatch(plain, glued.end() if glued else 0) if glued or before in _OF_USER else None
        is_value = not plain.startswith("-") and not _PLAIN_VALUE.match(word)
        if is_value and _asks_for_secret(before, plain, takes_password=takes_password):
            result.append(MASK)
        elif but_cpp and _NAME_OF_CPP.match(word):
            result.append(word)
        elif takes_password and plain.startswith("-p") and len(plain) > 2:
            result.append("-p" + MASK)
        elif user:
            result.append(plain[: user.end(1)] + MASK)
        elif len(word.split(None, 1)) > 1 and depth < _DEEPEST:
            is_script = depth == 0 and has_shell and _SCRIPT.match(before) is not None
            is_whole = _ASSIGNED_SECRET.match(word) is not None and not is_script
            result.append(masked(word) if is_whole else _masked_quoted(word, depth, but_cpp=but_cpp))
        else:
            result.append(masked(word))
        before, has_shell = plain, has_shell or _SHELL.match(name) is not None
    return result


def _asks_for_secret(before: str, word: str, *, takes_password: bool) -> bool:
    """Is the value of this option, or of this member of a configuration, a secret?"""
    if before == "-p":
        return takes_password or _is_password(word)
    is_asked = _SECRET_OPTION.match(before) is not None or _SECRET_MEMBER.match(before) is not None
    return is_asked and not _is_of_data(before, word)


def _masked_quoted(word: str, depth: int, *, but_cpp: bool) -> str:
    """A word of several: a text, or one in quotation marks, which stay."""
    opened = _QUOTED.match(word)
    if opened is None or not _PIECE.fullmatch(word):
        return _masked_sentence(word, depth, but_cpp=but_cpp)
    closed = len(word) - 1 if word.endswith(opened[1]) and len(word) > opened.end() else len(word)
    return opened[0] + _masked_sentence(word[opened.end() : closed], depth, but_cpp=but_cpp) + word[closed:]


def _masked_sentence(text: str, depth: int, *, but_cpp: bool) -> str:
    """Words with blanks between them, which stay."""
    for written, instead in _IN_QUOTES:
        if written in text:
            return _masked_sentence(text.replace(written, instead), depth, but_cpp=but_cpp).replace(instead, written)
    text = _masked_lists(text.encode("utf-8", "replace").decode(), depth, but_cpp=but_cpp)
    if but_cpp:
        template = text.find("[with ")  # what follows in it are types: `[with Key = float]`
        text = _INSIDE_BUT_CPP.sub(lambda found: _masked_member(found, template), text)
    else:
        text = _INSIDE.sub(_masked_member, text)
    text = _KNOWN_TOKEN.sub(MASK, _HEADER.sub(rf"\g<1>{MASK}", text))
    found = list(_PIECE.finditer(text))
    shown = _masked_words([piece[0] for piece in found], depth + 1, but_cpp=but_cpp)
    ends = [0, *(piece.end() for piece in found)]
    between = [text[end : piece.start()] for end, piece in zip(ends, found)]
    return "".join(blank + word for blank, word in zip(between, shown)) + text[ends[-1] :]


def _masked_lists(text: str, depth: int, *, but_cpp: bool) -> str:
    """The text with the secrets of commands masked that are printed in it as lists."""

    def replaced(found: re.Match[str]) -> str:
        strings = list(_ONE_LISTED.finditer(found[0]))
        words = [each[1] if each[1] is not None else each[2] for each in strings]
        shown = iter(_masked_words(words, depth + 1, but_cpp=but_cpp))
        return _ONE_LISTED.sub(lambda each: f"{each[0][0]}{next(shown)}{each[0][0]}", found[0])

    return _LISTED.sub(replaced, text) if "," in text else text


def _masked_member(found: re.Match[str], template: int = -1) -> str:
    """A name with its value masked; `template`: from where on names are those of types."""
    if found["head"] is None:
        return found[0]
    head, value, name = found["head"], found["value"], found["name"].lower()
    opened = _OPENED.match(value)
    if value.rstrip(")]>") == MASK:
        return found[0]
    if opened is None:
        is_code = bool(found["front"]) and found["front"] not in _KNOWN_FRONTS
        is_plain = is_code and (name in ("key", "keys") or _PLAIN_VALUE.match(value.rstrip(")]>")) is not None)
        is_plain = is_plain or _is_of_data(name, value) or _is_of_data(name, value.rstrip(")]>"))
        return found[0] if is_plain or 0 <= template < found.start() else head + MASK
    if opened[0][0] in "[(":
        return found[0] if name in _KEYS else f'{head}{opened[0]}"{MASK}"'
    return found[0] if _is_of_data(name, value[opened.end() :]) else head + opened[0] + MASK


def _is_of_data(name: str, value: str) -> bool:
    """Does the value count tokens, or name what a sample or a vocabulary holds? Programs differ in it."""
    if name.lower().endswith("tokens") and _COUNT.match(value):
        return True
    if not (_NAME_OF_DATA.search(name) and _VALUE_OF_DATA.match(value)):
        return False
    bare = value.strip("\"'")
    return not _is_password(bare) and masked(bare) == bare


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

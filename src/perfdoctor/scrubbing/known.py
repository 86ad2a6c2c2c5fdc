"""Where in a text does a name stand that is known to be private, and where only a word that is written like it?

Kernels, functions and members are called by words that somebody's machine is called by as well: `sm90_gemm` on the
host `sm90`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from perfdoctor.patterns import regex

#: What is in front of and behind a word of a sentence, which no part of a path, a module or a name of C++ is.
_WORD = r"(?<![\w./\\-])(?<!::)", r"(?![\w/\\(<-]|\.\w|::)"
#: The same of a name with digits: no part of an identifier, but in front of a trace's file, `node17_4242.1700000000`.
_IDENTIFIER = r"(?<![A-Za-z0-9_])(?<!::)", r"(?![A-Za-z0-9]|_(?!\d+\.\d{6})|::)"
#: The same of a name that no identifier can hold: `gpu-17`.
_OTHER = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
_ANYWHERE = "", ""
#: Those first within which a longer name may stand: `node17-a` beside `node17`.
_ORDER = (_ANYWHERE, _OTHER, _IDENTIFIER, _WORD)
IN_FILE_NAME = _OTHER
#: No bound looks further than this.
LONGEST_BOUND = 64
#: A secret like this may be a word of any name as well: JUPYTER_TOKEN=pytorch.
_PLAIN_SECRET = regex(r"[A-Za-z]+|\d+")
_FEWEST_SEARCHED = 6


#: A domain behind a host, which names its company, but no ending of a file. Behind a word it needs a port as well:
#: `apex.optimizers`.
_ENDINGS = (
    "json|jsonl|log|csv|gz|txt|out|err|py|pt|pth|sqlite|db|html|md|sh|ya?ml|toml|pickle|pkl|bin|npy|zip|prom"
    "|nsys-rep|ncu-rep|qdrep|safetensors"
)
_DOMAIN = (
    rf"(?:\.[A-Za-z0-9-]{{1,63}}){{0,7}}\.(?!(?:{_ENDINGS})(?![A-Za-z0-9-]))[A-Za-z][A-Za-z0-9-]{{0,62}}"
    r"(?=[:\]/,;)>\"']|\.?(?:\s|$))"
)


class Known:
    """Expressions of what is known to be private."""

    def __init__(self, hosts: Iterable[str], users: Iterable[str], secrets: Iterable[str]) -> None:
        self.hosts = _each_of(hosts, _bounds_of_host, has_domain=True)
        self.users = any_of(users, *_WORD)
        self.secrets = _each_of(secrets, _bounds_of_secret)


def searched(hosts: Iterable[str], secrets: Iterable[str], homes: Iterable[str]) -> dict[bytes, re.Pattern[bytes]]:
    """What a copy must not hold, where it is too long to stand there by chance, and how it would stand there."""
    bounds = dict.fromkeys(homes, _ANYWHERE)
    bounds |= {each: _bounds_of_secret(each) for each in secrets}
    bounds |= {each: _bounds_of_host(each) for each in hosts}
    return {
        _bytes(name): regex(_bytes(before + re.escape(name) + behind + (r"(?!\"\s{0,8}:)" if name.isalpha() else "")))
        for name, (before, behind) in bounds.items()
        if len(name) >= _FEWEST_SEARCHED
    }


def any_of(texts: Iterable[str], before: str, behind: str) -> re.Pattern[str]:
    """An expression of any of these texts, the longest first; of none, one that matches nothing."""
    longest = sorted(texts, key=lambda each: (-len(each), each))
    return regex(f"{before}(?:{'|'.join(map(re.escape, longest))}){behind}" if longest else r"(?!)")


def _each_of(
    texts: Iterable[str], bounds: Callable[[str], tuple[str, str]], *, has_domain: bool = False
) -> re.Pattern[str]:
    """An expression of any of these texts, each within its bounds, or with a domain behind it."""
    bounded = [(text, bounds(text)) for text in texts]
    made = []
    for before, behind in _ORDER:
        domain = _DOMAIN + (r"(?=:\d)" if (before, behind) == _WORD else "")
        end = f"(?:{domain}|{behind})" if has_domain else behind
        made.append(any_of([text for text, its in bounded if its == (before, behind)], before, end))
    return regex("|".join(each.pattern for each in made))


def _bounds_of_host(name: str) -> tuple[str, str]:
    return _WORD if name.isalpha() else _IDENTIFIER if name.isidentifier() else _OTHER


def _bounds_of_secret(value: str) -> tuple[str, str]:
    return _WORD if _PLAIN_SECRET.fullmatch(value) else _ANYWHERE


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")

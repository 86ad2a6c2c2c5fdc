"""What may a fix need to be of use, and what are the words for it?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import shipped_table

#: `torch 2.4`: that version or a later one.
TORCH = "torch "
NO_VERSION = (0, 0)
_VERSION = regex(r"(\d+)\.(\d+)")


class Need(Struct, frozen=True):
    """`words`: what must be there; `unknown`: why that may not be known; `lacking`: how it is known not to be met."""

    words: str
    unknown: str
    lacking: str


#: By the names that documents use.
NEEDS: Mapping[str, Need] = {
    name: Need(**entry) for name, entry in shipped_table(Path(__file__).with_suffix(".toml")).items()
}


def version_of(text: str) -> tuple[int, int]:
    """Major and minor number of `torch 2.4` or `2.4.0a0+git1`; (0, 0) where it has none."""
    found = _VERSION.match(text.removeprefix(TORCH))
    return (int(found[1]), int(found[2])) if found else NO_VERSION


def is_need(name: str) -> bool:
    """May `needs` of a fix hold this?"""
    return name in NEEDS or (name.startswith(TORCH) and version_of(name) != NO_VERSION)


def in_words(need: str) -> str:
    """`torch 2.4`, or the words of a need with a name."""
    return NEEDS[need].words if need in NEEDS else need


def lacking(need: str) -> str:
    """`needs a GPU with TF32 (compute capability 8.0), and this GPU has none`"""
    return f"needs {in_words(need)}, and {NEEDS[need].lacking if need in NEEDS else 'this torch is older'}"


def wanted(needs: Iterable[str]) -> str:
    """`needs torch 2.0 and shapes that repeat from step to step`; "" of no need."""
    words = list(map(in_words, needs))
    return f"needs {' and '.join(words)}" if words else ""


def unknown(needs: Iterable[str]) -> str:
    """`needs torch 2.0; needs a GPU …: the recording does not say which GPU it was`; "" of no need."""
    by_reason: dict[str, list[str]] = {}
    for need in needs:
        by_reason.setdefault(NEEDS[need].unknown if need in NEEDS else "", []).append(need)
    parts = [wanted(needs) + (f": {reason}" if reason else "") for reason, needs in by_reason.items()]
    return "; ".join(parts)


def nothing_left(reasons: Iterable[str]) -> str:
    """What a finding says of which no fix is left. `reasons`: of each fix why it is left out."""
    return f"Nothing that is known to help is of use here. {'. '.join(reasons)}."

"""Which known name was meant by one that is not known? One search and one wording, for names of every kind."""

from __future__ import annotations

from collections.abc import Iterable

#: How many names are shown at most.
_SHOWN = 3
#: Of difflib's ratio, twice the letters in common over all letters of both. Below it, more letters differ than agree.
_LEAST = 0.5
#: A name that is so much less alike than the best one is not what was meant: behind `input-wait` (0.9), `peer-waits`
#: (0.6) of `input-wiat`, while `kernels` and `kernel_totals` of `kernel` stay together.
_BEHIND = 0.25


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names that are most alike, the most alike first; [] where none is."""
    import difflib  # noqa: PLC0415 only an error needs it

    names = list(known)
    wanted = name.lower()
    found = difflib.get_close_matches(wanted, names, n=_SHOWN, cutoff=_LEAST)
    alike = [difflib.SequenceMatcher(None, each, wanted).ratio() for each in found]
    return [each for each, ratio in zip(found, alike, strict=True) if ratio >= alike[0] - _BEHIND]


def near(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """What to do about a name that is not known: the nearest ones, else `otherwise`, else all of them."""
    names = list(known)
    if found := nearest(name, names):
        return f"Did you mean {', '.join(found)}?"
    return otherwise or f"There are: {', '.join(names)}."

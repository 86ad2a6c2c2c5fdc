"""How are the texts of plain data replaced: of dicts, lists and tuples, as a pickle of a memory snapshot holds them?"""

from __future__ import annotations

from typing import Any

from perfdoctor.errors import PerfdoctorError
from perfdoctor.scrubbing.databases import without_text
from perfdoctor.scrubbing.texts import Texts

_NUMBERS = frozenset((int, float, bool, type(None)))


def learn(data: object, texts: Texts) -> None:
    """Look at all texts, of each container once."""
    seen: set[int] = set()
    texts_seen: set[tuple[str, str]] = set()
    waiting: list[tuple[str, Any]] = [("", data)]
    while waiting:
        key, each = waiting.pop()
        if isinstance(each, str):
            if (each, key) not in texts_seen:
                texts_seen.add((each, key))
                texts.learn(each, key)
        elif isinstance(each, dict | list | tuple | set | frozenset) and id(each) not in seen:
            seen.add(id(each))
            waiting += _members(each, key)


def _members(container: Any, key: str) -> list[tuple[str, Any]]:
    """Keys and values that are no numbers: those are most of a snapshot."""
    if isinstance(container, dict):
        named = [(str(name), value) for name, value in container.items() if type(value) not in _NUMBERS]
        return [*named, *(("", name) for name in container)]
    return [] if _NUMBERS.issuperset(map(type, container)) else [(key, one) for one in container]


def cleaned(data: object, texts: Texts) -> object:
    """The same data with stand-ins. What is shared stays shared: the stacks of a snapshot are most of it.

    Raises PerfdoctorError where containers are nested too deeply.
    """
    try:
        return _Cleaned(texts).of(data)
    except RecursionError as error:
        raise PerfdoctorError("it is nested too deeply", do="A snapshot of memory has a depth of five.") from error


class _Cleaned:
    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._made: dict[int, object] = {}

    def of(self, data: Any, key: str = "") -> object:
        if type(data) in _NUMBERS:
            return data
        if isinstance(data, str):
            return self._texts.text(data, key)
        if isinstance(data, bytes | bytearray):
            return without_text(bytes(data), self._texts)
        if not isinstance(data, dict | list | tuple | set | frozenset):
            return data
        if (known := self._made.get(id(data))) is not None:
            return known
        if isinstance(data, dict):
            made: Any = {}
            self._made[id(data)] = made
            for name, value in data.items():
                shown = self._texts.text(name, is_key=True) if isinstance(name, str) else self.of(name)
                made[shown] = value if type(value) in _NUMBERS else self.of(value, str(name))
        elif _NUMBERS.issuperset(map(type, data)):
            return data
        elif isinstance(data, list):
            made = []
            self._made[id(data)] = made
            made.extend(self.of(one, key) for one in data)
        else:
            made = self._made[id(data)] = type(data)(self.of(one, key) for one in data)
        return made

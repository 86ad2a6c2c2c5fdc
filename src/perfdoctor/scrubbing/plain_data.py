"""How are the texts of plain data replaced: of dicts, lists and tuples, as a pickle of a memory snapshot holds them?"""

from __future__ import annotations

from typing import Any

from perfdoctor.errors import PerfdoctorError
from perfdoctor.scrubbing.databases import without_text
from perfdoctor.scrubbing.texts import Texts


def learn(data: object, texts: Texts) -> None:
    """Look at all texts, of each container once."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", data)]
    while waiting:
        key, each = waiting.pop()
        if isinstance(each, str):
            texts.learn(each, key)
        elif isinstance(each, dict | list | tuple | set | frozenset) and id(each) not in seen:
            seen.add(id(each))
            waiting += _members(each, key)


def _members(container: Any, key: str) -> list[tuple[str, Any]]:
    if isinstance(container, dict):
        return [*((str(name), value) for name, value in container.items()), *(("", name) for name in container)]
    return [(key, one) for one in container]


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
            made.update({self.of(name): self.of(value, str(name)) for name, value in data.items()})
        elif isinstance(data, list):
            made = []
            self._made[id(data)] = made
            made.extend(self.of(one, key) for one in data)
        else:
            made = self._made[id(data)] = type(data)(self.of(one, key) for one in data)
        return made

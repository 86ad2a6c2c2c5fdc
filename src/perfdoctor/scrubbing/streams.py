"""How is a text of any length cleaned? In pieces that end where no word, and no string of JSON, is cut in two.

JSON is not parsed: its strings are replaced where they stand, and every other byte stays. So a trace that breaks off,
or has members that nobody knows, is cleaned like any other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.readers.kineto.inflate import MAGIC, Inflated
from perfdoctor.scrubbing.texts import ENVIRONMENT, Texts, names_owner
from perfdoctor.system.run_folder import explains_recording

_PIECE_BYTES = 4 << 20
_KEPT_STRINGS = 1 << 20
#: So many different strings are replaced one after the other sooner than all are looked up.
_MOST_SEARCHES = 64
#: No profiler writes a line, or a string, of this length.
_LONGEST_WORD = 256 << 20
#: An environment is a few kilobytes long.
_LONGEST_OBJECT = 1 << 20
#: A string of JSON. Line breaks are in none: behind a damaged one the next line is right again.
_STRING = regex(rb'"([^"\\\n]*(?:\\.[^"\\\n]*)*)"')
#: Besides strings JSON has numbers and a few words.
_STRUCTURE = b" \t\r\n{}[]:,0123456789.+-eE"
_WORDS = frozenset(b"trufalsnINiyt")
_VARIABLES, _WORDS_OF = rb"environ(?:ment)?|env|env_?vars|environment_variables", rb"\w*command|\w*argv|cmd_?line|args"
#: An object of variables: none of their values is text that a reader needs, except of those that explain a recording.
_ENVIRONMENT = regex(rb'"(?:%s)"\s*:\s*\{([^{}]*)\}' % _VARIABLES, re.IGNORECASE)
#: A command in words: `["--password", "x"]`.
_COMMAND = regex(rb'"(?:%s)"\s*:\s*\[([^\[\]{}]*)\]' % _WORDS_OF, re.IGNORECASE)
#: How perfdoctor names the program's repository.
_PROJECT = regex(rb'("project"\s*:\s*\{)([^{}]*)\}')
#: One of these that has no end yet: a piece ends before it.
_OPEN = regex(rb'"(?:%s|%s|project)"\s*:\s*[\[{][^\[\]{}]*\Z' % (_VARIABLES, _WORDS_OF), re.IGNORECASE)
_PAIR = regex(rb'"((?:[^"\\\n]|\\.)*)"(\s*:\s*)("(?:[^"\\\n]|\\.)*"|[^,}\s]+)')


class Opened:
    """The bytes of a file, without compression."""

    def __init__(self, stream: BinaryIO) -> None:
        self.is_packed = stream.read(len(MAGIC)) == MAGIC
        stream.seek(0)
        self._stream = Inflated(stream) if self.is_packed else stream

    def pieces(self) -> Iterator[bytes]:
        buffer = memoryview(bytearray(_PIECE_BYTES))
        while size := self._stream.readinto(buffer):  # type: ignore[union-attr]
            yield bytes(buffer[:size])


def cleaned(path: Path, texts: Texts, *, is_json: bool) -> Iterator[bytes]:
    """Yield the file's bytes without compression, with stand-ins."""
    yield from _each(path, _Json(texts).cleaned if is_json else _Lines(texts).cleaned, is_json=is_json)


def learn(path: Path, texts: Texts, *, is_json: bool) -> None:
    """Look at all texts of a file."""
    for _ in _each(path, _Json(texts).learn if is_json else _Lines(texts).learn, is_json=is_json):
        pass


def is_packed(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _each(path: Path, of_piece: Callable[[bytes], bytes], *, is_json: bool) -> Iterator[bytes]:
    """What `of_piece` makes of each piece; a piece ends behind a line, or in JSON behind a member."""
    rest = b""
    with path.open("rb") as stream:
        for piece in Opened(stream).pieces():
            whole = rest + piece
            cut = _end_of_member(whole) if is_json else whole.rfind(b"\n") + 1
            rest = whole[cut:]
            if len(rest) > _LONGEST_WORD:
                raise PerfdoctorError(
                    f"{path.name} holds a text of more than {_LONGEST_WORD >> 20} MB", do="No profiler writes that."
                )
            if cut:
                yield of_piece(whole[:cut])
    if rest:
        yield of_piece(rest)


def _end_of_member(data: bytes) -> int:
    """Where the last whole value ends: behind a comma or a line that stands in no string. 0 where there is none."""
    for end in (b"},", b"\n", b'",'):
        at = data.rfind(end)
        if at > 0 and not _is_in_string(data, at + len(end)):
            opened = _OPEN.search(data, max(at - _LONGEST_OBJECT, 0), at + len(end))
            return opened.start() if opened else at + len(end)
    return 0


def _is_in_string(data: bytes, at: int) -> bool:
    line = data[data.rfind(b"\n", 0, at) + 1 : at]
    return line.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"') % 2 == 1


class _Lines:
    """Text that is no JSON."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def learn(self, piece: bytes) -> bytes:
        self._texts.learn(piece.decode("utf-8", "surrogateescape"))
        return b""

    def cleaned(self, piece: bytes) -> bytes:
        lines = piece.decode("utf-8", "surrogateescape").split("\n")
        return "\n".join(map(self._texts.text, lines)).encode("utf-8", "surrogateescape")


class _Json(_Lines):
    """Text whose strings are those of JSON. A piece in which words stand outside of strings is taken for lines."""

    def __init__(self, texts: Texts) -> None:
        super().__init__(texts)
        self._seen: set[bytes] = set()

    def learn(self, piece: bytes) -> bytes:
        for block in _ENVIRONMENT.findall(piece):
            pairs = ((_decoded(name), _decoded(value.strip(b'"'))) for name, _, value in _PAIR.findall(block))
            self._texts.learn("".join(f"{name}={value}\0" for name, value in pairs))
        for block in _COMMAND.findall(piece):
            self._texts.learn_command([_decoded(raw) for raw in _STRING.findall(block)])
        strings = _strings(piece)
        if strings is None:
            return super().learn(piece)
        new = strings - self._seen
        for raw in sorted(new):
            self._texts.learn(_decoded(raw))
        for found in _of_telling_keys(strings, piece):
            self._texts.learn(_decoded(found[2]), _decoded(found[1]))
        self._seen = new if len(self._seen) > _KEPT_STRINGS else self._seen | new
        return b""

    def cleaned(self, piece: bytes) -> bytes:
        piece = _PROJECT.sub(self._project, _ENVIRONMENT.sub(self._environment, piece))
        strings = _strings(piece)
        if strings is None:
            return super().cleaned(piece)
        for found in [*_of_telling_keys(strings, piece)][::-1]:
            start, end = found.span(2)
            piece = piece[:start] + self._replaced(found[2], _decoded(found[1])) + piece[end:]
        shown = {raw: new for raw in sorted(strings) if (new := self._replaced(raw)) != raw}
        if len(shown) > _MOST_SEARCHES:
            return _STRING.sub(lambda found: b'"%s"' % shown.get(found[1], found[1]), piece)
        for raw, new in shown.items():
            piece = piece.replace(b'"%s"' % raw, b'"%s"' % new)
        return piece

    def _replaced(self, raw: bytes, key: str = "") -> bytes:
        text = _decoded(raw)
        shown = self._texts.text(text, key)
        return raw if shown == text else json.dumps(shown, ensure_ascii=False).encode("utf-8", "surrogateescape")[1:-1]

    def _environment(self, found: re.Match[bytes]) -> bytes:
        """The object with the variables that explain a recording, and no others."""
        kept = []
        for name, colon, value in _PAIR.findall(found[1]):
            if explains_recording(_decoded(name)):
                kept.append(b'"%s"%s%s' % (name, colon, value))
            else:
                self._texts.stand_ins.removed(ENVIRONMENT, _decoded(name))
        start, end = (at - found.start() for at in found.span(1))
        return found[0][:start] + b", ".join(kept) + found[0][end:]

    def _project(self, found: re.Match[bytes]) -> bytes:
        """The object with a stand-in for the name and the id of the repository."""

        def member(pair: re.Match[bytes]) -> bytes:
            if pair[1] not in (b"name", b"id") or not pair[3].strip(b'"'):
                return pair[0]
            self._texts.stand_ins.removed("paths", _decoded(pair[3]))
            return b'"%s"%s"project-1"' % pair.group(1, 2)

        return found[1] + _PAIR.sub(member, found[2]) + b"}"


def _strings(piece: bytes) -> set[bytes] | None:
    """The different strings of a piece, as they are written; None where it is no JSON."""
    if b'\\"' in piece:
        strings, structure = set(_STRING.findall(piece)), _STRING.sub(b"", piece)
    else:
        parts = piece.split(b'"')
        strings, structure = set(parts[1::2]), b"".join(parts[::2])
    is_json = _WORDS.issuperset(structure.translate(None, _STRUCTURE)) and not any(b"\n" in each for each in strings)
    return strings if is_json else None


def _of_telling_keys(strings: set[bytes], piece: bytes) -> Iterator[re.Match[bytes]]:
    """The members of the piece whose keys say that their values are names or secrets."""
    keys = [re.escape(raw) for raw in sorted(strings) if _is_telling(raw)]
    if keys:
        yield from re.finditer(rb'"(%s)"\s*:\s*"([^"\\\n]*(?:\\.[^"\\\n]*)*)"' % b"|".join(keys), piece)


@lru_cache(1 << 16)
def _is_telling(raw: bytes) -> bool:
    return names_owner(_decoded(raw))


def _decoded(raw: bytes) -> str:
    text = raw.decode("utf-8", "surrogateescape")
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text

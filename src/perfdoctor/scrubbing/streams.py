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
from typing import Any, BinaryIO, TypeVar

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.readers.kineto.inflate import MAGIC, Inflated
from perfdoctor.scrubbing.texts import ENVIRONMENT, Texts, holds_secret, names_owner
from perfdoctor.system.run_folder import explains_recording

_Kind = TypeVar("_Kind", dict[str, Any], list[Any])

_PIECE_BYTES = 4 << 20
_KEPT_STRINGS = 1 << 20
#: No profiler writes a line, or a string, of this length.
_LONGEST_WORD = 256 << 20
#: An environment is a few kilobytes long.
_LONGEST_OBJECT = 1 << 20
#: A private key is at most this long.
_LONGEST_KEY = 20_000
#: What stands for an escaped backslash and an escaped quotation mark while strings are sought: bytes that JSON lacks.
_ESCAPED = ((rb"\\", b"\0\1"), (rb"\"", b"\0\2"))
#: Besides strings JSON has numbers and a few words.
_STRUCTURE = b" \t\r\n{}[]:,0123456789.+-eE"
_WORDS = frozenset(b"trufalsnINiyt")
#: What is between strings of one list: numbers, and words.
_IN_LIST = frozenset(b" \t\r\n,0123456789.+-eEtrufalsn")
_VARIABLES, _WORDS_OF = rb"environ(?:ment)?|env|env_?vars|environment_variables", rb"\w*command|\w*argv|cmd_?line|args"
#: Strings of JSON, and what is between them but for these brackets. JSON has no backslash there: without it, of two
#: places at which one may begin, the second ends at once if the first goes on.
_WITHOUT = rb'[^"\\%s]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"\\%s]*)*'
_MEMBERS, _ITEMS = _WITHOUT % ((rb"{}",) * 2), _WITHOUT % ((rb"\[\]{}",) * 2)
#: An object of variables: none of their values is text that a reader needs, except of those that explain a recording.
_ENVIRONMENT = regex(rb'"(?:%s)"\s*:\s*\{(%s)\}' % (_VARIABLES, _MEMBERS), re.IGNORECASE)
#: A command in words: `["--password", "x"]`.
_COMMAND = regex(rb'"(?:%s)"\s*:\s*\[(%s)\]' % (_WORDS_OF, _ITEMS), re.IGNORECASE)
#: How perfdoctor names the program's repository.
_PROJECT = regex(rb'"project"\s*:\s*\{(%s)\}' % _MEMBERS)
#: How perfdoctor names what of the repository was checked out.
_CHECKOUT = regex(rb'"checkout"\s*:\s*\{(%s)\}' % _MEMBERS)
_SECRETS = rb"[\w-]{0,32}(?:secret|passw|passphrase|credential|key|token)[\w-]{0,32}"
#: One of these, or any list of strings, that has no end yet: a piece ends before it.
_OPEN = regex(
    rb'"(?:(?:%s|%s|%s|project|checkout)"\s*:\s*\{%s|[^"\\]{1,128}"\s*:\s*\[%s)\Z'
    % (_VARIABLES, _WORDS_OF, _SECRETS, _MEMBERS, _ITEMS),
    re.IGNORECASE,
)


class Opened:
    """The bytes of a file, without compression."""

    def __init__(self, stream: BinaryIO) -> None:
        self.is_packed = stream.read(len(MAGIC)) == MAGIC
        stream.seek(0)
        self._stream = Inflated(stream) if self.is_packed else stream

    @property
    def is_whole(self) -> bool:
        """False once the compression is known to be damaged or cut off."""
        return not isinstance(self._stream, Inflated) or self._stream.is_whole

    def pieces(self) -> Iterator[bytes]:
        buffer = memoryview(bytearray(_PIECE_BYTES))
        while size := self._stream.readinto(buffer):  # type: ignore[union-attr]
            yield bytes(buffer[:size])


def cleaned(path: Path, texts: Texts, *, is_json: bool) -> Iterator[bytes]:
    """Yield the file's bytes without compression, with stand-ins."""
    lines = (_Json if is_json else _Lines)(texts)
    with path.open("rb") as stream:
        yield from _each(Opened(stream), path.name, lines.cleaned, is_json=is_json)


def learn(path: Path, texts: Texts, *, is_json: bool) -> bool:
    """Look at all texts of a file. Is it whole: does its compression end, and in JSON each bracket?"""
    lines = (_Json if is_json else _Lines)(texts)
    with path.open("rb") as stream:
        opened = Opened(stream)
        for _ in _each(opened, path.name, lines.learn, is_json=is_json):
            pass
    return opened.is_whole and lines.is_whole()


def is_packed(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _each(opened: Opened, name: str, of_piece: Callable[[bytes], bytes], *, is_json: bool) -> Iterator[bytes]:
    """What `of_piece` makes of each piece; a piece ends behind a line, or in JSON behind a member."""
    rest = b""
    for piece in opened.pieces():
        whole = rest + piece
        cut = _end_of_member(whole) if is_json else _end_of_line(whole)
        rest = whole[cut:]
        if len(rest) > _LONGEST_WORD:
            raise PerfdoctorError(
                f"{name} holds a text of more than {_LONGEST_WORD >> 20} MB", do="No profiler writes that."
            )
        if cut:
            yield of_piece(whole[:cut])
    if rest:
        yield of_piece(rest)


def _end_of_line(data: bytes) -> int:
    """Where the last whole line ends, or in front of it the last one before a private key that has no end yet."""
    end = data.rfind(b"\n") + 1
    key = data.rfind(b"-----BEGIN ", max(end - _LONGEST_KEY, 0), end)
    return data.rfind(b"\n", 0, key) + 1 if key >= 0 and data.find(b"-----END ", key, end) < 0 else end


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

    def is_whole(self) -> bool:
        """Is nothing missing behind what was learnt? Text without a form does not say."""
        return True

    def learn(self, piece: bytes) -> bytes:
        self._texts.learn("\n" + piece.decode("utf-8", "surrogateescape"))  # a piece begins with a line
        return b""

    def cleaned(self, piece: bytes) -> bytes:
        lines = self._texts.without_private_keys(piece.decode("utf-8", "surrogateescape")).split("\n")
        return "\n".join(map(self._texts.text, lines)).encode("utf-8", "surrogateescape")


class _Json(_Lines):
    """Text whose strings are those of JSON. A piece in which words stand outside of strings is taken for lines."""

    def __init__(self, texts: Texts) -> None:
        super().__init__(texts)
        self._seen: set[bytes] = set()
        self._open = 0
        self._is_json = True

    def is_whole(self) -> bool:
        return self._is_json and self._open == 0

    def learn(self, piece: bytes) -> bytes:
        for block in _ENVIRONMENT.findall(piece):
            variables = _plain(b"{%s}" % block, dict)
            self._texts.learn("".join(f"{name}={value}\0" for name, value in variables.items()))
        for block in _COMMAND.findall(piece):
            self._texts.learn_command([str(word) for word in _plain(b"[%s]" % block, list)])
        parts = _parts(piece)
        if parts is None:
            self._is_json = False
            return super().learn(piece)
        self._open += _opened(b"".join(parts[::2]))
        strings = set(parts[1::2])
        for raw in sorted(strings - self._seen):
            self._texts.learn(_decoded(raw))
        for key, at in _of_telling_keys(parts, strings):
            self._texts.learn(_decoded(parts[at]), key)
        self._seen = strings if len(self._seen) > _KEPT_STRINGS else self._seen | strings
        return b""

    def cleaned(self, piece: bytes) -> bytes:
        piece = _PROJECT.sub(self._project, _ENVIRONMENT.sub(self._environment, piece))
        piece = _CHECKOUT.sub(self._checkout, piece)
        parts = _parts(piece)
        if parts is None:
            return super().cleaned(piece)
        strings = set(parts[1::2])
        for key, at in _of_telling_keys(parts, strings):
            parts[at] = self._replaced(parts[at], key)
        shown = {raw: new for raw in sorted(strings) if (new := self._replaced(raw)) != raw}
        keys = {raw: name for raw, new in shown.items() if (name := self._replaced(raw, is_key=True)) != new}
        parts[1::2] = [
            keys[raw] if raw in keys and behind.lstrip().startswith(b":") else shown.get(raw, raw)
            for raw, behind in zip(parts[1::2], parts[2::2], strict=True)
        ]
        return _restored(b'"'.join(parts))

    def _replaced(self, raw: bytes, key: str = "", *, is_key: bool = False) -> bytes:
        text = _decoded(raw)
        shown = self._texts.text(text, key, is_key=is_key)
        return raw if shown == text else _encoded(shown)

    def _environment(self, found: re.Match[bytes]) -> bytes:
        """The object with the variables that explain a recording, and no others."""
        variables = _plain(b"{%s}" % found[1], dict)
        for name in variables:
            if not explains_recording(name):
                self._texts.stand_ins.removed(ENVIRONMENT, name)
        return _with(found, {name: value for name, value in variables.items() if explains_recording(name)})

    def _project(self, found: re.Match[bytes]) -> bytes:
        """The object with a stand-in for the name of the repository, and without its id.

        Two copies have the same stand-ins, and may be of two projects: without an id they are compared by their work.
        """
        project = _plain(b"{%s}" % found[1], dict)
        if project.get("name"):
            project["name"] = self._texts.stand_ins.of("project", str(project["name"]))
        if project.get("id"):
            self._texts.stand_ins.removed("paths", str(project["id"]))
            project["id"] = ""
        return _with(found, project)

    def _checkout(self, found: re.Match[bytes]) -> bytes:
        """The object without commit and branch: by these whoever has the repository knows it."""
        checkout = _plain(b"{%s}" % found[1], dict)
        for name in ("commit", "branch"):
            if checkout.get(name):
                self._texts.stand_ins.removed("paths", str(checkout[name]))
                checkout[name] = ""
        return _with(found, checkout)


def _parts(piece: bytes) -> list[bytes] | None:
    """What stands outside of strings and inside of them, in turns, with `_ESCAPED`; None where the piece is no JSON."""
    if b"\0" in piece:
        return None
    for written, instead in _ESCAPED if b"\\" in piece else ():
        piece = piece.replace(written, instead)
    parts = piece.split(b'"')
    is_json = len(parts) % 2 and _WORDS.issuperset(b"".join(parts[::2]).translate(None, _STRUCTURE))
    return parts if is_json and not any(b"\n" in each for each in set(parts[1::2])) else None


def _opened(structure: bytes) -> int:
    """How many more brackets are opened than closed."""
    return sum(structure.count(each) for each in (b"{", b"[")) - sum(structure.count(each) for each in (b"}", b"]"))


def _restored(piece: bytes) -> bytes:
    for written, instead in _ESCAPED if b"\0" in piece else ():
        piece = piece.replace(instead, written)
    return piece


def _of_telling_keys(parts: list[bytes], strings: set[bytes]) -> Iterator[tuple[str, int]]:
    """Keys that say that their values are names or secrets, and in which part of the piece each value is."""
    keys = {raw for raw in strings if _is_telling(raw)}
    end = 0
    for at in range(1, len(parts) - 2, 2) if keys else ():
        if parts[at] not in keys or at < end:
            continue
        key = _decoded(parts[at])
        yield from ((key, value) for value in _values(parts, at))
        if holds_secret(key) and (end := _end_of_object(parts, at)) > at:  # all that a secret's object holds
            inside = range(at + 2, end + 1, 2)
            yield from ((key, value) for value in inside if not parts[value + 1].lstrip().startswith(b":"))


def _values(parts: list[bytes], key: int) -> Iterator[int]:
    """In which parts the strings are that a key has as its value, or in its list."""
    between = parts[key + 1].strip()
    is_list = between.startswith(b":") and b"[" in between and _IN_LIST.issuperset(between[1:].replace(b"[", b""))
    if is_list or between == b":":
        yield key + 2
    for at in range(key + 3, len(parts) - 1, 2) if is_list else ():
        if not _IN_LIST.issuperset(parts[at]):
            return
        yield at + 1


def _end_of_object(parts: list[bytes], key: int) -> int:
    """Return the part behind which the object ends that is the value of `key`; `key` itself where it has none."""
    if not parts[key + 1].strip().startswith(b":") or not parts[key + 1].strip().endswith(b"{"):
        return key
    depth = 1
    for at in range(key + 2, len(parts) - 1, 2):
        depth += parts[at + 1].count(b"{") - parts[at + 1].count(b"}")
        if depth <= 0:
            return at
    return len(parts) - 2


@lru_cache(1 << 16)
def _is_telling(raw: bytes) -> bool:
    return names_owner(_decoded(raw))


def _decoded(raw: bytes) -> str:
    text = _restored(raw).decode("utf-8", "surrogateescape")
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def _encoded(text: str) -> bytes:
    """The text as a string of JSON without its quotation marks, with `_ESCAPED`."""
    raw = json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogateescape")[1:-1]
    for written, instead in _ESCAPED:
        raw = raw.replace(written, instead)
    return raw


def _plain(text: bytes, kind: type[_Kind]) -> _Kind:
    """What the text is as JSON; an empty one of this kind where it is damaged."""
    try:
        data = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return kind()
    return data if isinstance(data, kind) else kind()


def _with(found: re.Match[bytes], members: dict[str, object]) -> bytes:
    """What was found, with these members in the object's place."""
    head = found[0][: found.start(1) - found.start() - 1]
    return head + json.dumps(members, ensure_ascii=False).encode("utf-8", "surrogateescape")

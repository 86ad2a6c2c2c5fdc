"""What may a stranger, or a damaged disk, make of a file? Changes at random that know the form of what they change."""

from __future__ import annotations

import gzip
import json
import pickle
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from copy import deepcopy
from io import BytesIO
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import msgspec

#: The content of a file, changed.
Mutation = Callable[[bytes, Random], bytes]

INTEGERS = (0, 1, -1, 7, 127, 255, 65_535, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63,
            -(2**63), 2**64 - 1, 10**18, -(10**18), 10**30)  # fmt: skip
FLOATS = (0.0, -0.0, 0.5, -1.5, 1e-300, 1e300, 1.7e308, 5e-324, float("inf"), float("-inf"), float("nan"), 1e18 + 0.5)
TEXTS = ("", " ", "0", "-1", "1e999", "nan", "inf", "9" * 30, "x" * 9000, "\x00", "\x1b[4m", "\u202e", "\udcff", "²", "٣",
         "🔥", "</script>", "{0}", "%s", "../../etc/passwd", "/etc/passwd", "a\nb", "=1+1", "N/A", "[]", "null", "None",
         "ProfilerStep#1", "ncclDevKernel_AllReduce", "aten::mm", "cudaLaunchKernel", "[rank0]:", "(" * 200)  # fmt: skip
BYTES = (b"\x00", b"\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00\x00\x00\x00\x80", b'"', b"{", b"}", b"[", b"]", b",", b":",
         b"\n", b"\r\n", b"NaN", b"-", b"e9", b"\\u0000", b"\\", b"\xf0\x9f", b"\x1b[", b"{" * 3000, b"[" * 3000)  # fmt: skip
#: What grows further is slow to read, and no more wrong.
MOST_BYTES = 1 << 20
#: How often a place is looked for inside of what stands at a place, and not there: in so many of a hundred.
_ENTERED = 0.93
#: Of a long text the words of a part are listed.
_TEXT_BYTES = 2_000
_WORDS = re.compile(rb"[\w.]+|[^\w.]")


def several(*mutations: Mutation) -> Mutation:
    """One of them, once or up to four times."""

    def changed(data: bytes, random: Random) -> bytes:
        mutation = random.choice(mutations)
        for _ in range(random.choice((1, 1, 2, 4))):
            data = mutation(data, random)[:MOST_BYTES]
        return data

    return changed


def raw(data: bytes, random: Random) -> bytes:
    """Bytes that are other ones, gone, there twice or new; or an end that is missing."""
    at = random.randrange(len(data) + 1)
    size = random.choice((1, 1, 2, 4, 8, 64, 512))
    match random.randrange(6):
        case 0:
            return data[:at] + bytes(random.randrange(256) for _ in range(size)) + data[at + size :]
        case 1:
            return data[:at] + data[at + size :]
        case 2:
            return data[: at + size] + data[at:]
        case 3:
            return data[:at] + random.choice(BYTES) + data[at + random.choice((0, 1, size)) :]
        case 4:
            return data[:at]
        case _:
            other = random.randrange(len(data) + 1)
            return data[:at] + data[other : other + size] + data[at + size :]


def in_place(data: bytes, random: Random) -> bytes:
    """Other bytes, as many as before: what counts or leads to the rest still does."""
    if not data:
        return data
    at = random.randrange(len(data))
    new = random.choice(
        (
            b"\x00",
            b"\xff",
            b"\x7f",
            b"\x80",
            b"\xff" * 4,
            b"\x00" * 8,
            b"\xff" * 7 + b"\x7f",
            bytes([random.randrange(256)]),
        )
    )
    return data[:at] + new[: len(data) - at] + data[at + len(new) :]


def words(data: bytes, random: Random) -> bytes:
    """A word or a sign of a text that is another one; numbers more often than others."""
    begin = random.randrange(max(len(data) - _TEXT_BYTES, 0) + 1)
    found = _WORDS.findall(data, begin, begin + _TEXT_BYTES)
    if not found:
        return data + random.choice(BYTES)
    numbers = [at for at, word in enumerate(found) if word.isdigit()]
    at = random.choice(numbers) if numbers and random.random() < 0.5 else random.randrange(len(found))
    new = random.choice((*TEXTS, *map(str, INTEGERS), None))
    found[at] = random.choice(found) if new is None else new.encode("utf-8", "surrogatepass")
    return data[:begin] + b"".join(found) + data[begin + _TEXT_BYTES :]


def lines(data: bytes, random: Random) -> bytes:
    """A line that is gone, there many times, elsewhere, long or cut."""
    found = data.splitlines(keepends=True)
    if not found:
        return b"\n"
    at, other = random.randrange(len(found)), random.randrange(len(found))
    match random.randrange(5):
        case 0:
            del found[at]
        case 1:
            found[at:at] = [found[other]] * min(random.choice((1, 2, 300)), MOST_BYTES // len(found[other]))
        case 2:
            found[at], found[other] = found[other], found[at]
        case 3:
            line = found[at].rstrip(b"\n")
            found[at] = line * min(random.choice((2, 500)), MOST_BYTES // (len(line) + 1)) + b"\n"
        case _:
            found[at] = found[at][: random.randrange(len(found[at]) + 1)]
    return b"".join(found)


# --- trees -----------------------------------------------------------------------------------------------------------


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each (container, key) of a tree of dicts and lists."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            yield node, key
            if isinstance(node[key], (dict, list)):
                waiting.append(node[key])


def _other(value: Any, random: Random) -> Any:
    """Another value in place of this one, mostly of its type."""
    kind = type(value) if random.random() < 0.7 else random.choice((int, float, str, bool, list, dict, type(None)))
    if isinstance(value, bytes):
        return _repacked(value, random)
    if kind is bool:
        return not value
    if kind is int:
        known = value if isinstance(value, int) else 0
        return random.choice(
            (*INTEGERS, known + 1, known - 1, -known, known * 1000, known // 2, random.randrange(1 << 40))
        )
    if kind is float:
        known = value if isinstance(value, float) else 1.0
        return random.choice((*FLOATS, -known, known * 1000, known / 3, random.random() * 1e6))
    if kind is str:
        known = value if isinstance(value, str) else ""
        return random.choice(
            (*TEXTS, *TEXTS, known[: len(known) // 2], known * 2, f"{known}\udc80", str(random.choice(INTEGERS)))
        )
    if kind is list:
        known = value if isinstance(value, list) else [value]
        return random.choice(([], known * 2, [known], known[::-1], known[:1]))
    if kind is dict:
        return random.choice(({}, {"a": value}, {"": {}}))
    return None


def _place(tree: Any, random: Random) -> tuple[Any, Any]:
    """A (container, key) of a tree that is not empty: by a walk, as a list of all places takes longer than to read it.

    Where a container has others in it, the larger are entered more often: most of a trace is in its list of events.
    """
    node = tree
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        inner = [key for key in keys if isinstance(node[key], (dict, list)) and node[key]] if len(keys) < 40 else []
        if inner and random.random() < _ENTERED:
            key = random.choices(inner, [len(node[each]) for each in inner])[0]
        else:
            key = random.choice(keys)
        if not (isinstance(node[key], (dict, list)) and node[key] and random.random() < _ENTERED):
            return node, key
        node = node[key]


def grown(tree: Any, random: Random) -> Any:
    """The tree, which is changed in one place."""
    if not (isinstance(tree, (dict, list)) and tree) or random.random() < 0.01:
        return _other(tree, random)
    node, key = _place(tree, random)
    if isinstance(node[key], bytes) and random.random() < _ENTERED:  # what is packed in them is the larger part
        node[key] = _repacked(node[key], random)
        return tree
    match random.randrange(8):
        case 0:
            del node[key]
        case 1 if isinstance(node, list):
            node[key:key] = [node[key]] * random.choice((1, 2, 50))
        case 2 if isinstance(node, dict):
            name = random.choice((*TEXTS[:20], random.choice(list(node))))
            node[name] = node.pop(key)
        case 3:
            other, where = _place(tree, random)
            node[key] = deepcopy(other[where])
        case _:
            node[key] = _other(node[key], random)
    return tree


def _encoded(tree: Any) -> bytes:
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def tree(data: bytes, random: Random) -> bytes:
    """JSON with another tree in it; bytes where it is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return raw(data, random)
    for _ in range(random.choice((1, 1, 1, 2, 3, 10))):
        found = grown(found, random)
    return _encoded(found)


class _PlainValues(pickle.Unpickler):
    """Change dicts, lists and what stands in them: a changed pickle may name anything."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def pickled(data: bytes, random: Random) -> bytes:
    """A pickle with another tree in it; bytes where it is no pickle of plain values any more."""
    try:
        found = _PlainValues(BytesIO(data)).load()
    except Exception:  # noqa: BLE001 whatever a damaged pickle raises
        return raw(data, random)
    for _ in range(random.choice((1, 1, 2, 5))):
        found = grown(found, random)
    with suppress(Exception):
        return pickle.dumps(found, protocol=random.choice((2, 4)))
    return data


def packed_tree(data: bytes, random: Random) -> bytes:
    """What msgpack packed behind a line of text, with another tree in it; bytes where it is none."""
    head, line, body = data.partition(b"\n")
    return head + line + _repacked(body, random)


def _repacked(data: bytes, random: Random) -> bytes:
    """What msgpack packed, which may be compressed and hold more of it, with another tree in it; bytes of anything else."""
    try:
        plain = zlib.decompress(data)
    except zlib.error:
        plain = data
    try:
        found = msgspec.msgpack.decode(plain)
        for _ in range(random.choice((1, 1, 3))):
            found = grown(found, random)
        made = msgspec.msgpack.encode(found)
    except (ValueError, TypeError, RecursionError, OverflowError, msgspec.MsgspecError):
        return raw(data, random)
    return made if plain is data else zlib.compress(made, 1)


def inside_gzip(mutation: Mutation) -> Mutation:
    """Change the text of a gzip file."""

    def changed(data: bytes, random: Random) -> bytes:
        try:
            text = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return raw(data, random)
        return gzip.compress(mutation(text, random), 1)

    return changed


def inside_zip(by_ending: Sequence[tuple[str, Mutation]]) -> Mutation:
    """Change a member of an archive."""

    def changed(data: bytes, random: Random) -> bytes:
        try:
            with ZipFile(BytesIO(data)) as archive:
                members = {name: archive.read(name) for name in archive.namelist()}
        except Exception:  # noqa: BLE001 it is damaged already
            return raw(data, random)
        if not members:
            return raw(data, random)
        name = random.choice(list(members))
        members[name] = next((each for ending, each in by_ending if name.endswith(ending)), raw)(members[name], random)
        if random.random() < 0.1:
            members[random.choice(("../outside", "/etc/x", "a/../../outside", name.upper(), "x" * 300))] = members[name]
        made = BytesIO()
        with ZipFile(made, "w") as archive:
            for each, content in members.items():
                archive.writestr(each, content)
        return made.getvalue()

    return changed


# --- tables ----------------------------------------------------------------------------------------------------------


def cells(data: bytes, random: Random) -> bytes:
    """An SQLite database with other cells, columns and tables; bytes where it is damaged already."""
    with TemporaryDirectory() as folder:
        file = f"{folder}/f"
        with open(file, "xb") as stream:  # noqa: PTH123
            stream.write(data)
        try:
            with closing(sqlite3.connect(file, isolation_level=None)) as database:
                database.execute("PRAGMA journal_mode = OFF")
                database.execute("PRAGMA synchronous = OFF")
                for _ in range(random.choice((1, 1, 2, 8))):
                    _change(database, random)
        except (sqlite3.Error, OverflowError, UnicodeError, IndexError):  # or all tables are gone
            return raw(data, random)
        with open(file, "rb") as stream:  # noqa: PTH123
            return stream.read()


def _change(database: sqlite3.Connection, random: Random) -> None:
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = _quoted(random.choice(tables))
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    column = _quoted(random.choice(columns))
    (rows,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
    row = f"(SELECT rowid FROM {table} LIMIT 1 OFFSET {random.randrange(rows)})" if rows else "0"
    match random.randrange(12):
        case 0:
            database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        case 1:
            database.execute(
                f"ALTER TABLE {table} RENAME COLUMN {column} TO {_quoted(random.choice(('x', 'start', 'end')))}"
            )
        case 2:
            database.execute(f"DROP TABLE {table}")
        case 3:
            database.execute(f"DELETE FROM {table} WHERE rowid % 2 = {random.randrange(2)} OR {random.randrange(2)}")
        case 4:
            database.execute(f"UPDATE {table} SET {column} = ?", (_cell(random),))
        case 5:
            database.execute(
                f"UPDATE {table} SET {column} = {column} * ? + ?", (_cell(random), random.randrange(1 << 20))
            )
        case _:
            database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = {row}", (_cell(random),))


def _cell(random: Random) -> object:
    whole = [number for number in INTEGERS if -(2**63) <= number < 2**63]
    texts = [text for text in TEXTS if text.isprintable() or text.isascii()]
    return random.choice(
        (random.choice(whole), random.choice(whole), random.choice(FLOATS), random.choice(texts), None, b"\xff\xfe")
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# --- folders ---------------------------------------------------------------------------------------------------------

#: What stands behind a member's name where it is none: its content is where the link leads to.
LINK, PIPE, FOLDER = "@link", "@pipe", "@folder"


def folder(by_ending: Sequence[tuple[str, Mutation]], leads_to: str) -> Mutation:
    """Change a folder, packed by `packed`: another content of a member, or none, or a link, a pipe or a folder in its place.

    `leads_to`: outside of it, where nothing may be changed.
    """

    def changed(data: bytes, random: Random) -> bytes:
        members = unpacked(data)
        if not members:
            return data
        name = random.choice(list(members))
        match random.randrange(24):
            case 0:
                del members[name]
            case 1:
                del members[name]
                target = random.choice(
                    (leads_to, ".", name.rpartition("/")[2], "/dev/zero", "nowhere", "../" * 40, "run.json")
                )
                members[name.partition("@")[0] + LINK] = target.encode()
            case 2:
                del members[name]
                members[name.partition("@")[0] + random.choice((PIPE, FOLDER))] = b""
            case 3:
                members[
                    random.choice(
                        (name + ".json", "torch/" + name, name.upper(), "x" * 200, "a\nb.json", ".report.html.1.tmp")
                    )
                ] = members[name]
            case 4:
                members[name] = random.choice((b"", b"{}", b"[]", b"\x1f\x8b", b"\x00" * 100))
            case _:
                if "@" not in name:
                    mutation = next((each for ending, each in by_ending if name.endswith(ending)), raw)
                    members[name] = mutation(members[name], random)
        return packed(members)

    return changed


def member(name: str, mutation: Mutation) -> Mutation:
    """Change one file of a folder."""

    def changed(data: bytes, random: Random) -> bytes:
        members = unpacked(data)
        return packed({**members, name: mutation(members[name], random)})

    return changed


def packed(members: dict[str, bytes]) -> bytes:
    """A folder as one content: its files by their names in it."""
    return msgspec.msgpack.encode(members)


def unpacked(data: bytes) -> dict[str, bytes]:
    return msgspec.msgpack.decode(data, type=dict[str, bytes])

"""Where in the memory of a running process are a function and a few bytes that nobody uses, and what is there?

An ELF file names in `.dynsym` what others may call, and in its program headers how it lies in memory (elf(5)). The
kernel maps whole pages (proc(5), /proc/PID/maps): behind the last byte of a library's data, or of its code, the page
goes on, zero and without an owner.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from perfdoctor.system.paths import text_of

_MAGIC, _SHARED, _LOAD, _DYNAMIC_SYMBOLS = b"\x7fELF\x02\x01", 3, 1, 11
_EXECUTABLE, _WRITABLE = 1, 2
_HEADER, _PROGRAM_HEADER = "<16xH2x4x8xQQ4x2xHHHH", "<IIQQQQQQ"
_SECTION, _SYMBOL = "<IIQQQQIIQQ", "<IBBHQQ"
_PAGE = mmap.PAGESIZE
_DELETED = " (deleted)"


class Mapped(Struct, frozen=True):
    """One line of /proc/PID/maps: addresses from `start` to `end`, of an offset in a file. Is it data, or code?"""

    start: int
    end: int
    is_writable: bool
    is_executable: bool
    offset: int
    file: str


class Image(Struct, frozen=True):
    """An ELF file of 64 bits: addresses of its `symbols`, and begin and end of each part that is data, or code.

    Addresses are those of the file. `is_moved`: it lies elsewhere in memory, by an offset.
    """

    symbols: dict[str, int]
    data: tuple[tuple[int, int], ...]
    code: tuple[tuple[int, int], ...]
    is_moved: bool


def maps(pid: int) -> list[Mapped]:
    """What is mapped in a process; empty where that cannot be read."""
    found = []
    for line in text_of(f"/proc/{pid}/maps").splitlines():
        area, rights, offset, _, _, *file = line.split(None, 5)
        start, end = (int(each, 16) for each in area.split("-"))
        found.append(Mapped(start, end, "w" in rights, "x" in rights, int(offset, 16), file[0] if file else ""))
    return found


def files(mapped: Sequence[Mapped]) -> dict[str, int]:
    """The files among them, and the lowest address at which the begin of each is mapped."""
    found: dict[str, int] = {}
    for each in mapped:
        if each.file.startswith("/") and not each.offset and not each.file.endswith(_DELETED):
            found.setdefault(each.file, each.start)
    return found


def read(file: Path, names: Collection[str] = ()) -> Image | None:
    """What the file says; None where it is no ELF file of 64 bits, or cannot be read."""
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[:6] != _MAGIC:
                return None
            return _parsed(content, names)
    except (OSError, ValueError, struct.error):
        return None


def _parsed(content: mmap.mmap, names: Collection[str]) -> Image:
    kind, segments_at, sections_at, size, count, section_size, sections = struct.unpack_from(_HEADER, content)
    segments = [struct.unpack_from(_PROGRAM_HEADER, content, segments_at + size * each) for each in range(count)]
    data, code = (
        tuple((each[3], each[3] + each[6]) for each in segments if each[0] == _LOAD and each[1] & right)
        for right in (_WRITABLE, _EXECUTABLE)
    )
    headers = [struct.unpack_from(_SECTION, content, sections_at + section_size * each) for each in range(sections)]
    symbols: dict[str, int] = {}
    for header in headers if names else ():
        if header[1] == _DYNAMIC_SYMBOLS:
            symbols |= _symbols(content, header, headers[header[6]], {name.encode(): name for name in names})
    return Image(symbols, data, code, kind == _SHARED)


def _symbols(
    content: mmap.mmap, table: Sequence[int], texts: Sequence[int], names: dict[bytes, str]
) -> Iterator[tuple[str, int]]:
    """Yield the names that are defined in a table of symbols, and their addresses."""
    begin, end = texts[4], texts[4] + texts[5]
    text = content[begin:end]
    places = {text.find(b"\0" + name + b"\0") + 1: known for name, known in names.items()}
    for name_at, _, _, section, address, _ in struct.iter_unpack(_SYMBOL, content[table[4] : table[4] + table[5]]):
        if section and name_at in places:
            yield places[name_at], address


def spare(file: Path, base: int, mapped: Sequence[Mapped], needed: int, *, of_code: bool = False) -> int | None:
    """The address of so many bytes behind a library's data, or its code, in its last page; None where there are none.

    `base`: where the library's begin is mapped.
    """
    image = read(file)
    parts = () if image is None or not image.is_moved else image.code if of_code else image.data
    if not parts:
        return None
    end = base + max(end for _, end in parts)
    page_end = -(-end // _PAGE) * _PAGE
    start = page_end - (-(-needed // 16) * 16)
    fitting = (each for each in mapped if (each.is_executable if of_code else each.is_writable))
    is_there = any(each.start <= start and page_end <= each.end for each in fitting)
    return start if start > end and is_there else None


def bytes_at(pid: int, address: int, size: int) -> bytes:
    """So many bytes of a process's memory; none where they may not be read."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 a Path would be no shorter
            memory.seek(address)
            return memory.read(size)
    except (OSError, ValueError, OverflowError):
        return b""


def write_at(pid: int, address: int, content: bytes) -> bool:
    """Write into a process's memory; False where that is not possible, as after its end."""
    try:
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:  # noqa: PTH123
            memory.seek(address)
            return memory.write(content) == len(content)
    except (OSError, ValueError, OverflowError):
        return False


def may_be_changed(pid: int) -> bool:
    """May this process's memory be written? The kernel asks the same of a debugger (ptrace(2)); nothing is changed."""
    try:
        with open(f"/proc/{pid}/mem", "r+b", buffering=0):  # noqa: PTH123
            return True
    except OSError:
        return False

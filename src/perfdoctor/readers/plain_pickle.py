"""How is a pickle read safely? As plain data: containers, text, numbers and None; one that needs more is refused.

A pickle is a program, and its author is unknown. Here it can use no classes and no functions, so it cannot call
anything. It could still exhaust memory, as a few bytes may request a table of gigabytes (the memo): the process is
limited to the memory that plain data of this size needs. Where the system cannot (macOS, Windows), the interpreter's
unpickler in Python reads it: its memo has what is in it, and no place for all numbers below.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import ClassVar, NoReturn

from perfdoctor.errors import PerfdoctorError
from perfdoctor.system.own_process import no_collection

#: Plain data takes some ten times the bytes of its pickle (an event of 60 bytes is a dict of 350 with 4 numbers).
_GROWTH = 32
_SLACK_BYTES = 512 << 20
_PROTOCOLS = (2, 3, 4, 5)


class _ForbiddenError(Exception):
    """The pickle asks for something that is not plain data."""


class _PlainData:
    """An unpickler without classes and functions."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise _ForbiddenError(f"{module_name}.{global_name}")

    def persistent_load(self, _: object) -> NoReturn:
        raise _ForbiddenError("an object outside of the file")


def _no_zeros(_: object) -> NoReturn:
    raise _ForbiddenError("bytearray")  # as many zeros as it asks for, before one byte is read


class _Plain(_PlainData, pickle.Unpickler):
    """The interpreter's own, written in C."""


class _PlainInPython(_PlainData, pickle._Unpickler):  # noqa: SLF001 the one that Python's documentation describes
    """The interpreter's own, written in Python. What its opcodes ask for is not there before it was read."""

    dispatch: ClassVar[dict[int, Callable[[pickle.Unpickler], None]]] = {
        **pickle._Unpickler.dispatch,  # noqa: SLF001
        pickle.BYTEARRAY8[0]: _no_zeros,
    }


def is_pickle(head: bytes) -> bool:
    """Do these first bytes begin a binary pickle? Protocols 0 and 1 have no magic number, and are obsolete."""
    return len(head) > 2 and head[0] == 0x80 and head[1] in _PROTOCOLS


def load(path: Path) -> object:
    """The data in a file. PerfdoctorError if it is damaged, needs more than plain data or too much memory."""
    try:
        most_bytes = _GROWTH * path.stat().st_size + _SLACK_BYTES
        with path.open("rb") as stream, _bounded_memory(most_bytes) as is_bounded, no_collection(), _silence():
            # of a file, memory for all bytes that are asked for would be made first
            return (_Plain(stream) if is_bounded else _PlainInPython(BytesIO(stream.read()))).load()
    except _ForbiddenError as error:
        raise PerfdoctorError(
            f"`{path.name}` is a pickle that would build `{str(error)[:80]}`: it was not opened",
            do="A memory snapshot holds plain data only: write it with torch.cuda.memory._dump_snapshot()",
        ) from error
    except MemoryError as error:
        raise PerfdoctorError(
            f"`{path.name}` needs far more memory than its size explains", do="Copy the file again: it may be damaged"
        ) from error
    except Exception as error:  # a damaged pickle may raise any error
        raise PerfdoctorError(
            f"`{path.name}` is a pickle that breaks off or is damaged: {type(error).__name__}",
            do="Write it again with torch.cuda.memory._dump_snapshot(), and let the program finish writing",
        ) from error


@contextmanager
def _silence() -> Iterator[None]:
    """Print nothing of CPython's own: where it finds no memory for a bytearray, it raises MemoryError, and prints an
    error besides (`SystemError: deallocated bytearray object has exported buffers`, seen with 3.11).
    """
    before, sys.excepthook = sys.excepthook, lambda *_: None
    try:
        yield
    finally:
        sys.excepthook = before


@contextmanager
def _bounded_memory(more_bytes: int) -> Iterator[bool]:
    """Limit this process to `more_bytes` more memory. False where the system cannot: macOS and Windows."""
    try:
        import resource  # noqa: PLC0415 not on Windows

        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = pages * resource.getpagesize() + more_bytes
        limit = min([limit, *(each for each in (soft, hard) if each != resource.RLIM_INFINITY)])
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    except (ImportError, OSError, ValueError):
        yield False
        return
    try:
        yield True
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

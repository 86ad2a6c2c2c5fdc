"""Where is perfdoctor's cache, is a text a path or printable, and how is a small file read or written as a whole?"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOME = "~"
#: A name may have 255 bytes, and a character four of them.
_LONGEST_STEM = 50


def cache_folder() -> Path:
    """The cache folder, which may not exist yet. Raises RuntimeError if XDG_CACHE_HOME and the home are unknown."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "perfdoctor"


def is_plain(text: str) -> bool:
    """Whether `text` is neither an address nor a pattern of names; an existing name with `*` or `[` is a path too."""
    return "://" not in text and (not any(mark in text for mark in "*?[") or Path(text).exists())


def without_home(word: str) -> str:
    """The word with `~` for the home: the same for everybody, and no user's name."""
    home = os.environ.get("HOME", "").rstrip("/")
    return HOME + word[len(home) :] if home and (word == home or word.startswith(f"{home}/")) else word


#: What zlib writes may be a thousand times as long as it is. Nothing of ours is, beyond what every machine holds.
_MOST_RATIO, _FREE_BYTES = 200, 1 << 28


def unzipped(data: bytes) -> bytes:
    """What zlib packed. Raises zlib.error where it is damaged, breaks off, or would be far too long."""
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(data, _FREE_BYTES + _MOST_RATIO * len(data))
    if not unpacking.eof:
        raise zlib.error("it breaks off, or would fill the memory")
    return text


def printable(text: str) -> str:
    """The text without what a terminal obeys instead of showing it: for lines that no report module makes safe."""
    return "".join(character if character.isprintable() else " " for character in text)


def text_of(file: str | Path) -> str:
    """The file's text; "" where it cannot be read. Bytes that are not UTF-8 are replaced."""
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123 called for each thread of a program
            return stream.read()
    except OSError:
        return ""


def write_whole(target: Path, content: bytes) -> None:
    """Write the file whole or not at all: nobody finds a part of it. Raises OSError."""
    with draft(target) as made:
        made.write_bytes(content)


@contextmanager
def draft(target: Path, *, folder: bool = False) -> Iterator[Path]:
    """An empty file, or `folder`, beside `target`: it becomes the target at the end, and is removed if that fails.

    Its name is random, and it is made by nobody else: a folder of a stranger may hold links to files of yours. Raises
    OSError, also where the target is the folder that one is in, or the root.
    """
    if target.name in ("", ".."):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    made = target.with_name(f".{target.name[:_LONGEST_STEM]}.{secrets.token_hex(8)}.tmp")
    if folder:
        made.mkdir()
    else:
        os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666))
    try:
        yield made
        made.replace(target)
    finally:
        if folder:
            shutil.rmtree(made, ignore_errors=True)
        else:
            made.unlink(missing_ok=True)

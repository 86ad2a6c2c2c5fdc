"""Can this command be started at all, and if not, why? Found out before anything is recorded."""

from __future__ import annotations

import shutil
from pathlib import Path

from msgspec import Struct

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells, env and timeout exit


class Trouble(Struct, frozen=True):
    """`code` is what a shell exits with."""

    what: str
    do: str
    code: int


def trouble(name: str) -> Trouble | None:
    """Why the command's first word cannot be started; None if it can."""
    found = shutil.which(name)
    if found is not None:
        words = shebang(Path(found))
        if not words or Path(words[0]).exists():
            return None
        correct = "Correct the first line of the script, or start it with its interpreter."
        return Trouble(f"`{name}` cannot be started: its interpreter {words[0]} was not found", correct, NOT_FOUND)
    file = Path(name)
    if not file.exists():
        aliases = "Check its spelling; a shell's aliases and functions cannot be used here."
        return Trouble(f"the command `{name}` was not found", aliases, NOT_FOUND)
    if file.is_dir():
        return Trouble(f"`{name}` is a directory", "Give the program in it.", NOT_EXECUTABLE)
    if file.suffix == ".py":
        with_python = f"Start it with its Python: perfdoctor run -- python {name}"
        code = NOT_EXECUTABLE if "/" in name else NOT_FOUND
        return Trouble(f"`{name}` is no command, but a script of Python", with_python, code)
    if "/" not in name:
        here = f"Give it with its folder: ./{name}"
        return Trouble(f"the command `{name}` was not found on PATH", here, NOT_FOUND)
    return Trouble(f"`{name}` may not be executed", f"Permit it with chmod +x {name}", NOT_EXECUTABLE)


def shebang(path: Path) -> list[str]:
    """The words after `#!` in a script's first line; none for another file."""
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError:
        return []
    return head[2:].split(b"\n")[0].decode("utf-8", "replace").split() if head.startswith(b"#!") else []

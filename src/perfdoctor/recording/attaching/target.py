"""Which process is to be attached to, and why may or can it not be? Nothing of it is changed or stopped for that."""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.recording.attaching import image
from perfdoctor.recording.launch.processes import name_of
from perfdoctor.system.paths import text_of

#: In the memory of CPython 3.11 and newer: PY_VERSION_HEX, which is 0x030b07f0 for 3.11.7.
VERSION = "Py_Version"
#: What older ones are recognised by, with which `_NAMED` finds the version: the library, or the folder of modules.
_NAMED = regex(r"/(?:lib)?python3\.(\d+)[dmt]*(?:/|\.so|$)")
_TORCH = regex(r"/libtorch(?:_cpu|_python)?\.so$")
_PYPY = regex(r"/(?:lib)?pypy3?[\d.\-c]*(?:/|\.so|$)")
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK")
_VERSION_LINE = regex(r"^__version__ = '([^']*)'", re.MULTILINE)
_STATE, _TRACER, _USER, _NAMESPACE = "State", "TracerPid", "Uid", "NSpid"


class Target(Struct, frozen=True):
    """A process, as /proc shows it.

    `inner_pid`: its number in its own namespace. `python`: major and minor version, None where it is none that is
    known. `has_torch`: its library is loaded. `environment`: empty where it may not be read.
    """

    pid: int
    inner_pid: int
    name: str
    user: int
    state: str
    tracer: int
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    folder: Path = Path("/")
    is_pypy: bool = False
    python: tuple[int, int] | None = None
    has_torch: bool = False

    @property
    def root(self) -> Path:
        """The root of its files, which in a container is not ours."""
        return Path(f"/proc/{self.pid}/root")

    @property
    def is_rank(self) -> bool:
        """Did a launcher give it a rank?"""
        return any(name in self.environment for name in _RANKS)

    @property
    def torch(self) -> str:
        """The version of its torch, as its file says; "" where it cannot be read."""
        for file in image.files(image.maps(self.pid)):
            if _TORCH.search(file):
                found = _VERSION_LINE.search(text_of(Path(f"{self.root}{file}").parents[1] / "version.py"))
                return found[1] if found else ""
        return ""


def inspect(pid: int) -> Target | None:
    """The process of this number; None where there is none."""
    facts = dict(line.split(":", 1) for line in text_of(f"/proc/{pid}/status").splitlines() if ":" in line)
    if not facts:
        return None
    mapped = image.maps(pid)
    known = list(image.files(mapped))
    exe = _link(pid, "exe")
    return Target(
        pid, int(facts.get(_NAMESPACE, str(pid)).split()[-1]), name_of(pid), int(facts[_USER].split()[1]),
        facts[_STATE].split()[0], int(facts.get(_TRACER, "0")), _words(pid, "cmdline"), _variables(pid),
        Path(_link(pid, "cwd") or "/"), any(_PYPY.search(file) for file in (exe, *known)),
        _version(pid, exe, image.files(mapped)), any(_TORCH.search(file) for file in known),
    )  # fmt: skip


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}").removesuffix(" (deleted)")  # noqa: PTH115 what it names may be gone
    except OSError:
        return ""


def _words(pid: int, name: str) -> tuple[str, ...]:
    return tuple(text_of(f"/proc/{pid}/{name}").rstrip("\0").split("\0"))


def _variables(pid: int) -> dict[str, str]:
    pairs = (word.partition("=") for word in _words(pid, "environ"))
    return {name: value for name, found, value in pairs if found}


def _version(pid: int, exe: str, files: dict[str, int]) -> tuple[int, int] | None:
    for _, at in interpreter(pid, files, (VERSION,)):
        raw = image.bytes_at(pid, at[VERSION], 4)
        if len(raw) == 4 and raw[3] == 3:
            return raw[3], raw[2]
    found = next((found for file in (exe, *files) if (found := _NAMED.search(file))), None)
    return (3, int(found[1])) if found else None


def interpreter(pid: int, files: dict[str, int], names: tuple[str, ...]) -> list[tuple[str, dict[str, int]]]:
    """The file that defines all of these `names` and their addresses in the process's memory: one or none."""
    exe = _link(pid, "exe")
    for file in sorted(files, key=lambda each: each != exe and "python" not in Path(each).name):
        if file != exe and "libpython" not in Path(file).name:
            continue
        path = Path(f"/proc/{pid}/exe") if file == exe else Path(f"/proc/{pid}/root{file}")
        found = image.read(path, names)
        if found is not None and found.symbols.keys() == set(names):
            base = files[file] if found.is_moved else 0
            return [(file, {name: base + address for name, address in found.symbols.items()})]
    return []

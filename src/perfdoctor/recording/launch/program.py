"""Can the user's command be started, which Python runs it, has that torch, and can our agent be loaded into it?"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.system import tool_process
from perfdoctor.system.masking import masked_command

_PYTHON = regex(r"^(python|pypy)(\d+(\.\d+)*)?(d|t)?$")
_ENV = regex(r"^(?:\S*/)?env$")
#: Options of Python that take a value, so that the next word is no script.
_WITH_VALUE = frozenset("WX")
#: -I ignores PYTHONPATH and the user's site, -E ignores PYTHONPATH, -S starts without site and its sitecustomize.
_SHUTS_OUT = frozenset("ISE")
_PROFILERS = frozenset({"nsys", "ncu", "nv-nsight-cu-cli", "nvprof", "rocprof", "rocprofv3"})
#: Wrappers that start the rest of their words in the same environment: the words behind them are inspected.
_TRANSPARENT = frozenset({"nohup", "nice", "time", "stdbuf", "taskset", "numactl", "chrt", "ionice", "setsid"})
_PROBE_TIMEOUT_S = 20
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells, env and timeout exit

#: Runs in the program's Python. Finds torch without importing it, which would take seconds.
_PROBE = """
import importlib.util, json, pathlib, sys
found = {"python": "%d.%d.%d" % sys.version_info[:3], "torch": "", "cuda": ""}
try:
    spec = importlib.util.find_spec("torch")
except Exception:
    spec = None
if spec is not None and spec.origin:
    version = {}
    try:
        exec(pathlib.Path(spec.origin).with_name("version.py").read_text(), version)
    except Exception:
        pass
    found["torch"] = str(version.get("__version__", "of unknown version"))
    found["cuda"] = str(version.get("cuda") or version.get("hip") or "")
print(json.dumps(found))
"""


class Program(Struct, frozen=True):
    """`interpreter`: "" where the command is no known Python. `shut_out`: the option that keeps the agent out."""

    command: tuple[str, ...]
    interpreter: str = ""
    shut_out: str = ""
    profiler: str = ""
    python: str = ""
    torch: str = ""
    cuda: str = ""
    was_inspected: bool = False

    @property
    def name(self) -> str:
        """A short name for the run, from the script or module. It becomes that of a folder, and holds no secret."""
        masked = masked_command(self.command)
        words = [word for each in masked for word in each.split()]
        named = [word for word in words if word.endswith(".py") and "=" not in word]
        named = named or [word for before, word in pairwise(words) if before == "-m"]
        stem = Path(named[0] if named else masked[0]).name
        return re.sub(r"[^\w.-]+", "-", stem.removesuffix(".py"))[:40] or "run"


def inspect(command: Sequence[str], environment: Mapping[str, str]) -> Program:
    """Inspect the command before it runs."""
    words = _behind_wrappers(list(command))
    if Path(words[0]).name in _PROFILERS:
        return Program(tuple(command), profiler=Path(words[0]).name)
    interpreter, options = _python_of(words, environment)
    if not interpreter:
        return Program(tuple(command))
    barred = next((f"-{letter}" for letter in options if letter in _SHUTS_OUT), "")
    found = _probe(interpreter, environment)
    return Program(
        tuple(command), interpreter, barred, python=found.get("python", ""), torch=found.get("torch", ""),
        cuda=found.get("cuda", ""), was_inspected=bool(found),
    )  # fmt: skip


def _behind_wrappers(words: list[str]) -> list[str]:
    """The words behind wrappers: `python …` of `env A=1 nice -n 5 python …`."""
    while len(words) > 1 and (Path(words[0]).name in _TRANSPARENT or _ENV.match(words[0])):
        rest = words[1:]
        while len(rest) > 1 and (rest[0].startswith("-") or "=" in rest[0] or rest[0].isdecimal()):
            rest = rest[1:]
        words = rest
    return words


def _python_of(words: Sequence[str], environment: Mapping[str, str]) -> tuple[str, str]:
    """Path of the Python that runs these words, and the letters of its options; ("", "") if it is none."""
    path = environment.get("PATH", os.defpath)
    found = shutil.which(words[0], path=path)
    if found is None:
        return "", ""
    if _PYTHON.match(Path(found).name):
        return found, _letters(words[1:])
    shebang = _shebang(Path(found))
    if shebang and _ENV.match(shebang[0]):
        shebang = [word for word in shebang[1:] if not word.startswith("-") and "=" not in word]
        shebang[:1] = [shutil.which(word, path=path) or "" for word in shebang[:1]]
    if shebang and _PYTHON.match(Path(shebang[0]).name):
        return shebang[0], _letters(shebang[1:])
    return "", ""


def _letters(words: Sequence[str]) -> str:
    """The letters of Python's own options: `-u -X dev -IS script.py -E` has u, X, I and S."""
    letters, position = "", 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        word = words[position]
        position += 1
        if word.startswith("--"):
            continue
        for place, letter in enumerate(word[1:]):
            if letter in "mc":
                return letters
            letters += letter
            if letter in _WITH_VALUE:
                position += place == len(word) - 2  # its value is the next word
                break
    return letters


def _probe(interpreter: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Version and torch of an interpreter, in the program's own environment. Empty if it does not start."""
    try:
        done = tool_process.asked([interpreter, "-c", _PROBE], _PROBE_TIMEOUT_S, environment)
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    return {str(name): str(value) for name, value in found.items()}


# --- before anything is recorded: can the command be started at all? ---


class Trouble(Struct, frozen=True):
    """`code` is what a shell exits with."""

    what: str
    do: str
    code: int


def trouble(name: str) -> Trouble | None:
    """Why the command's first word cannot be started; None if it can."""
    found = shutil.which(name)
    if found is not None:
        words = _shebang(Path(found))
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


def _shebang(path: Path) -> list[str]:
    """The words after `#!` in a script's first line; none for another file."""
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError:
        return []
    return head[2:].split(b"\n")[0].decode("utf-8", "replace").split() if head.startswith(b"#!") else []

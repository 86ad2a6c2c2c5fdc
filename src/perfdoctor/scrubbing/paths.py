"""What stands for a path of somebody's machine? What readers need of it, and nothing else.

A file of the program is named from its project's folder on, a file of a package from Python's library on, since
findings name both. Of other paths only the kind of file is left. Paths that every Linux has stay.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from perfdoctor.patterns import regex
from perfdoctor.scrubbing.stand_ins import StandIns

_PART = r"[^\s/\\:\"'<>|*?;,()\[\]{}=&#!`$]+"
#: `/a/b`, `~/a`, `~ada/a`, `C:\a` and `\\server\a`; no part of an address, of a fraction or of a C++ name.
PATH = regex(
    rf"(?<![\w.~<>)\]/\\-])(?:~[\w.-]*(?=/)|[A-Za-z]:(?=[/\\])|(?=/)(?!(?<=:)//)|(?=\\\\))(?:[/\\]{{1,2}}{_PART})+[/\\]?"
)
#: A whole text that is a path of code, which may hold blanks: `/my code/train.py`, also before `(12): step`.
_WHOLE = regex(r"^((?:[A-Za-z]:)?[/\\][^\n\"<>|*?]*\.pyx?)(?=\(\d+\)|:\d|$)")
_SEPARATOR = regex(r"[/\\]+")
_HOMES = ("home", "Users", "users", "u")
#: Folders of disks, below which the folders of people and teams lie.
_OF_DISKS = frozenset((
    "mnt", "data", "scratch", "fsx", "lustre", "gpfs", "nfs", "efs", "opt", "srv", "var", "media", "tmp",
    "private", "shared", "work", "projects", "project", "export", "storage", "net", "cluster", "global",
))  # fmt: skip
_LINUX = frozenset(("lib", "lib32", "lib64", "bin", "sbin", "proc", "sys", "dev", "usr"))
_OF_USR = regex(r"lib(?:32|64|exec)?|s?bin|include|share|local")
_OF_LOCAL = regex(r"lib(?:32|64)?|s?bin|include|share|cuda[\w.-]*|python[\w.-]*")
_OF_OPT = regex(r"(?:mini|ana)?conda\d?|nvidia|venv|rocm[\w.-]*")
#: Packages by whose names the vocabulary knows a library from the program, and what kind of program it is.
PACKAGES = frozenset((
    "site-packages", "dist-packages", "perfdoctor_agent", "perfdoctor_measuring", "torch", "functorch", "torchvision",
    "numpy", "triton", "transformers", "accelerate", "lightning", "pytorch_lightning", "lightning_fabric", "deepspeed",
    "fairscale", "megatron", "gym", "gymnasium", "pettingzoo", "dm_control", "envpool", "sglang", "vllm", "xfuser",
    "tensorrt_llm", "jax", "jaxlib", "flax", "optax", "haiku", "equinox", "orbax", "maxtext", "ignite", "fastai", "trl",
    "composer", "stable_baselines3", "PIL", "cv2", "librosa", "albumentations", "safetensors", "einops",
))  # fmt: skip
_PYTHON = regex(r"python[\d.]+t?|Lib")
#: The compiler of torch keeps its code in folders of two letters, and those in one of the user's name.
_COMPILER, _COMPILED = regex(r"torchinductor_.+"), regex(r"[/\\]\w{2}[/\\]c\w{20,}\.py$")
_CODE = regex(r"\.(?:pyx?|pyc|cuh?|c|cc|cpp|cxx|h|hpp|so[\d.]*|dll|exe)$", re.IGNORECASE)
_ENDING = regex(r"(?:\.[A-Za-z]\w{0,7}){1,2}$")


class Places:
    """The folders of programs and people that a recording names, and the stand-ins of all paths."""

    def __init__(self, stand_ins: StandIns) -> None:
        self.stand_ins = stand_ins
        self.homes: set[tuple[str, ...]] = set()
        self._code: set[tuple[str, ...]] = set()
        self._blank: set[str] = set()
        self._roots: dict[tuple[str, ...], str] = {}

    def learn(self, text: str) -> Iterator[str]:
        """Learn from all paths in a text, and yield the names of users that they hold."""
        if "/" not in text and "\\" not in text:
            return
        whole = _WHOLE.match(text)
        found = [whole[1]] if whole else []
        for path in (*found, *(each[0] for each in PATH.finditer(text))):
            parts = _parts(path)
            home = self._home(parts)
            if home:
                self.homes.add(home)
                if len(home) > 1:
                    yield home[-1]
            if path.endswith((".py", ".pyx")) and len(parts) > 1 and not _is_public(parts) and _library(parts) is None:
                self._code.add(parts[:-2] if _COMPILED.search(path) and len(parts) > 2 else parts[:-1])
                if re.search(r"\s", path):
                    self._blank.add(path[: -len(parts[-1]) - 1])

    def add_home(self, path: str) -> None:
        """A home by whatever says so, wherever it lies."""
        if len(parts := _parts(path)) > (path != "/root") and not _is_public(parts):
            self.homes.add(parts)

    def settle(self) -> None:
        """Find the folders of projects: what all code below a folder of a person, or of a disk, has in common."""
        groups: defaultdict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        for folder in sorted(self._code):
            groups[folder[: self._top(folder)]].append(folder)
        roots = sorted(_common(folders) for folders in groups.values())
        self._roots = {root: self.stand_ins.of("project", "/".join(root)) for root in roots}

    def private(self) -> Iterator[str]:
        """Texts that a copy must not hold."""
        yield from ("/" + "/".join(home) + "/" for home in self.homes if len(home) > 1)

    def replaced(self, text: str) -> str:
        """The text with a stand-in for every path of a machine."""
        for folder in sorted(self._blank, key=len, reverse=True):
            if folder in text:
                text = text.replace(folder, self._of_parts(folder, _parts(folder)))
        return PATH.sub(self._stand_in, text) if "/" in text or "\\" in text else text

    def _stand_in(self, found: re.Match[str]) -> str:
        path = found[0].rstrip(".")
        parts = _parts(path)
        if not parts or self.stand_ins.is_one(parts[0]) or _is_public(parts):
            return found[0]
        is_alone = len(parts) == 1 and path[0] in "/\\" and parts not in self._roots and parts not in self.homes
        return found[0] if is_alone else self._of_parts(path, parts) + found[0][len(path) :]

    def _of_parts(self, path: str, parts: tuple[str, ...]) -> str:
        end = path[-1] if path[-1] in "/\\" and len(path) > 1 else ""
        separator = "\\" if "\\" in path else "/"
        lead = path[:2] if path[1:2] == ":" else ""
        return lead + separator + separator.join(self._named(parts)) + end

    def _named(self, parts: tuple[str, ...]) -> Sequence[str]:
        if parts[0] == "tmp" and len(parts) > 1 and _COMPILER.fullmatch(parts[1]):
            self.stand_ins.removed("paths", parts[1])
            return "tmp", "torchinductor_user", *parts[2:]
        root = max((root for root in self._roots if parts[: len(root)] == root), key=len, default=())
        at = _library(parts)
        if root and (at is None or at >= len(root)):
            self.stand_ins.removed("paths", "/".join(root))
            return self._roots[root], *parts[len(root) :]
        if at is not None:
            if _is_public(parts[:at]) or not at:
                return parts
            return self.stand_ins.of("python", "/".join(parts[:at])), *parts[at:]
        if parts in self.homes:
            return (self.stand_ins.of("home", "/".join(parts)),)
        if len(parts) > 1 and (_CODE.search(parts[-1]) or parts[-2] == "bin"):
            folder = parts[: -2 if parts[-2] == "bin" else -1]
            return self.stand_ins.of("folder", "/".join(folder)), *parts[len(folder) :]
        ending = _ENDING.search(parts[-1])
        return (self.stand_ins.of("path", "/".join(parts)) + (ending[0] if ending else ""),)

    def _home(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """The home folder in a path, also below a mount; () where there is none."""
        if parts[:1] == ("root",):
            return parts[:1]
        known = next((home for home in self.homes if parts[: len(home)] == home), None)
        at = next((at for at, part in enumerate(parts[:-1]) if part in _HOMES and at < 4), None)
        return known or (parts[: at + 2] if at is not None and parts[0] != "usr" else ())

    def _top(self, parts: tuple[str, ...]) -> int:
        """How many parts of a path are above all that a project is."""
        home = self._home(parts)
        least = len(home) + 1 if home else 3 if parts[0] in _OF_DISKS else 2
        return min(least, len(parts))


def _parts(path: str) -> tuple[str, ...]:
    path = re.sub(r"^(?:[A-Za-z]:|~[\w.-]*)(?=[/\\])", "", path)
    return tuple(part for part in _SEPARATOR.split(path) if part and part != ".")


def _common(folders: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    first, last = min(folders), max(folders)
    same = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), None)
    return first[: min(len(first), len(last)) if same is None else same]


def _library(parts: tuple[str, ...]) -> int | None:
    """From which part on a path is one of a package, or of Python's own library; None where it is neither."""
    for at, part in enumerate(parts[:-1]):
        if part in PACKAGES:
            return at
        if _PYTHON.fullmatch(part) and (part == "Lib" or (at and parts[at - 1].startswith("lib"))):
            return at if part == "Lib" else at - 1
    return None


def _is_public(parts: tuple[str, ...]) -> bool:
    """Does every machine have this path?"""
    first, second = (parts + ("", ""))[:2]  # noqa: RUF005 mypy does not understand it otherwise
    if first == "usr" and second == "local":
        return len(parts) == 2 or _OF_LOCAL.fullmatch(parts[2]) is not None
    if first == "usr":
        return len(parts) == 1 or _OF_USR.fullmatch(second) is not None
    if first == "opt":
        return _OF_OPT.fullmatch(second) is not None
    if first == "tmp":
        return second.startswith("ipykernel_")
    return first in _LINUX and second != "shm"

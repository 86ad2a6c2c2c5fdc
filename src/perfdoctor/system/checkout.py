"""Which commit of the user's project is checked out, what lies between two, and where in it is a line of code?"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.system import tool_process

#: A status of a very large checkout on a slow disk takes longer; then the program is started without the answer.
_LIMIT_S = 3.0
#: Nothing else may reach git as a commit: an option would begin with a dash.
_COMMIT = regex(r"[0-9a-f]{7,64}")
_VARIABLES = ("PATH", "HOME", "XDG_CONFIG_HOME", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM")
#: `train.py(10): forward`
_LINE = regex(r"(?P<file>[^\n]*?\.py)\((?P<line>\d{1,9})\): ")
_SEPARATORS = regex(r"[/:\\]")
_SLOW = PerfdoctorError("git takes too long", do="Run git status in the project, to see why.")


class Checkout(Struct, frozen=True):
    """`dirty`: does a file that git tracks differ from the commit? `branch` is "" where none is checked out."""

    commit: str
    dirty: bool
    branch: str


def checkout(folder: Path) -> Checkout | None:
    """The checkout around a folder; None where there is none, or no git, or no commit yet."""
    status = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    facts: dict[str, str] = {}
    dirty = False
    for line in (status or "").splitlines():
        if line.startswith("# "):
            name, _, value = line[2:].partition(" ")
            facts[name] = value
        else:
            dirty = True
    commit, branch = facts.get("branch.oid", ""), facts.get("branch.head", "")
    if not _COMMIT.fullmatch(commit):
        return None
    return Checkout(commit, dirty, "" if branch == "(detached)" else branch)


def committed_unix_s(folder: Path, commit: str) -> int | None:
    """When the commit was made, in s since 1970; None where that is not known here."""
    shown = _git(folder, "show", "--no-patch", "--format=%ct", commit) if _COMMIT.fullmatch(commit) else None
    return int(shown) if shown and shown.strip().isdecimal() else None


def commits_between(folder: Path, before: str, after: str, at_most: int) -> tuple[tuple[str, str], ...] | None:
    """(short id, subject) of the commits in `after` and not in `before`, newest first; None where git knows neither."""
    if not (_COMMIT.fullmatch(before) and _COMMIT.fullmatch(after)):
        return None
    log = _git(folder, "log", f"--max-count={at_most}", "--format=%h%x00%s", f"{before}..{after}", "--")
    if log is None:
        return None
    rows = (line.partition("\0") for line in log.splitlines())
    return tuple((short, subject) for short, _, subject in rows)


def repository(folder: Path) -> tuple[Path, str] | None:
    """The root of the checkout around a folder, and the repository's name; None where there is none, or no git.

    The name is the last part of the address that it was cloned from, else that of its first checkout's folder: clones,
    worktrees and a CI's checkouts of one commit have it alike.
    """
    shown = _git(folder, "rev-parse", "--show-toplevel", "--git-common-dir")
    lines = (shown or "").splitlines()
    if len(lines) != 2:
        return None
    root, common = Path(lines[0]), (folder / lines[1]).resolve()
    address = (_git(folder, "config", "--get", "remote.origin.url") or "").strip().rstrip("/").removesuffix("/.git")
    own = common.parent.name if common.name == ".git" else root.name
    return root, _SEPARATORS.split(address)[-1].removesuffix(".git") or own


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints. It takes no locks, and runs no program that the checkout's configuration names."""
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments]
    environment = {**tool_process.environment(*_VARIABLES), "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        code, output, _ = tool_process.run(
            command, environment=environment, timeout_s=_LIMIT_S, not_started="Install git.", too_slow=_SLOW
        )
    except PerfdoctorError:
        return None
    return output.decode("utf-8", "replace") if code == 0 else None


# --- where in the checkout? ---


def workspace() -> Path:
    """Where a job of GitHub Actions has the checkout; elsewhere its root around the working directory."""
    return Path(os.environ.get("GITHUB_WORKSPACE") or root_of(Path.cwd()))


def root_of(folder: Path) -> Path:
    """The root of the git checkout around the folder; the folder itself where there is none."""
    whole = folder.resolve()
    return next((each for each in (whole, *whole.parents) if (each / ".git").exists()), whole)


def places(lines: Iterable[str], command: str, root: Path) -> dict[str, tuple[str, int]]:
    """File and line in the checkout of each of these lines (`train.py(10): forward`), and of the program, by ""."""
    script = script_of(command, root)
    found = {"": script} if script else {}
    beside = (root / script[0]).parent if script else Path.cwd()
    return found | {line: place for line in lines if line and (place := place_of(line, root, beside))}


def script_of(command: str, root: Path) -> tuple[str, int] | None:
    """The file that the command runs, relative to the root, and its first line; None where it is not there."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    script = next((word for word in words if word.endswith(".py")), "")
    return _inside(Path(script), 1, root) if script else None


def place_of(text: str, root: Path, beside: Path) -> tuple[str, int] | None:
    """File relative to the root, and line, of `train.py(10): forward`, whose path is cut at a folder of `sys.path`.

    `beside`: the program's folder, which is one of them. None where there is no such file in the checkout.
    """
    found = _LINE.match(text)
    if not found:
        return None
    for base in (Path(), beside):
        place = _inside(base / found["file"], max(int(found["line"]), 1), root)
        if place:
            return place
    return None


def _inside(path: Path, line: int, root: Path) -> tuple[str, int] | None:
    try:
        whole = path.resolve()
        if not whole.is_file() or not whole.is_relative_to(root.resolve()):
            return None
        return whole.relative_to(root.resolve()).as_posix(), line
    except (OSError, ValueError):  # a name that no file can have
        return None

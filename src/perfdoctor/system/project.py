"""Of which project is a program, and which of its words make it another program?

Runs of one program are compared with each other: from one checkout to the next, on any machine, whatever only one run
is called by. So a repository is known by its name and not by where it lies, and of the command's words those do not
count that only say where this run writes, how it is named, which port it uses and from which seed it draws: none of
them changes what a step does. Every other word counts, as a batch size, a model or a number of workers does. Where it
is not certain it counts: a trend in two pieces can be joined (`--program`), one of two programs says something false.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.system.checkout import repository
from perfdoctor.system.masking import masked_command
from perfdoctor.system.paths import HOME, without_home

#: What stands in a program's words for what only one run is called by.
OF_ONE_RUN = "…"
_ID_DIGITS = 12

_PYTHON = regex(r"^(?:python|pypy)[\d.]*t?$")
#: A word `name=value`, as `--seed=1`, or as configurations are overridden: `trainer.seed=1`, `+run.id=x`.
_ASSIGNED = regex(r"^([-+]{0,2}[A-Za-z][\w.\-]*)=(.*)$")
_OPTION = regex(r"^--?[A-Za-z][\w.\-]*$")
_WORDS = regex(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_NUMBER = regex(r"^-?\d+(?:\.\d+)?(?:e-?\d+)?$")
#: Options with these last words are of one run, whatever their value.
_LAST = frozenset({"seed", "port", "timestamp", "uuid"})
#: Options that name or place what one run writes: one of the first with one of the second.
_WRITTEN = frozenset({
    "output", "out", "log", "logs", "logging", "save", "saving", "result", "results", "work", "trace", "dump",
    "tensorboard", "tb", "wandb", "mlflow",
})  # fmt: skip
_PLACE = frozenset({
    "dir", "directory", "folder", "path", "file", "filename", "root", "name", "id", "prefix", "url", "uri", "group",
    "project", "tags", "notes",
})  # fmt: skip
#: Options that name a run. An experiment's file is a configuration, and is not one of them.
_RUN = frozenset({"run", "exp", "experiment", "job", "rdzv", "session"})
_NAMED = frozenset({"dir", "directory", "folder", "name", "id", "group", "endpoint"})
#: The same in one word, as they are often written.
_WHOLE = frozenset({
    "o", "out", "output", "outdir", "outputdir", "outpath", "logdir", "logfile", "savedir", "savepath", "workdir",
    "rundir", "runname", "runid", "resultdir", "resultsdir", "save",
})  # fmt: skip
#: In any word: a moment, an id that nobody wrote, a folder that `tempfile` or `mktemp` named.
_MOMENT_OR_ID = regex(
    r"(?<!\d)20\d\d[-_.]?[01]\d[-_.]?[0-3]\d(?:[-_.T ]?\d\d[-_:.h]?\d\d(?:[-_:.m]?\d\d)?)?(?!\d)"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|(?<=/tmp)[a-z0-9_]{8}(?=/|$)|(?<=/tmp\.)[A-Za-z0-9]{6,10}(?=/|$)"
)


class Project(Struct, frozen=True):
    """`name`: the repository and the folder in it in which the program was started; without one the folder's name.

    `id`: the same as a hash, of a folder outside of repositories with its whole path. `program`: the words of the
    command that make it another program. None of them holds a user's name or home.
    """

    name: str
    id: str
    program: str = ""


def project_of(folder: Path, command: Sequence[str] = ()) -> Project:
    """The project of a program that is started in this folder by the `command`."""
    folder = folder.resolve()
    found = repository(folder)
    if found is None:
        known: tuple[str, ...] = ("folder", without_home(str(folder)))
        name, root = _shown(folder, folder.name or str(folder)), folder
    else:
        root, named = found
        named = _shown(root, named)
        inside = folder.relative_to(root).as_posix() if folder.is_relative_to(root) else "."
        known = ("repository", named, inside)
        name = named if inside == "." else f"{named}/{inside}"
    digest = hashlib.sha256("\0".join(known).encode("utf-8", "surrogateescape")).hexdigest()
    words = [_in_folder(word, folder, root) for word in masked_command(command)]
    return Project(name, digest[:_ID_DIGITS], program_of(words))


def project_from(document: object) -> Project | None:
    """The project in a manifest; None where it has none, or what is there is damaged."""
    match document:
        case {"name": str(name), "id": str(known), "program": str(program)} if known:
            return Project(name, known, program)
    return None


def _shown(folder: Path, name: str) -> str:
    home = os.environ.get("HOME", "").rstrip("/")
    return HOME if home and (str(folder) == home or name == Path(home).name) else name


def _in_folder(word: str, folder: Path, root: Path) -> str:
    """A path into the project as it is from the folder: `train.py` of `./train.py`, and of its whole path."""
    if "/" not in word or not (folder / word).exists():
        return without_home(word)
    whole = Path(os.path.normpath(folder / word))
    return os.path.relpath(whole, folder) if whole.is_relative_to(root) else without_home(word)


# --- the words of a command ---


def program_of(words: Sequence[str]) -> str:
    """The words by which a program is known, as one text."""
    if not words:
        return ""
    first = Path(words[0]).name if words[0].startswith(("/", HOME)) or _is_python(words[0]) else words[0]
    return " ".join(_lasting(["python" if _is_python(words[0]) else first, *words[1:]]))


def _is_python(word: str) -> bool:
    """Another interpreter, or that of another environment, is no other program: versions are known beside it."""
    return bool(_PYTHON.match(Path(word).name))


def _lasting(words: Sequence[str]) -> Iterator[str]:
    option = ""
    for word in words:
        assigned = _ASSIGNED.match(word)
        if assigned:
            value = OF_ONE_RUN if _is_of_one_run(assigned[1], assigned[2]) else _without_moments(assigned[2])
            yield f"{assigned[1]}={value}"
        elif option and not word.startswith("-") and _is_of_one_run(option, word, apart=True):
            yield OF_ONE_RUN
        else:
            yield _without_moments(word)
        option = word if _OPTION.match(word) else ""


def _without_moments(word: str) -> str:
    return _MOMENT_OR_ID.sub(OF_ONE_RUN, word)


def _is_of_one_run(option: str, value: str, *, apart: bool = False) -> bool:
    """Does the option only name or place one run? `apart`: the value is the next word, which may be none of it."""
    words = [word.lower() for word in _WORDS.findall(option)]
    if not words:
        return False
    is_number = bool(_NUMBER.match(value))
    if words[-1] in _LAST:
        return is_number or not apart
    names = set(words)
    if is_number and words[-1] != "id":
        return False  # a size, as of `--output 64`, or an interval
    return (
        "".join(words) in _WHOLE
        or bool(names & _WRITTEN and names & _PLACE)
        or bool(names & _RUN and names & _NAMED)
        or (words[0] == "resume" and "/" in value)
    )

"""Where is a report written, and which files must never be overwritten?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.cli import say
from perfdoctor.errors import PerfdoctorError
from perfdoctor.system.paths import draft

if TYPE_CHECKING:
    from perfdoctor.system.remote import RemoteFile

#: Our files begin with these; other files are the user's.
HTML_MARKER = b"<!-- perfdoctor report"
METRICS_MARKER = b"# HELP perfdoctor_"
_HEAD = 1024
#: Folders of devices: nothing is put beside these.
_SYSTEM = (("dev",), ("proc",))
_CHOOSE = "Choose a file in a folder that you may write to."


def default_html(paths: Sequence[Path | RemoteFile]) -> Path:
    """`report.html` in a run folder that is on this machine, else `<stem>.perfdoctor.html` in the working directory."""
    first = paths[0]
    if not isinstance(first, Path) or not first.is_dir():
        return Path(f"{_stem(first.name) or 'report'}.perfdoctor.html")
    if (first / "run.json").is_file():
        from perfdoctor.system.remote import is_view

        if not is_view(first):
            return first / "report.html"
    return Path(f"{first.resolve().name or 'report'}.perfdoctor.html")


def _stem(name: str) -> str:
    """`rank0` of `rank0.pt.trace.json.gz`."""
    from perfdoctor.readers import formats

    endings = (".gz", ".pt", *formats.endings())
    while True:
        ending = next((ending for ending in endings if name.lower().endswith(ending) and len(name) > len(ending)), None)
        if ending is None:
            return name
        name = name[: -len(ending)]


def is_input(target: Path, inputs: Sequence[Path | RemoteFile]) -> bool:
    here = [path for path in inputs if isinstance(path, Path)]
    return any(target.exists() and path.exists() and target.samefile(path) for path in here)


def check_ours(option: str, target: Path, marker: bytes, inputs: Sequence[Path | RemoteFile]) -> None:
    """Refuse, before the analysis, to overwrite a recording or a file that does not hold the `marker` of ours.

    A script needs the name that it gave, so no other is chosen.
    """
    check_free(option, target, inputs, lambda path: _is_ours(path, marker), by="perfdoctor")


def check_free(
    option: str, target: Path, inputs: Sequence[Path | RemoteFile], is_ours: Callable[[Path], bool], *, by: str
) -> None:
    """Raise PerfdoctorError if the target is a recording, or a file that is not ours. `by`: who writes such files."""
    if is_input(target, inputs):
        raise PerfdoctorError(f"{option} {target} is one of the recordings", do="Choose another file.")
    if target.is_file() and not is_ours(target):
        raise PerfdoctorError(
            f"{option} {target} exists and was not written by {by}", do="Choose another file, or remove it."
        )


def free_html(target: Path, inputs: Sequence[Path | RemoteFile]) -> Path:
    """The target; `name-2`, `name-3`, … where a file that is not ours has that name."""
    ending = next((each for each in (".perfdoctor.html", ".html") if target.name.endswith(each)), target.suffix)
    candidate, number = target, 1
    while is_input(candidate, inputs) or (candidate.is_file() and not _is_ours(candidate, HTML_MARKER)):
        number += 1
        candidate = target.with_name(f"{target.name.removesuffix(ending)}-{number}{ending}")
    return candidate


def is_page(path: Path) -> bool:
    """Did perfdoctor write this page?"""
    return _is_ours(path, HTML_MARKER)


def _is_ours(path: Path, marker: bytes) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return marker in head or not head


def write(target: Path, render: Callable[[], str]) -> None:
    """Write the file whole or not at all. Raises OSError. A device such as /dev/null is written to directly."""
    with place(target) as made:
        made.write_text(render(), "utf-8")


def place(target: Path) -> AbstractContextManager[Path]:
    """Where the content of `target` is written to: a draft beside it, or a device or pipe itself.

    A link becomes the file, whatever it leads to: others may have laid it there. `/dev/stdout` is one of the system.
    """
    if target.absolute().parts[1:2] in _SYSTEM:
        return nullcontext(target)
    return draft(target) if target.is_symlink() or target.is_file() or not target.exists() else nullcontext(target)


def written(option: str, target: Path, render: Callable[[], str], do: str = _CHOOSE) -> None:
    """Write the file whole or not at all. Raises PerfdoctorError, with this `do`, where it cannot be written."""
    try:
        write(target, render)
    except OSError as error:
        raise unwritable(f"{option} {target}", error, do) from error


def page_written(target: Path, render: Callable[[], str], *, is_asked: bool, do: str = _CHOOSE) -> bool:
    """Write the page whole or not at all, and return whether it could be written; a line says why it could not.

    Raises PerfdoctorError, with this `do`, if a page that the user asked for cannot be written.
    """
    try:
        write(target, render)
    except OSError as error:
        if is_asked:
            raise unwritable(f"--html {target}", error, do) from error
        say.note(f"no report written: {target}: {error.strerror or error}")
        return False
    return True


def unwritable(what: object, error: Exception, do: str = _CHOOSE) -> PerfdoctorError:
    """The error that says why `what`, a file or a folder, cannot be written."""
    why = error.strerror if isinstance(error, OSError) else None
    return PerfdoctorError(f"{what} cannot be written: {why or error}", do=do)

"""What is copied of a recording, and how: each file by what it is, and what nobody understands not at all."""

from __future__ import annotations

import gzip
import os
import pickle
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from itertools import chain, count
from pathlib import Path

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.patterns import regex
from perfdoctor.readers import formats, plain_pickle, text_rows
from perfdoctor.readers.nsys import export as nsys_export
from perfdoctor.readers.nsys.tables import Database
from perfdoctor.scrubbing import databases, plain_data, streams
from perfdoctor.scrubbing.known import LONGEST_BOUND
from perfdoctor.scrubbing.texts import Texts
from perfdoctor.system import tool_process
from perfdoctor.system.paths import draft
from perfdoctor.system.progress import Progress
from perfdoctor.vocabulary.rulebook import load_rules

_OF_REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")
_PAGE = b"<!-- perfdoctor report"
#: As fast as traces are read: the slowest level makes them a tenth smaller.
_LEVEL = 6


class Copied(Struct, frozen=True):
    """`written`: the copy. `removed`: how many different things of each kind. `left_out`: files, and why each.

    `damaged`: files that break off, or are no JSON somewhere, as their copies do.
    """

    written: Path
    files: int
    removed: dict[str, int]
    left_out: dict[str, str]
    damaged: tuple[str, ...] = ()


class _Source(Struct, frozen=True):
    """A file that is copied to the `name` below the copy. `read`: itself, or what was exported of it."""

    name: Path
    read: Path
    kind: str


def scrubbed(source: Path, target: Path, progress: Progress, *, keep_paths: bool = False) -> Copied:
    """Copy a file or folder to `target`, which must not exist, without what is private; whole or not at all.

    Raises PerfdoctorError where a file cannot be cleaned and nothing else is there to copy, UsageError for a target
    that is in the way.
    """
    _check_free(source, target)
    cited = frozenset(each.rstrip(".") for rule in load_rules().values() for each in rule.references)
    texts, left_out, damaged = Texts(cited, keep_paths=keep_paths), dict[str, str](), list[Path]()
    with tempfile.TemporaryDirectory(prefix="perfdoctor-") as scratch:
        sources = list(_sources(source, Path(scratch), progress, left_out))
        if not sources:
            raise _nothing(source, left_out)
        sources = list(_learned(sources, texts, progress, left_out, damaged, is_alone=not source.is_dir()))
        if not sources:
            raise _nothing(source, left_out)
        texts.settle()
        try:
            written, count = _written(source, sources, target, texts, progress, left_out)
        except OSError as error:
            raise PerfdoctorError(
                f"{target} cannot be written: {error.strerror or error}",
                do="Choose a place that you may write to with -o.",
            ) from error
    cut = tuple(name for each in damaged if (name := each.as_posix()) not in left_out)
    return Copied(written, count, texts.stand_ins.counts(), left_out, cut)


def _check_free(source: Path, target: Path) -> None:
    if not source.exists():
        raise PerfdoctorError(f"{source} does not exist", do="Check the path.")
    if target.exists() or target.is_symlink():
        raise UsageError(
            f"{target} exists already", do="Name a file or folder that does not exist: nothing is overwritten."
        )
    if source.is_dir() and target.absolute().resolve().is_relative_to(source.resolve()):
        raise UsageError(f"{target} lies in {source}", do="Name a place outside of the folder that is copied.")


def _nothing(source: Path, left_out: dict[str, str]) -> PerfdoctorError:
    for name, why in left_out.items():
        return PerfdoctorError(f"there is no copy of {name}", do=why[0].upper() + why[1:])
    return PerfdoctorError(f"{source} holds no file", do="Check the path.")


# --- which files? ---


def _sources(source: Path, scratch: Path, progress: Progress, left_out: dict[str, str]) -> Iterator[_Source]:
    """Yield what is copied, in the order of names. No link is followed."""
    if not source.is_dir():
        yield from _source(source, Path(source.name), scratch, progress, left_out, is_alone=True)
        return

    def unread(error: OSError) -> None:
        name = _shown(Path(os.fsdecode(error.filename)), source)
        left_out[source.name if name == "." else name] = "a folder that cannot be read"

    names: set[Path] = set()
    for folder, folders, files in os.walk(source, onerror=unread):
        folders.sort()
        for name in sorted(each for each in folders if (Path(folder) / each).is_symlink()):
            left_out[_shown(Path(folder) / name, source)] = "a link"
        for name in sorted(files):
            path = Path(folder) / name
            for each in _source(path, path.relative_to(source), scratch, progress, left_out, is_alone=False):
                if each.name in names:
                    left_out[each.name.as_posix()] = "the export that was made of a report beside it takes its place"
                else:
                    names.add(each.name)
                    yield each


def _shown(path: Path, source: Path) -> str:
    return path.relative_to(source).as_posix()


def _source(
    path: Path, name: Path, scratch: Path, progress: Progress, left_out: dict[str, str], *, is_alone: bool
) -> Iterator[_Source]:
    try:
        if (path.is_symlink() and not is_alone) or not stat.S_ISREG(path.stat().st_mode):
            left_out[name.as_posix()] = "a link, or no file"
            return
        kind = _kind(path)
    except (OSError, PerfdoctorError) as error:
        left_out[name.as_posix()] = error.what if isinstance(error, PerfdoctorError) else "it cannot be read"
        return
    if is_alone and kind == "text" and formats.of_named(path) is None:
        raise PerfdoctorError(
            f"{path} is no recording that perfdoctor reads", do="Name a recording, a run folder or a diagnosis.json."
        )
    if kind == "report":
        yield from _exported(path, name, scratch, progress, left_out, is_alone=is_alone)
    elif kind in _HOW:
        yield _Source(name, path, kind)
    else:
        left_out[name.as_posix()] = _WHY.get(kind, "bytes that are not understood")


#: How files are cleaned, by what they are.
_HOW = ("json", "text", "sqlite", "pickle")
_WHY = {
    "page": "a page, made anew by perfdoctor analyze COPY",
    "ncu": "a binary report of Nsight Compute: export it as text, ncu --import FILE --page raw --csv, and clean that",
    "zip": "an archive: unpack it, and clean the folder",
    "summary": "a summary of ranks: clean the recordings, and make it anew with perfdoctor summarize",
    "tables": "tables in another format: export them as SQLite, nsys export --type sqlite",
}  # fmt: skip
#: Bytes that stand in text: all but control characters.
_OF_TEXT = bytes(range(32, 256)) + b"\t\n\r\f\x1b"


def _kind(path: Path) -> str:
    head = formats.head_of(path)
    row = formats.of_head(head)
    known = {
        "report": "report",
        "nsys": "sqlite",
        "ncu-report": "ncu",
        "zip": "zip",
        "rank": "summary",
        "machine": "summary",
    }
    if row and row.kind in known:
        return known[row.kind]
    if plain_pickle.is_pickle(head):
        return "pickle"
    if head.startswith((b"PAR1", b"ARROW1")):
        return "tables"
    if _PAGE in head[:1024]:
        return "page"
    if b"\0" in head or not _is_text(head):
        return ""
    return "json" if text_rows.is_json(head) else "text"


def _is_text(head: bytes) -> bool:
    """Is it text of some encoding that keeps ASCII? Some letters may be of another one than UTF-8."""
    return not head.translate(None, _OF_TEXT)


def _exported(
    path: Path, name: Path, scratch: Path, progress: Progress, left_out: dict[str, str], *, is_alone: bool
) -> Iterator[_Source]:
    """The export of a report, which is cleaned instead: what lies beside it, or what nsys makes now."""
    export = name.with_suffix(".sqlite")
    if not is_alone and _is_whole_database(path.with_suffix(".sqlite")):
        left_out[name.as_posix()] = f"it cannot be cleaned in place; {export.name} beside it is, and holds the same"
        return
    if tool_process.find("nsys") is None:
        command = f"nsys export --type sqlite --include-blobs=true -o {export.name} {name.name}"
        left_out[name.as_posix()] = (
            f"it cannot be cleaned in place, and there is no nsys here to export it. Where there is one: {command}, "
            f"then perfdoctor scrub {export.name} -o COPY"
        )
        return
    progress(f"Exporting {path.name} with nsys")
    try:
        made = nsys_export.export(path, cache=scratch, whole=True)
    except PerfdoctorError as error:
        if is_alone:
            raise
        left_out[name.as_posix()] = error.what
        return
    left_out[name.as_posix()] = "it cannot be cleaned in place; its export, cleaned, takes its place"
    yield _Source(export, made, "sqlite")


def _is_whole_database(path: Path) -> bool:
    """Is it a file that is copied, and not one that is left out as a link, as damaged or as something else?"""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with closing(Database.open(path)) as database:
            return not database.is_damaged and bool(database.tables)
    except (PerfdoctorError, OSError):
        return False


# --- look, then write ---


def _learned(
    sources: Sequence[_Source], texts: Texts, progress: Progress, left_out: dict[str, str], damaged: list[Path], *,
    is_alone: bool,
) -> Iterator[_Source]:  # fmt: skip
    """Look at all files; yield those that can be read. Raises the error of one that `is_alone`."""
    for source in sources:
        progress(f"Reading {source.name.name}")
        for part in source.name.parts:
            texts.learn_file(part)
        try:
            is_whole = _look(source, texts)
        except (PerfdoctorError, OSError, RecursionError) as error:
            if is_alone and isinstance(error, PerfdoctorError):
                raise
            left_out[source.name.as_posix()] = error.what if isinstance(error, PerfdoctorError) else "it cannot be read"
        else:
            damaged += [] if is_whole else [source.name]
            yield source


def _look(source: _Source, texts: Texts) -> bool:
    """Learn what a file names. False of one that breaks off and is copied all the same."""
    if source.kind == "sqlite":
        databases.learn(source.read, texts)
    elif source.kind == "pickle":
        plain_data.learn(plain_pickle.load(source.read), texts)
    else:
        return streams.learn(source.read, texts, is_json=source.kind == "json")
    return True


def _written(
    source: Path, sources: Sequence[_Source], target: Path, texts: Texts, progress: Progress, left_out: dict[str, str]
) -> tuple[Path, int]:
    names = _clean_names(sources, texts)  # before any text, which may name them
    if not source.is_dir():
        only = sources[0]
        if only.kind == "sqlite" and target.suffix in _OF_REPORTS:
            target = target.with_suffix(".sqlite")
            _check_free(source, target)
        with draft(target) as made:
            _write(only, made, texts, progress)
            _check(only, made, texts)
        return target, 1
    written = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with draft(target, folder=True) as folder:
        for each in sources:
            made = folder / names[each.name]
            made.parent.mkdir(parents=True, exist_ok=True)
            try:
                _write(each, made, texts, progress)
                _check(each, made, texts)
            except PerfdoctorError as error:
                made.unlink(missing_ok=True)
                left_out[each.name.as_posix()] = error.what
            else:
                written += 1
    return target, written


def _clean_names(sources: Sequence[_Source], texts: Texts) -> dict[Path, Path]:
    """What each file and folder is called in the copy: no two alike that differ in what was removed alone."""
    names: dict[Path, Path] = {Path(): Path()}
    taken: set[Path] = set()
    for each in (place for source in sources for place in (*reversed(source.name.parents), source.name)):
        if each not in names:
            folder, shown = names[each.parent], texts.file_name(each.name)
            free = chain([folder / shown], (folder / f"{number}-{shown}" for number in count(2)))
            names[each] = next(name for name in free if name not in taken)
            taken.add(names[each])
    return names


def _write(source: _Source, target: Path, texts: Texts, progress: Progress) -> None:
    progress(f"Cleaning {source.name.name}")
    if source.kind == "sqlite":
        lost = databases.copy(source.read, target, texts)
        if lost:
            raise PerfdoctorError(
                f"{source.name.name} is damaged: {', '.join(lost[:4])} cannot be read", do="Export it again."
            )
    elif source.kind == "pickle":
        with target.open("wb") as stream:
            pickle.dump(plain_data.cleaned(plain_pickle.load(source.read), texts), stream, protocol=4)
    else:
        pieces = streams.cleaned(source.read, texts, is_json=source.kind == "json")
        with target.open("wb") as plain:
            packed = (
                gzip.GzipFile("", "wb", _LEVEL, plain, mtime=0)
                if streams.is_packed(source.read)
                else nullcontext(plain)
            )
            with packed as stream:
                stream.writelines(pieces)


class _Search(Texts):
    """Whoever learns the texts of a copy with it finds what is private in one of them."""

    def __init__(self, bounded: Iterable[re.Pattern[bytes]]) -> None:
        super().__init__()
        self.has_found = False
        self._bounded = [regex(each.pattern.decode("utf-8", "surrogateescape")) for each in bounded]

    def learn(self, text: str, key: str = "") -> None:  # noqa: ARG002 as that of all texts
        self.has_found = self.has_found or any(each.search(text) for each in self._bounded)

    def learn_command(self, words: Sequence[str]) -> None:
        """Its words are texts as well."""


def _check(source: _Source, made: Path, texts: Texts) -> None:
    """Search the copy for what it must not hold. Raises PerfdoctorError where any of it is there, for any reason."""
    if not is_clean(made, texts, source.kind):
        raise PerfdoctorError(
            f"{source.name.name} still names a host, a folder or a secret after it was cleaned",
            do="Clean it by hand; please report this, without the file.",
        )


def is_clean(made: Path, texts: Texts, kind: str = "text") -> bool:
    """Does no text that is known to be private stand in the file?"""
    is_text, private = kind in ("text", "json"), texts.private()
    reach = max(map(len, private), default=0) + LONGEST_BOUND
    searched, found = b"\n", list[re.Pattern[bytes]]()
    with made.open("rb") as stream:
        for piece in chain(streams.Opened(stream).pieces(), [b"\n" * reach]) if private else ():
            searched = searched[-reach - 1 :] + piece
            for name, bounded in private.items():
                if _holds(searched, len(searched) - reach, name, bounded if is_text else None):
                    found.append(bounded)
            if found and is_text:
                return False
    if not found:
        return True
    search = _Search(found)  # in other files a text may stand directly behind another one
    _look(_Source(Path(made.name), made, kind), search)
    return not search.has_found


def _holds(searched: bytes, end: int, name: bytes, bounded: re.Pattern[bytes] | None) -> bool:
    """Does the name begin in front of `end`, and behind the first byte? Its bounds are then all there. None: anyhow."""
    at = searched.find(name, 1, end + len(name) - 1)
    while at > 0 and bounded is not None and not bounded.match(searched, at):
        at = searched.find(name, at + 1, end + len(name) - 1)
    return at > 0

"""Where does the history of a project lie, and how is it opened, written by many at once, and only read?

The file is in WAL mode, so that readers and a writer do not wait for each other. Each run is one transaction, which is
on the disk when it is reported as stored. Writers queue: the file's lock is waited for, and asked for again.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from perfdoctor.errors import PerfdoctorError
from perfdoctor.history import schema
from perfdoctor.system.own_process import database

if TYPE_CHECKING:
    from sqlite_utils.db import Database

#: A file, or `off`: then nothing is stored.
VARIABLE = "PERFDOCTOR_HISTORY"
OFF = "off"
FILE = "history.db"
_ROOT_HAS = (".git", "pyproject.toml")
#: Eight writers of a thousand runs each wait for less than a second. Whoever is not served within this has a lock in
#: front of it that nobody gives back, and its training should not wait any longer.
WAIT_S = 30.0
#: SQLite asks again by itself for so long, at growing distances.
_BUSY_S = 5.0
_BUSY = ("is locked", "locking protocol")
#: What is said where the files of WAL cannot be made beside the history.
_NO_ROOM_BESIDE = ("unable to open", "readonly database")
#: File systems of a network, by mountinfo's names: WAL needs memory that all its users share.
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "fuse.sshfs", "wekafs")

Result = TypeVar("Result")


def history_file(start: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """`.perfdoctor/history.db` at the root of the project around `start`, else in the user's data folder.

    None where the user wants none. RuntimeError where neither a project nor a home is known.
    """
    given = environment.get(VARIABLE, "")
    if given:
        return None if given == OFF else Path(given).expanduser()
    root = project_root(start)
    if root:
        return root / schema.FOLDER / FILE
    data = environment.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "perfdoctor" / FILE


def project_root(start: Path) -> Path | None:
    """The nearest folder, from `start` upwards, that a git checkout or a pyproject.toml makes a project."""
    start = start.resolve()
    return next((each for each in (start, *start.parents) if any((each / name).exists() for name in _ROOT_HAS)), None)


def _make_folder(file: Path) -> None:
    """Make the folder of the file. A `.perfdoctor` keeps itself out of git: else each run would change the checkout."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.parent.name == schema.FOLDER and not (ignore := file.parent / ".gitignore").exists():
        ignore.write_text("*\n", "utf-8")


def write(db: Database, work: Callable[[Database], Result]) -> Result:
    """The result of `work`, done in one transaction: all of it, or nothing. Another writer is waited for."""

    def once() -> Result:
        db.conn.execute("BEGIN IMMEDIATE")
        try:
            result = work(db)
            db.conn.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a full disk has ended the transaction already
                db.conn.rollback()
            raise
        return result

    return _patiently(once)


@contextlib.contextmanager
def written(file: Path) -> Iterator[Database]:
    """The history to write to, made or brought up to date first, and closed afterwards.

    What SQLite says, inside too, becomes a PerfdoctorError.
    """
    with _explained(file):
        _make_folder(file)
        db = _patiently(lambda: _opened(file))
        try:
            yield db
        finally:
            db.close()


@contextlib.contextmanager
def read(file: Path, *, in_place: bool = True) -> Iterator[Database]:
    """The history as it is, closed afterwards. What cannot be brought up to date on the disk, is in memory.

    `in_place`: may the file be brought up to date, and may files of WAL be made beside it? What SQLite says, inside
    too, becomes a PerfdoctorError.
    """
    with _explained(file):
        db = _current(existing(file), in_place=in_place)
        try:
            yield db
        finally:
            db.close()


def existing(file: Path) -> Path:
    """Return the file unchanged. Raises PerfdoctorError if it does not exist."""
    if not file.exists():
        raise PerfdoctorError(
            f"there is no history yet: {file}",
            do="perfdoctor run writes it, and perfdoctor analyze --save. --db names another file.",
        )
    return file


def _current(file: Path, *, in_place: bool) -> Database:
    db = _patiently(lambda: _opened_to_read(file, in_place=in_place))
    if _version(db) == schema.VERSION or _is_newer(db):
        return db
    if in_place:
        with contextlib.suppress(sqlite3.Error, OSError, PerfdoctorError):
            _patiently(lambda: _opened(file)).close()
            return db
    copy = sqlite3.connect(":memory:")
    db.conn.backup(copy)
    db.close()
    return _migrated(database(copy), file)


# --- opening ---------------------------------------------------------------------------------------------------------


def _opened(file: Path) -> Database:
    connection = sqlite3.connect(file, timeout=_BUSY_S)
    try:
        _check_ours(connection, file)
        if not _on_network(file):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return _migrated(database(connection), file)
    except BaseException:
        connection.close()
        raise


def _opened_to_read(file: Path, *, in_place: bool) -> Database:
    """The file opened to read; as it stands if nothing may be written beside it (not `in_place`), and nobody writes."""
    address = file.resolve().as_uri()
    as_it_stands = not in_place and not file.with_name(f"{file.name}-wal").exists()
    for options in ("mode=ro&immutable=1",) if as_it_stands else ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{address}?{options}", uri=True, timeout=_BUSY_S)
        try:
            _check_ours(connection, file)
            return database(connection)
        except BaseException as error:
            connection.close()
            if not any(text in str(error) for text in _NO_ROOM_BESIDE) or "immutable" in options:
                raise
    raise AssertionError


def _check_ours(connection: sqlite3.Connection, file: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] == schema.APPLICATION_ID:
        return
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise PerfdoctorError(f"{file} is no history of perfdoctor", do="Choose another file.")


def _version(db: Database) -> int:
    return int(db.conn.execute("PRAGMA user_version").fetchone()[0])


def _is_newer(db: Database) -> bool:
    """Did a later perfdoctor write the file? Raises PerfdoctorError where this one may not touch it."""
    if _version(db) <= schema.VERSION:
        return False
    needed, by = db.conn.execute("SELECT works_from, written_by FROM schema").fetchone()
    if needed > schema.VERSION:
        raise PerfdoctorError(
            f"the history was written by perfdoctor {by}, in a format that is unknown here",
            do="Install that version of perfdoctor, or a later one.",
        )
    return True


def _migrated(db: Database, file: Path) -> Database:
    """All missing migrations in one transaction. Of several programs that open the file at once, one makes them.

    `file`: where the history lies, also of a copy in memory.
    """
    if _version(db) != schema.VERSION and not _is_newer(db):
        write(db, lambda db: _migrate(db, file))
    return db


def _migrate(db: Database, file: Path) -> None:
    from perfdoctor import __version__  # noqa: PLC0415

    version, file = _version(db), file.resolve()
    if version >= schema.VERSION:  # another program was first
        return
    for migration in schema.MIGRATIONS[version:]:
        migration(db, file)
    db.conn.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    db.conn.execute(f"PRAGMA user_version = {schema.VERSION}")
    db.conn.execute("CREATE TABLE IF NOT EXISTS schema (version INTEGER, works_from INTEGER, written_by TEXT)")
    db.conn.execute("DELETE FROM schema")
    db.conn.execute("INSERT INTO schema VALUES (?, ?, ?)", (schema.VERSION, schema.WORKS_FROM, __version__))


def _on_network(file: Path) -> bool:
    """Does the file lie on a file system of several machines?"""
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    folder, found = str(file.resolve().parent), ("", "")
    for line in mounts:
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].replace("\\040", " ")
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found[0]):
            found = (point, after.split(" ")[0])
    return found[1] in _NETWORK


# --- waiting, and what went wrong -------------------------------------------------------------------------------------


def _patiently(work: Callable[[], Result]) -> Result:
    """The result of `work`, tried again while another program has the lock."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if not any(text in str(error) for text in _BUSY) or time.monotonic() > until:
                raise
        time.sleep(random.uniform(0.005, 0.05))  # noqa: S311 so that writers that met once do not meet again


@contextlib.contextmanager
def _explained(file: Path) -> Iterator[None]:
    try:
        yield
    except (UnicodeError, MemoryError) as error:  # of a name in its schema, or a row that claims to be of gigabytes
        raise PerfdoctorError(f"the history {file} cannot be used: it is malformed", do=_remedy("malformed")) from error
    except (sqlite3.Error, OSError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise PerfdoctorError(f"the history {file} cannot be used: {what}", do=_remedy(what)) from error


def _remedy(what: str) -> str:
    if "full" in what or "space" in what:
        return "Make room on the disk, or name a file on another one with PERFDOCTOR_HISTORY."
    if "malformed" in what or "not a database" in what:
        return "Move the file away: the next run begins a new one."
    if any(text in what for text in _BUSY):
        return "Another program keeps it locked: close that one."
    return "Name a file that you may write to with PERFDOCTOR_HISTORY; off stores nothing."

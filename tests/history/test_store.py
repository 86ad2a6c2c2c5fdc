"""Nothing that was reported as stored is lost: by many writers, by kill -9, on a full disk, or in an older file."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest
from folders import ROOT
from history.histories import STEP_NS, facts, history, writer

from perfdoctor.errors import PerfdoctorError
from perfdoctor.history import runs, schema, store

#: Files as earlier versions made them: SQL that nothing of today's code writes.
FIRST_VERSION = """
pragma application_id = 1885630307;
pragma user_version = 1;
create table schema (version integer, works_from integer, written_by text);
insert into schema values (1, 1, '0.1.0');
create table runs (id text primary key not null, recorded_at text not null, stored_at text not null, source text not null,
  recording text, program text, command text, folder text, files text, part text, exit_code integer, git_commit text,
  git_dirty integer, git_branch text, git_from text, perfdoctor text, torch text, cuda text, driver text, tools text,
  device text, gpus integer, world_size integer, work text, step_ns integer, recorded_step_ns integer, median_ns integer,
  p10_ns integer, p90_ns integer, steps integer, steps_found_by text, steps_confidence text, step_times_ns text,
  window_ns integer, predicted_low_ns integer, predicted_ns integer, predicted_high_ns integer, predicted_fixed text,
  items text, items_per_second real, mfu real, hfu real, flop_per_step real, peak_memory_bytes integer,
  reserved_memory_bytes integer, verdict text);
create table parts (run_id text not null references runs(id), part text not null, ns integer, primary key (run_id, part));
create table findings (run_id text not null references runs(id), position integer not null, rule text, title text,
  category text, confidence text, symptom_of text, low_ns integer, likely_ns integer, high_ns integer, speedup real,
  summary text, primary key (run_id, position));
insert into runs (id, recorded_at, stored_at, source, program, step_ns, recorded_step_ns, window_ns, step_times_ns)
  values ('aaaaaaaaaaaa', '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z', 'run', 'old.py', 5000000, 5000000, 10, '[4,6]');
insert into parts values ('aaaaaaaaaaaa', 'compute', 10);
"""
SECOND_VERSION = (
    FIRST_VERSION
    + """
pragma user_version = 2;
update schema set version = 2;
create table tags (run_id text not null references runs(id), tag text not null, primary key (run_id, tag));
create table notes (run_id text not null references runs(id), noted_at text not null, note text not null,
  primary key (run_id, noted_at, note));
create table pins (name text not null, run_id text not null references runs(id), pinned_at text, primary key (name, run_id));
insert into pins values ('main', 'aaaaaaaaaaaa', '2026-01-02T00:00:00.000Z');
"""
)
THIRD_VERSION = (
    SECOND_VERSION
    + """
pragma user_version = 3;
update schema set version = 3;
create view partition as select run_id, part, round(1.0 * ns / window_ns, 2) as share from parts join runs on runs.id = run_id;
"""
)
FOURTH_VERSION = THIRD_VERSION + "".join(
    ["pragma user_version = 4; update schema set version = 4;"]
    + [f"drop view if exists {name}; create view {name} as {query};" for name, query in schema.views().items()]
)
OLD = {1: FIRST_VERSION, 2: SECOND_VERSION, 3: THIRD_VERSION, 4: FOURTH_VERSION}


def made_by(script, file):
    with sqlite3.connect(file) as connection:
        connection.executescript(script)
    connection.close()
    return file


def ids(file):
    with sqlite3.connect(file) as connection:
        return {row[0] for row in connection.execute("select id from runs")}


def started(file, count, first=STEP_NS, at_once=1):
    command = [sys.executable, "-c", writer(file, count, first, at_once)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def in_memory(tmp_path):
    """A folder where nobody waits for a disk: 8,000 times that is a minute."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def test_eight_processes_write_a_thousand_runs_each_into_a_new_file_at_once(in_memory):
    file = in_memory / ".perfdoctor" / "history.db"
    writers = [started(file, 1000, STEP_NS + 10_000 * number, at_once=20) for number in range(8)]
    reported = []
    for each in writers:
        output, errors = each.communicate()
        assert each.returncode == 0, errors
        assert errors == ""
        reported += output.split()
    assert len(set(reported)) == 8000
    assert ids(file) == set(reported)
    with sqlite3.connect(file) as connection:
        assert connection.execute("select count(distinct step_ns), count(*) from runs").fetchone() == (8000, 8000)
        assert connection.execute("select count(*) from parts").fetchone() == (16000,)
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)


def killed(file, seed):
    """The ids that a writer reported before SIGKILL; and it is not asked first."""
    process = started(file, 10_000)
    first = process.stdout.readline()
    time.sleep(random.Random(seed).uniform(0, 0.05))
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    whole = (first + rest).rpartition("\n")[0]
    return set(whole.split())


@pytest.mark.parametrize("seed", range(4))
def test_kill_9_loses_nothing_that_was_reported_as_stored(tmp_path, seed):
    file = tmp_path / "history.db"
    reported = killed(file, seed)
    assert reported
    assert reported <= ids(file)
    with sqlite3.connect(file) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        of_each = connection.execute("select count(*) from parts group by run_id").fetchall()
        assert set(of_each) == {(2,)}, "a run without its parts was stored"
    history(file, [facts(9999)])  # and the next writer goes on


def test_a_writer_waits_for_another_one_that_holds_the_file(tmp_path):
    file = history(tmp_path / "history.db", [facts()])
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("begin immediate")
    process = started(file, 1)
    time.sleep(0.5)
    other.execute("commit")
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert output.strip() in ids(file)
    other.close()


def test_who_holds_the_file_for_ever_is_named_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "WAIT_S", 0.2)
    monkeypatch.setattr(store, "_BUSY_S", 0.1)
    file = history(tmp_path / "history.db", [facts()])
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(PerfdoctorError, match="is locked") as caught:
        history(file, [facts(1)])
    assert "\n" not in caught.value.what
    other.close()


@pytest.mark.parametrize("version", OLD)
def test_an_older_file_is_brought_up_to_date_and_keeps_its_runs(tmp_path, version):
    file = history(made_by(OLD[version], tmp_path / "history.db"), [facts()])
    with store.read(file) as db:
        old = runs.stored(db, runs.resolved(db, "aaaa"))
        assert (old.facts["program"], old.step_times_ns, dict(old.parts)) == ("old.py", (4, 6), {"compute": 10})
        assert runs.count(db) == 2
        assert [run.facts["id"] for run in runs.pinned(db, "main")] == (["aaaaaaaaaaaa"] if version > 1 else [])
        assert db.conn.execute("pragma user_version").fetchone() == (schema.VERSION,)
        for view in schema.views():
            assert list(db.query(f"select * from {view}")), view
    with sqlite3.connect(file) as connection:
        tables = "select name, sql from sqlite_master where name like 'overview' or type = 'table' order by name"
        migrated = {name for name, _ in connection.execute(tables)}
    with sqlite3.connect(history(tmp_path / "new.db", [facts()])) as connection:
        assert migrated == {name for name, _ in connection.execute(tables)}


@pytest.mark.parametrize("version", OLD)
def test_an_older_file_is_merged_and_stays_as_it_is(tmp_path, version):
    other = made_by(OLD[version], tmp_path / "other.db")
    before = other.read_bytes()
    with store.written(history(tmp_path / "history.db", [facts()])) as db:
        assert runs.merge(db, other).added == 1
        assert runs.stored(db, runs.resolved(db, "aaaa")).step_times_ns == (4, 6)
    assert other.read_bytes() == before


def test_the_version_that_is_documented_is_that_of_the_file():
    assert f"`PRAGMA user_version` {schema.VERSION})" in (ROOT / "docs" / "history.md").read_text("utf-8")


@pytest.mark.parametrize("version", OLD)
def test_an_older_file_in_a_folder_that_cannot_be_written_to_is_read_all_the_same(tmp_path, version, monkeypatch):
    file = made_by(OLD[version], tmp_path / "history.db")
    before = file.read_bytes()
    monkeypatch.setattr(store, "_opened", lambda file: (_ for _ in ()).throw(sqlite3.OperationalError("readonly")))
    with store.read(file) as db:
        assert [row["program"] for row in runs.listed(db)] == ["old.py"]
        assert db.table("pins").count == (version > 1)
    assert file.read_bytes() == before


def newer(file, works_from):
    with sqlite3.connect(history(file, [facts()])) as connection:
        connection.execute(f"pragma user_version = {schema.VERSION + 1}")
        connection.execute("alter table runs add column of_later text default 'kept'")
        connection.execute("update schema set version = version + 1, works_from = ?, written_by = '9.0'", [works_from])
    connection.close()
    return file


def test_the_runs_of_an_older_history_are_of_the_project_that_it_lies_in(tmp_path):
    for folder, project in ((tmp_path / "vision" / ".perfdoctor", "vision"), (tmp_path / "elsewhere", None)):
        folder.mkdir(parents=True)
        connection = sqlite3.connect(folder / "history.db")
        connection.executescript(FIRST_VERSION)
        connection.close()
        for in_place in (False, True):
            with store.read(folder / "history.db", in_place=in_place) as db:
                (row,) = runs.listed(db)
            assert (row["project"], bool(row["project_id"])) == (project, bool(project))


def test_a_newer_file_is_read_and_written_where_it_says_so(tmp_path):
    file = history(newer(tmp_path / "history.db", works_from=schema.VERSION), [facts(1)])
    with store.read(file) as db:
        assert [row["of_later"] for row in runs.listed(db)] == ["kept", "kept"]
        assert db.conn.execute("pragma user_version").fetchone() == (schema.VERSION + 1,)


def test_a_newer_file_that_an_older_perfdoctor_may_not_touch_is_left_alone(tmp_path):
    file = newer(tmp_path / "history.db", works_from=schema.VERSION + 1)
    for use in (lambda: history(file, [facts(1)]), lambda: store.read(file).__enter__()):
        with pytest.raises(PerfdoctorError, match=r"perfdoctor 9\.0"):
            use()
    assert len(ids(file)) == 1


def test_a_database_of_another_program_is_not_written_to(tmp_path):
    file = made_by("create table users (name text);", tmp_path / "history.db")
    before = file.read_bytes()
    with pytest.raises(PerfdoctorError, match="is no history of perfdoctor"):
        history(file, [facts()])
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_one_line(tmp_path, content):
    file = tmp_path / "history.db"
    file.write_bytes(content)
    for use in (lambda: history(file, [facts()]), lambda: store.read(file).__enter__()):
        with pytest.raises(PerfdoctorError) as caught:
            use()
        assert "\n" not in caught.value.what + caught.value.do


def test_a_name_in_the_schema_that_is_no_text_is_one_line(tmp_path):
    file = history(tmp_path / "history.db", [facts()])
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    file.write_bytes(file.read_bytes().replace(b"step_times_ns", b"step_times_\xff\xfe"))
    with pytest.raises(PerfdoctorError, match="it is malformed"), store.read(file) as db:
        runs.listed(db)


def test_a_row_of_the_schema_that_claims_to_be_of_gigabytes_is_one_line(tmp_path):
    """SQLite says that there is no memory for it."""
    file, content = tmp_path / "history.db", bytearray(64_006)
    for at, written in {
        0: b"SQLite format 3\0\x10", 21: b"\x40\x20\x20", 100: b"\x05\0\0\0\x01", 112: b"\x0f\xfb", 4094: b"\x10",
        61440: b"\x0d\0\0\0\x0b", 61458: b"\x08\x93", 63635: b"\xff\xff\xff\xff\x7f\0\x1d\0\x85\x37table",
    }.items():  # fmt: skip
        content[at : at + len(written)] = written
    file.write_bytes(content)
    with closing(sqlite3.connect(file)) as database, pytest.raises((MemoryError, sqlite3.DatabaseError)):
        database.execute("SELECT * FROM sqlite_master").fetchall()
    with pytest.raises(PerfdoctorError, match="malformed"), store.read(file) as db:
        runs.listed(db)


def test_a_run_that_the_index_of_the_file_does_not_know_is_one_line(tmp_path):
    file = history(tmp_path / "history.db", [facts()])
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        ((name,),) = database.execute("SELECT id FROM runs")
    other = "f" * len(name)
    pieces = file.read_bytes().split(name.encode())
    damaged = {
        name.encode().join(pieces[:at]) + other.encode() + name.encode().join(pieces[at:])
        for at in range(1, len(pieces))
    }
    listed = 0
    for content in damaged:  # the name stands in the table of runs, in its index and in other tables
        file.write_bytes(content)
        with store.read(file) as db:
            names = [row["id"] for row in runs.listed(db)]
        if names == [other]:
            with pytest.raises(PerfdoctorError, match="it is malformed"), store.read(file) as db:
                runs.stored(db, other)
            listed += 1
    assert listed == 1


def elsewhere(work):
    """In a process of its own, whose limits are not ours. Its exit code: 0 where `work` returned."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def as_nobody(work):
    """Root may write everywhere: the same as a user who may not."""

    def as_user():
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        work()

    return elsewhere(as_user)


@pytest.fixture
def open_folder(tmp_path):
    """One that others reach: pytest's own are closed to them."""
    folder = tmp_path / "shared"
    folder.mkdir()
    for each in (folder, *folder.parents):
        if each.owner() == tmp_path.owner() and each != each.parent and str(each).startswith("/tmp/"):
            each.chmod(each.stat().st_mode | 0o055)
    return folder


def test_a_folder_that_cannot_be_written_to_is_read_and_refuses_writers(open_folder):
    file = history(open_folder / "history.db", [facts()])
    open_folder.chmod(0o555)
    file.chmod(0o444)

    def reads():
        with store.read(file) as db:
            assert runs.count(db) == 1

    def writes():
        with pytest.raises(PerfdoctorError, match="history"):
            history(file, [facts(1)])

    assert as_nobody(reads) == 0
    assert as_nobody(writes) == 0
    open_folder.chmod(0o755)
    assert len(ids(file)) == 1


def test_a_full_disk_costs_the_run_that_does_not_fit_and_none_before_it(in_memory):
    """A limit on the size of files is what a full disk is to SQLite: a write that fails in the middle."""
    file = history(in_memory / "history.db", [facts()])

    def writes():
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        with (in_memory / "reported").open("w") as output:
            for number in range(1000):
                with store.written(file) as db:
                    output.write(runs.save(db, facts(number)) + "\n")

    def fails():
        with pytest.raises(PerfdoctorError, match=r"full|I/O|large"):
            writes()

    assert elsewhere(fails) == 0
    reported = set((in_memory / "reported").read_text().split())
    assert len(reported) > 3
    assert reported <= ids(file)
    history(file, [facts(5)])  # there is room again
    with sqlite3.connect(file) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)


def test_on_a_file_system_of_several_machines_there_is_no_shared_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_on_network", lambda file: True)
    file = history(tmp_path / "history.db", [facts(), facts(1)])
    with sqlite3.connect(file) as connection:
        assert connection.execute("pragma journal_mode").fetchone() == ("delete",)
    assert len(ids(file)) == 2


def test_the_file_is_in_wal_mode_and_each_run_is_on_the_disk_before_it_is_reported(tmp_path):
    with store.written(tmp_path / "history.db") as db:
        assert db.conn.execute("pragma journal_mode").fetchone() == ("wal",)
        assert db.conn.execute("pragma synchronous").fetchone() == (2,)  # full

"""Does SQL over a recording give an assistant the numbers of the file, and nothing else?"""

from __future__ import annotations

import pytest
from folders import FIXTURES
from tables import of_each

from assistant.client import Assistant, assistant
from assistant.truth import kineto, sql

RANKS = "straggler/nsys/profile.sqlite"
TORCH = "input-bound-single-process/torch"
_NAMES = "CUPTI_ACTIVITY_KIND_KERNEL AS kernels JOIN StringIds ON StringIds.id = kernels.demangledName"


@pytest.fixture(scope="module")
def client():
    with assistant(FIXTURES) as connected:
        yield connected


def trace():
    return kineto(FIXTURES / TORCH / "rank0.pt.trace.json.gz")


#: SQL of ours, and the same question in the file's own words.
QUESTIONS = {
    "kernels of each GPU": (
        RANKS,
        "SELECT device, count(*), sum(duration_ns) FROM kernels GROUP BY device ORDER BY device",
        lambda: sql(FIXTURES / RANKS, f"""SELECT deviceId, count(*), sum(end - start) FROM {_NAMES}
            WHERE value NOT LIKE '%nccl%' GROUP BY deviceId ORDER BY deviceId"""),
    ),
    "collectives of each GPU": (
        RANKS,
        "SELECT device, count(*), min(duration_ns), max(duration_ns) FROM collectives GROUP BY device ORDER BY device",
        lambda: sql(FIXTURES / RANKS, f"""SELECT deviceId, count(*), min(end - start), max(end - start) FROM {_NAMES}
            WHERE value LIKE '%nccl%' GROUP BY deviceId ORDER BY deviceId"""),
    ),
    "copied bytes": (
        RANKS,
        "SELECT sum(bytes), count(*) FROM copies WHERE direction = 'h2d'",
        lambda: sql(FIXTURES / RANKS, "SELECT sum(bytes), count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1"),
    ),
    "the costliest kernels": (
        RANKS,
        "SELECT substr(name, 1, 30), sum(duration_ns) AS ns FROM kernels GROUP BY name ORDER BY ns DESC, name LIMIT 3",
        lambda: sql(FIXTURES / RANKS, f"""SELECT substr(value, 1, 30), sum(end - start) AS ns FROM {_NAMES}
            WHERE value NOT LIKE '%nccl%' GROUP BY value ORDER BY ns DESC, value LIMIT 3"""),
    ),
    "calls by name": (
        TORCH,
        "SELECT name, count(*) FROM calls GROUP BY name ORDER BY name",
        lambda: sorted({(name, names.count(name)) for names in [called("cuda_runtime")] for name in names}),
    ),
    "ops by name": (
        TORCH,
        "SELECT name, count(*), max(duration_ns) FROM ops GROUP BY name ORDER BY name",
        lambda: sorted(
            (name, called("cpu_op").count(name), max(end - start for start, end in trace().spans("cpu_op", name=name)))
            for name in set(called("cpu_op"))
        ),
    ),
    "kernels and the calls that launched them": (
        TORCH,
        "SELECT count(*) FROM kernels JOIN launches ON launches.id = launch_id WHERE launches.start_ns < kernels.start_ns",
        lambda: [(launched_before(),)],
    ),
}  # fmt: skip


def called(category: str) -> list[str]:
    return [each["name"] for _, _, each in trace().events(category)]


def launched_before() -> int:
    calls = {each["args"]["correlation"]: start for start, _, each in trace().events("cuda_runtime")}
    return sum(calls[each["args"]["correlation"]] < start for start, _, each in trace().events("kernel"))


@of_each("question", QUESTIONS)
def test_the_answer_is_what_the_file_says(client: Assistant, question):
    path, asked, truth = question
    assert [tuple(row) for row in client.ask("query", path=path, sql=asked)["rows"]] == truth()


def test_pages_hold_every_row_once(client: Assistant):
    asked = "SELECT start_ns FROM kernels ORDER BY start_ns"
    rows = client.pages("query", "rows", path=TORCH, sql=asked, limit=50)
    assert [row[0] for row in rows] == [start for start, *_ in trace().events("kernel")]


HOSTILE = [
    "DROP TABLE kernels", "DELETE FROM kernels", "UPDATE kernels SET name = 'x'", "INSERT INTO notes VALUES (1, 'x')",
    "CREATE TABLE x (y)", "CREATE TEMP TABLE x AS SELECT * FROM kernels", "CREATE VIEW v AS SELECT 1", "ALTER TABLE notes RENAME TO x",
    "ATTACH '/etc/passwd' AS x", "ATTACH DATABASE 'file:/tmp/x?mode=rwc' AS x", "DETACH main", "VACUUM", "VACUUM INTO '/tmp/copied.db'",
    "PRAGMA journal_mode = DELETE", "PRAGMA query_only = 0", "PRAGMA writable_schema = 1", "PRAGMA database_list", "REINDEX", "ANALYZE",
    "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT x", "SELECT load_extension('x')", "SELECT readfile('/etc/passwd')",
    "SELECT writefile('/tmp/x', 'y')", "SELECT edit('x')", "SELECT 1; DROP TABLE kernels", "SELECT 1; SELECT 2", "", " ", ";", "--", "/* */",
    "SELECT", "SELECT * FROM no_such_table", "SELECT no_such_column FROM kernels", "SELECT * FROM pragma_database_list",
    "SELECT zeroblob(2000000000)", "SELECT randomblob(2000000000)", "SELECT hex(zeroblob(900000000))", "SELECT replace(hex(zeroblob(9000000)), '0', hex(zeroblob(99)))",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "SELECT 1" + " UNION SELECT 1" * 600, "SELECT " + "(" * 3_000 + "1" + ")" * 3_000, "SELECT 'x" + "x" * 10_000 + "'", "x" * 10_001,
    "SELECT fts3_tokenizer('simple')", "\0", "SELECT 1\0; DROP TABLE kernels", "EXPLAIN DELETE FROM kernels",
]  # fmt: skip


def test_what_is_no_question_or_asks_too_much_is_refused():
    before = (FIXTURES / RANKS).stat()
    with assistant(FIXTURES, "--timeout", "4") as client:
        for text in HOSTILE:
            asked = client.call("query", {"path": RANKS, "sql": text})
            assert asked.is_error, text[:60]
            assert "perfdoctor failed" not in asked.text, text[:60]
            assert len(asked.everything) < 3_000
        for bad in (
            {"sql": 3},
            {"sql": None},
            {"sql": ["SELECT 1"]},
            {"limit": 201},
            {"cursor": "x"},
            {"path": "../x"},
        ):
            assert client.call("query", {"path": TORCH, "sql": "SELECT 1", **bad}).is_error
        assert client.ask("query", path=RANKS, sql="SELECT count(*) FROM collectives")["rows"] == [[collectives()]]
    now = (FIXTURES / RANKS).stat()
    assert (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def collectives() -> int:
    return sql(FIXTURES / RANKS, f"SELECT count(*) FROM {_NAMES} WHERE value LIKE '%nccl%'")[0][0]


def test_cells_are_short_and_numbers_whole(client: Assistant):
    data = client.ask("query", path=TORCH, sql="SELECT 9007199254740993, 0.5, NULL, x'00ff', printf('%.2000c', 'x')")
    assert data["rows"][0][:4] == [9007199254740993, 0.5, None, "2 bytes"]
    assert len(data["rows"][0][4]) < 200

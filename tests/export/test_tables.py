"""The timeline as tables: held against plain SQL and plain JSON over the same files, whole, and only read."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing

import ncu_tables
import numpy as np
import pytest
from folders import FIXTURES, ROOT, public
from snapshots import MIB, Recording
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.diagnosis.engine import examine
from perfdoctor.errors import PerfdoctorError
from perfdoctor.export.tables import database, files
from perfdoctor.export.tables.contents import RecordingTables
from perfdoctor.export.tables.query import query
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.work.modules import module_costs
from perfdoctor.model.columns import Text
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.readers.open import read
from perfdoctor.records.findings import with_symptoms
from perfdoctor.vocabulary.rulebook import load_rules
from perfdoctor.vocabulary.signals import EVENTS, SIGNALS
from perfdoctor.vocabulary.tables import tables, views

TORCH = FIXTURES / "input-bound-single-process" / "torch"


@pytest.fixture(scope="module")
def run():
    return prepare(read([TORCH]))


@pytest.fixture(scope="module")
def file(run, tmp_path_factory):
    target = tmp_path_factory.mktemp("tables") / "train.db"
    database.write(target, RecordingTables(run, lambda: query_diagnosis(run)))
    return target


def query_diagnosis(run):
    return examine(run, list(load_rules().values())).diagnosis


def rows(file, sql):
    with closing(sqlite3.connect(file)) as db:
        return db.execute(sql).fetchall()


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_every_table_and_view_has_the_documented_columns(file):
    for table in (*tables().values(), *views().values()):
        with closing(sqlite3.connect(file)) as db:
            found = [column[0] for column in db.execute(f"SELECT * FROM {table.name} LIMIT 0").description]
        assert found == list(table.columns), table.name


def test_each_table_has_the_rows_of_the_timeline(run, file):
    for name, table in tables().items():
        if table.signal:
            frame = run.timeline[name]
            assert rows(file, f"SELECT count(*), sum(end_ns - start_ns) FROM {name}") == [
                (len(frame), int(frame.duration_ns.sum()) if len(frame) else None)
            ]


def test_a_database_is_whole_and_its_ids_lead_to_rows(file):
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]
    assert rows(file, "PRAGMA foreign_key_check") == []


def test_parts_and_idle_time_sum_to_what_was_analysed(run, file):
    window = sum(place.window_ns for place in run.places)
    assert rows(file, "SELECT sum(part_ns) FROM parts") == [(window,)]
    assert rows(file, "SELECT sum(part_ns) FROM parts WHERE is_idle") == rows(file, "SELECT sum(duration_ns) FROM idle")
    assert rows(file, "SELECT sum(compute_ns + exposed_communication_ns + exposed_copy_ns + idle_ns) FROM steps") == [
        (window,)
    ]


def test_a_kernel_leads_to_its_launch_op_and_step(run):
    timeline = run.timeline
    found = query(
        run,
        "SELECT kernels.correlation, calls.correlation, calls.start_ns, ops.start_ns, ops.end_ns, kernels.start_ns,"
        " steps.start_ns, steps.end_ns FROM kernels JOIN launches ON launches.id = kernels.launch_id"
        " JOIN calls ON calls.id = launches.id LEFT JOIN ops ON ops.id = launches.op_id"
        " LEFT JOIN steps ON steps.id = kernels.step_id",
        limit=1_000_000,
    ).rows
    assert len(found) == len(timeline.kernels)
    for kernel, call, called_ns, op_ns, op_end_ns, start_ns, step_ns, step_end_ns in found:
        assert kernel == call
        assert op_ns is None or op_ns <= called_ns < op_end_ns
        assert step_ns is None or step_ns <= start_ns < step_end_ns


def test_what_is_asked_of_a_recording_is_what_its_database_answers(run, file):
    for sql in (
        "SELECT * FROM kernel_totals",
        "SELECT kind, count(*), sum(duration_ns) FROM events GROUP BY kind",
        "SELECT name, count(*) FROM ops WHERE parent_id IS NULL GROUP BY name ORDER BY 1",
        "SELECT * FROM launched_kernels ORDER BY kernel_id LIMIT 50",
        "SELECT * FROM steps",
        "SELECT rule, saving_likely_ns_per_step FROM findings",
        "WITH k AS (SELECT * FROM kernels) SELECT a.name FROM k AS a JOIN k AS b ON b.id = a.id + 1 ORDER BY a.id LIMIT 9",
        "SELECT name FROM kernels WHERE name LIKE '%gemm%' ORDER BY id LIMIT 5",
    ):
        assert query(run, sql) == query(file, sql), sql


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM meta",
        "INSERT INTO meta VALUES (1, 2, 3, 4, 5)",
        "UPDATE steps SET number = 1",
        "DROP TABLE meta",
        "CREATE TABLE mine (a)",
        "CREATE TEMP TABLE mine (a)",
        "ATTACH 'other.db' AS other",
        "VACUUM INTO 'copy.db'",
        "PRAGMA query_only = 0",
        "PRAGMA journal_mode = WAL",
        "SELECT * FROM pragma_table_info('meta')",
        "SELECT load_extension('evil')",
        "BEGIN",
        "SELECT 1; DELETE FROM meta",
        "REINDEX",
        "ANALYZE",
        "",
        "-- nothing",
        "EXPLAIN DELETE FROM meta",
        "SELECT zeroblob(1000000000)",
        "SELECT * FROM nowhere",
    ],
)
def test_a_question_writes_nothing_and_opens_nothing(run, file, sql, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = file.read_bytes()
    for of in (run, file):
        with pytest.raises(PerfdoctorError):
            query(of, sql)
    assert file.read_bytes() == before
    assert not any(tmp_path.iterdir())


def test_a_question_without_end_is_ended(run):
    with pytest.raises(PerfdoctorError, match="takes longer than"):
        query(
            run, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c", seconds=0.2
        )


def test_an_answer_of_too_much_text_is_refused(run):
    sql = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT hex(zeroblob(1000000)) FROM c"
    with pytest.raises(PerfdoctorError, match="longer than"):
        query(run, sql)


def test_what_was_not_recorded_is_null_and_times_before_zero_are_times():
    columns = dict(Frame.empty("kernels").columns)
    for name, column in columns.items():
        columns[name] = Text.of(["a", "", "b"]) if isinstance(column, Text) else np.full(3, -1).astype(column.dtype)
    columns |= {"rank": np.zeros(3, np.int64), "device": np.zeros(3, np.int64), "end_ns": np.array([0, 5, 9])}
    run = prepare(Timeline.build({"kernels": Frame(columns)}, ["kernels"]))
    sql = "SELECT start_ns, duration_ns, blocks, name FROM kernels ORDER BY id"
    assert query(run, sql).rows == [(-1, 1, None, "a"), (-1, 6, None, None), (-1, 10, None, "b")]


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT durationns FROM kernels", "Did you mean duration_ns"),
        ("SELECT k.nam FROM kernels AS k", "Did you mean name"),
        ("SELECT group_size FROM kernels", "A column group_size is in collectives"),
        ("SELECT zzzz FROM notes", "notes has: id, note"),
        ("SELECT * FROM kernel", "Did you mean kernels"),
        ("SELECT medain(id) FROM ops", "Did you mean median"),
        ("SELECT dur FROM kernels", "Here it is called duration_ns"),
        ("SELECT * FROM memcpy", "Here it is called copies"),
        ("SELECT name FROM ops JOIN kernels ON ops.step_id = kernels.step_id", "Write TABLE.COLUMN"),
        ("SELECT percentile(id, 101) FROM ops", "percentile(X, P)"),
    ],
)
def test_an_error_names_what_comes_nearest(run, file, sql, hint):
    for of in (run, file):
        with pytest.raises(PerfdoctorError) as refused:
            query(of, sql)
        assert hint in refused.value.do, refused.value.do


@pytest.mark.parametrize(
    ("sql", "limit"),
    [
        (f"SELECT '{'x' * 100_000}'", "100,000 bytes"),
        (f"SELECT 'x' LIKE '{'%' * 1_001}'", "1,000 bytes"),
        ("SELECT replace(hex(zeroblob(9000000)), '0', '11')", "16 MiB"),
    ],
)
@pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3 sets no limits before")
def test_an_error_says_which_limit_was_met(run, sql, limit):
    with pytest.raises(PerfdoctorError, match=limit):
        query(run, sql)


def test_median_and_percentiles_are_those_of_numpy(run):
    sql = "SELECT median(duration_ns), percentile(duration_ns, 90), median(NULL) FROM ops"
    took = run.timeline.ops.duration_ns
    assert query(run, sql).rows == [(np.median(took), np.percentile(took, 90), None)]


def test_gpu_time_of_ops_is_the_work_that_they_launched_and_step_ids_are_those_of_that_work(run):
    sql = """
        SELECT ops.id, ops.self_gpu_ns, sum(work.duration_ns), min(work.step_id) FROM ops JOIN launches ON launches.op_id = ops.id
        JOIN (SELECT launch_id, duration_ns, step_id FROM kernels UNION ALL
              SELECT launch_id, duration_ns, step_id FROM copies) AS work ON work.launch_id = launches.id
        GROUP BY ops.id"""
    found = query(run, sql, limit=10**6).rows
    assert found
    assert all(ours == theirs for _, ours, theirs, _ in found)
    total = query(run, "SELECT sum(self_gpu_ns), (SELECT sum(gpu_ns) FROM ops WHERE parent_id IS NULL) FROM ops").rows
    assert total[0][0] == total[0][1] == sum(theirs for _, _, theirs, _ in found)


def test_time_of_rows_by_themselves_sums_to_the_outermost_rows(run):
    for table in ("ops", "ranges"):
        sql = f"SELECT sum(self_ns), sum(duration_ns) FILTER (WHERE parent_id IS NULL) FROM {table}"
        by_itself, outermost = query(run, sql).rows[0]
        assert by_itself == outermost > 0, table


def test_phases_and_modules_agree_with_the_report():
    run = prepare(read([FIXTURES / "h100-gpt" / "eager-stacks.json.gz"]))
    phases = dict(query(run, "SELECT phase, sum(duration_ns) FROM kernels GROUP BY phase").rows)
    assert set(phases) == {"forward", "backward", "optimizer"}
    assert phases["backward"] > phases["forward"] > phases["optimizer"]
    ours = query(run, "SELECT name, sum(self_gpu_ns) FROM modules WHERE step_id IS NOT NULL GROUP BY name").rows
    costs = {cost.path: cost.own_forward_ns + cost.own_backward_ns for cost in module_costs(run, None)}
    steps = sum(place.units for place in run.places)
    assert {name: ns / steps for name, ns in ours if ns} == pytest.approx(
        {path: ns for path, ns in costs.items() if path and ns}, rel=0.02
    )  # a kernel at the edge of the window counts in part there


def test_kernels_of_a_module_in_a_step_are_those_that_calls_inside_of_its_forward_launched():
    run = prepare(read([FIXTURES / "h100-gpt" / "eager-stacks.json.gz"]))
    sql = """
        SELECT module_name, count(*), sum(launched_kernels.duration_ns) FROM launched_kernels
        JOIN steps ON steps.id = step_id WHERE number = 3 AND module_name IS NOT NULL GROUP BY 1"""
    assert len(found := query(run, sql).rows) > 10
    modules, calls, kernels = (run.timeline[name] for name in ("modules", "calls", "kernels"))
    begins, ends = run.places[0].steps.bounds[2:4]
    call_of = {number: row for row, number in enumerate(calls["correlation"].tolist())}
    expected = {}
    for row in np.flatnonzero((kernels.start_ns >= begins) & (kernels.start_ns < ends)).tolist():
        call = call_of.get(kernels["correlation"][row])
        if call is not None:
            around = (modules.start_ns <= calls.start_ns[call]) & (calls.start_ns[call] < modules.end_ns)
            inside = np.flatnonzero(around & (modules["thread"] == calls["thread"][call]))
            if inside.size:
                name = modules.name[int(inside[np.argmax(modules.start_ns[inside])])]
                count, ns = expected.get(name, (0, 0))
                expected[name] = count + 1, ns + int(kernels.duration_ns[row])
    assert {name: (count, ns) for name, count, ns in found} == expected


def test_fixes_are_those_of_the_findings(run):
    diagnosis = query_diagnosis(run)
    found = query(
        run,
        "SELECT rule, fixes.title, how, effort, changes_numerics FROM fixes JOIN findings ON findings.id = finding_id",
    )
    assert found.rows == [
        (each.rule, fix.title, fix.how, fix.effort, int(fix.changes_numerics))
        for each in with_symptoms(diagnosis.findings)
        for fix in each.fixes
    ]


def test_an_index_is_made_where_rows_are_looked_up(run, monkeypatch):
    made = []
    kept = database.add_indexes
    monkeypatch.setattr(database, "add_indexes", lambda file, only=None: (made.append(only), kept(file, only)))
    query(run, "SELECT (SELECT count(*) FROM ops AS inner WHERE inner.parent_id = ops.id) FROM ops")
    query(run, "SELECT count(*) FROM ops")
    assert made == [None, {"by_parent_id_of_ops"}, None, set()]


@pytest.mark.parametrize("form", ["table", "tsv", "csv"])
def test_a_pipe_gets_whole_lines(form):
    sql = "SELECT max(name) AS name FROM kernels WHERE length(name) > 150"
    name = query(prepare(read([TORCH])), sql).rows[0][0]
    assert name in invoke("query", TORCH, sql, "--format", form).stdout.replace('"', "")


def test_an_answer_can_be_a_parquet_file(tmp_path):
    core = pytest.importorskip("arro3.io")
    sql = "SELECT name, id, duration_ns / 2.0 AS half, NULL AS none, id FROM ops WHERE id < 9"
    result = invoke("query", TORCH, sql, "--format", "parquet", "--quiet")
    (tmp_path / "answer.parquet").write_bytes(result.stdout_bytes)
    table = core.read_parquet(tmp_path / "answer.parquet").read_all()
    assert table.column_names == ["name", "id", "half", "none", "id_2"]
    ours = list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    assert ours == query(prepare(read([TORCH])), sql).rows


def test_a_limit_is_kept_and_said(run):
    answer = query(run, "SELECT id FROM ops", limit=3)
    assert answer.rows == [(0,), (1,), (2,)]
    assert answer.is_cut
    assert not query(run, "SELECT id FROM ops WHERE id < 3", limit=3).is_cut


def test_parquet_and_arrow_have_the_same_rows(run, file, tmp_path):
    core = pytest.importorskip("arro3.io")
    contents = RecordingTables(run, lambda: query_diagnosis(run))
    for name in ("kernels", "ops", "steps", "findings", "meta", "idle"):
        files.write_parquet(tmp_path / f"{name}.parquet", contents, name)
        table = core.read_parquet(tmp_path / f"{name}.parquet").read_all()
        assert table.column_names == list(tables()[name].columns)
        ours = list(zip(*(table[column].to_pylist() for column in table.column_names), strict=True))
        assert ours == rows(file, f"SELECT * FROM {name} ORDER BY id"), name
    files.write_arrow(tmp_path / "events.arrow", contents)
    table = core.read_ipc(tmp_path / "events.arrow").read_all()
    assert table.num_rows == sum(len(run.timeline[name]) for name in EVENTS)
    assert table.column_names == list(views()["events"].columns)


# --- against the files themselves ---


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["h100_2gpu_1s", "mfu_2gpu_before", "power-iteration-t4"])
def test_tables_of_an_nsys_export_are_what_plain_sql_counts(name):
    path = public(f"nsys/{name}.sqlite")
    run = prepare(read([path]))
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as db:
        kernels = db.execute("SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        by_name = db.execute(
            "SELECT value, count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON"
            " StringIds.id = demangledName GROUP BY value ORDER BY 1"
        ).fetchall()
        copies = db.execute("SELECT count(*), sum(bytes), sum(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY").fetchone()
    device = "SELECT name, duration_ns FROM kernels UNION ALL SELECT name, duration_ns FROM collectives"
    assert query(run, f"SELECT count(*), sum(duration_ns) FROM ({device})").rows == [kernels]
    ours = query(run, f"SELECT name, count(*), sum(duration_ns) FROM ({device}) GROUP BY name ORDER BY 1").rows
    assert ours == by_name
    mine = "SELECT count(*), sum(bytes), sum(duration_ns) FROM copies WHERE direction <> 'memset'"
    assert query(run, mine).rows == [copies]


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["resnet50-workers0", "resnet50-workers4"])
def test_steps_begin_with_the_first_work_that_was_launched_in_each_span_of_the_profiler(name):
    path = public(f"kineto/{name}.pt.trace.json.gz")
    found = query(prepare(read([path])), "SELECT start_ns, end_ns FROM steps").rows
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    numbered = [each for each in events if each.get("ph") == "X" and "correlation" in each.get("args", {})]
    work = {
        each["args"]["correlation"]: each["ts"] for each in numbered if each["cat"] in ("Kernel", "Memcpy", "Memset")
    }
    calls = [(each["ts"], each["args"]["correlation"]) for each in numbered if each["cat"] == "Runtime"]
    spans = [
        (each["ts"], each["ts"] + each["dur"]) for each in events if each.get("name", "").startswith("ProfilerStep")
    ]
    firsts = [
        1000 * min(work[number] for at, number in calls if begin <= at < end and number in work)
        for begin, end in sorted(spans)
    ]
    assert found == list(itertools.pairwise(firsts))


@pytest.mark.recordings
def test_bus_bandwidth_is_that_of_nccl_tests():
    path = public("kineto/resnet-ddp-a100-rank0.json.gz")
    found = query(prepare(read([path])), "SELECT kind, duration_ns, bus_bytes_per_second FROM collectives").rows
    element = {"Float": 4, "Long": 8, "Int": 4}
    expected = []
    for each in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        args = each.get("args", {})
        if "Collective name" in args and each.get("cat") == "kernel":
            ranks, size = args["Group size"], args["In msg nelems"] * element[args["dtype"]]
            factor = 2 * (ranks - 1) / ranks if args["Collective name"] == "allreduce" else 1
            expected.append((round(each["ts"] * 1000), round(each["dur"] * 1000), size * factor / each["dur"] * 1e6))
    assert len(found) == len(expected) > 10
    assert [row[2] for row in found] == pytest.approx([row[2] for row in sorted(expected)], rel=0.01)


@pytest.mark.recordings
def test_hidden_communication_is_what_overlaps_with_kernels_in_the_trace():
    path = public("kineto/ddp-a100-rank3-of-8.json.gz")
    found = query(
        prepare(read([path])), "SELECT start_ns, end_ns, communication_ns, hidden_communication_ns FROM steps"
    ).rows
    kernels = [
        (round(each["ts"] * 1000), round((each["ts"] + each["dur"]) * 1000), "nccl" in each["name"].lower())
        for each in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if each.get("ph") == "X" and str(each.get("cat")).lower() == "kernel"
    ]
    assert len(found) > 3
    for start, end, communication, hidden in found:
        edges = sorted({start, end, *(at for row in kernels for at in row[:2] if start < at < end)})
        both = total = 0
        for begin, stop in itertools.pairwise(edges):
            running = {is_nccl for first, last, is_nccl in kernels if first <= begin and stop <= last}
            total += (stop - begin) * (True in running)
            both += (stop - begin) * (running == {True, False})
        assert (communication, hidden) == pytest.approx((total, both), abs=2000), start


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["ddp-a100-rank3-of-8", "qwen-0.5b-h100", "resnet-ddp-a100-rank0"])
def test_tables_of_a_kineto_trace_are_what_its_json_says(name):
    path = public(f"kineto/{name}.json.gz")
    run = prepare(read([path]))
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]

    def counted(category):
        own = [each for each in events if each.get("ph") == "X" and str(each.get("cat", "")).lower() == category]
        return len(own), round(sum(each["dur"] for each in own) * 1000)

    device = "SELECT duration_ns FROM kernels UNION ALL SELECT duration_ns FROM collectives"
    assert query(run, f"SELECT count(*), sum(duration_ns) FROM ({device})").rows == [counted("kernel")]
    ops, calls = counted("cpu_op"), counted("cuda_runtime")
    assert query(run, "SELECT count(*), sum(duration_ns) FROM ops").rows == [ops]
    found = query(run, "SELECT count(*) FROM calls").rows[0][0]
    assert found >= calls[0]


# --- the commands ---


def test_export_writes_a_database_that_query_reads(tmp_path):
    target = tmp_path / "train.db"
    result = invoke("export", TORCH, "--sqlite", target)
    assert (result.exit_code, result.stderr) == (0, f"Wrote {target}.\n")
    again = invoke("export", TORCH, "--sqlite", target, "-q")
    assert (again.exit_code, again.stderr) == (0, ""), "ours is replaced"
    sql = "SELECT kind, count(*) AS n FROM events GROUP BY kind"
    answers = [invoke("query", path, sql, "--json") for path in (target, TORCH)]
    assert answers[0].stdout == answers[1].stdout
    document = json.loads(answers[0].stdout)
    assert document["columns"] == ["kind", "n"]
    lines = invoke("query", target, sql, "--csv").stdout.splitlines()
    assert lines == ["kind,n", *(f"{kind},{n}" for kind, n in document["rows"])]
    assert "launched_kernels" in invoke("query", target).stdout


def test_export_keeps_what_others_wrote(tmp_path):
    mine = tmp_path / "mine.db"
    with closing(sqlite3.connect(mine)) as db:
        db.execute("CREATE TABLE kernels (a)")
    before = mine.read_bytes()
    result = invoke("export", TORCH, "--sqlite", mine)
    assert result.exit_code == 1
    assert "was not written by perfdoctor" in result.stderr
    assert mine.read_bytes() == before
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    assert invoke("export", TORCH, "--parquet", folder).exit_code == 1
    assert [each.name for each in folder.iterdir()] == ["mine.txt"]
    assert invoke("export", TORCH, "--arrow", folder / "mine.txt").exit_code == 1
    assert invoke("export", TORCH, "--sqlite", tmp_path / "a.db", "--table", "nothing").exit_code == 2


def test_environment_variables_of_a_log_stay_out(tmp_path):
    names = Text.of(["environment", "version"])
    columns = {
        name: names
        if name == "name"
        else Text.of(["NCCL_SECRET=hunter2", "2.20"])
        if kind is str
        else np.zeros(2, {int: np.int64, float: np.float64, bool: bool}[kind])
        for name, kind in SIGNALS["nccl_facts"].columns.items()
    }
    run = prepare(Timeline.build({"nccl_facts": Frame(columns)}, ["nccl_facts"]))
    assert query(run, "SELECT name FROM nccl_facts").rows == [("version",)]
    database.write(tmp_path / "a.db", RecordingTables(run, lambda: query_diagnosis(run)))
    assert b"hunter2" not in (tmp_path / "a.db").read_bytes()


# --- the page ---

_PAGE = (ROOT / "docs" / "tables.md").read_text("utf-8")
_EXAMPLES = dict(re.findall(r"```python (\w+)\n(.*?)```", _PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    pytest.importorskip("arro3.io")
    folder = tmp_path_factory.mktemp("exported")
    result = invoke(
        "export", TORCH, "--sqlite", folder / "train.db", "--parquet", folder / "train-tables",
        "--arrow", folder / "train.arrow",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    return folder


@pytest.mark.parametrize("package", _EXAMPLES)
def test_the_examples_of_the_page_run(exported, package, monkeypatch, capsys):
    pytest.importorskip(package)
    monkeypatch.chdir(exported)
    exec(_EXAMPLES[package], {})  # the page's own code
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) > 3, printed


def test_the_questions_of_the_page_have_answers(exported):
    asked = re.findall(r'^perfdoctor query \S+ "(.*?)"(.*)$', _PAGE, re.MULTILINE)
    assert len(asked) > 4
    for sql, options in asked:
        result = invoke("query", exported / "train.db", sql, *options.split())
        assert result.exit_code == 0, result.stderr
        assert len(result.stdout.splitlines()) > 0


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Recordings that have, together, what people ask about: ranks, stacks, samples, a memory snapshot and profiles."""
    folder = tmp_path_factory.mktemp("several")
    snapshot = Recording()
    snapshot.alloc(100 * MIB, "work/model.py:4 forward", "work/train.py:30 main")
    (folder / "kernels.csv").write_text(ncu_tables.wide(ncu_tables.RAW, launches=3))
    paths = [
        FIXTURES / "straggler" / "torch", FIXTURES / "h100-gpt" / "eager-stacks.json.gz",
        FIXTURES / "pairs" / "h100-fp32-matmuls", FIXTURES / "pairs" / "large-heap", folder / "kernels.csv", snapshot.write(folder / "rank0.pickle"),
    ]  # fmt: skip
    return [prepare(read([path])) for path in paths]


_ASKED = _PAGE[_PAGE.index("## What people ask") : _PAGE.index("## With other tools")]


@pytest.mark.parametrize(
    ("question", "sql"), re.findall(r'^# (.*)\nperfdoctor query \S+ "(.*)"$', _ASKED, re.MULTILINE)
)
def test_what_people_ask_has_an_answer_in_some_recording(several, question, sql):
    answers = [query(run, sql).rows for run in several]
    assert any(None not in row for rows in answers for row in rows), question


#: Prints what `datasette FILE` serves at each address.
_SERVED = """
import asyncio, sys
from datasette.app import Datasette

async def served():
    client = Datasette([sys.argv[1]]).client
    for address in sys.argv[2:]:
        answer = await client.get(address)
        assert answer.status_code == 200, answer.text
        print(answer.text)

asyncio.run(served())
"""


def test_datasette_opens_the_database(exported):
    pytest.importorskip("datasette")
    addresses = [f"/train/{name}.json?_shape=array&_size=3" for name in ("launched_kernels", "_kernels", "kernels")]
    command = [sys.executable, "-c", _SERVED, str(exported / "train.db"), *addresses]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [len(json.loads(line)) for line in done.stdout.splitlines()] == [3, 3, 3]

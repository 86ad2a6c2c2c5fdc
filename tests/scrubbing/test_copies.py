"""A copy holds nothing of what was planted, whatever file it is in; what cannot be cleaned is not in it, and is named."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from real_nsys import nsys, with_its_agent
from scrubbing import planted
from scrubbing.planted import PRIVATE
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.scrubbing import copies, streams
from perfdoctor.scrubbing.copies import scrubbed
from perfdoctor.scrubbing.texts import Texts
from perfdoctor.system import tool_process
from perfdoctor.system.progress import silent
from perfdoctor.system.project import project_from


def copied(source, target, **options):
    return scrubbed(source, target, silent, **options)


def numberless(copy) -> str:
    """The copy's text without the numbers of stand-ins, which depend on what is met first."""
    return re.sub(r"\b(path|host|user|home)-\d+", r"\1", copy.written.read_text("utf-8"))


def tells(path: Path) -> list[tuple[str, str]]:
    """What of the planted is in the file or in any file below it, or in a name of one."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return [
        (file.name, each)
        for file in files
        for raw in [file.read_bytes()]
        for content in [(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw) + file.name.encode()]
        for each in PRIVATE
        if each.encode() in content or each.encode("utf-16-le") in content
    ]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (planted.trace, "a.json"),
        (planted.trace, "a.json.gz"),
        (planted.export, "a.sqlite"),
        (planted.snapshot, "a.pickle"),
    ],
)
def test_a_copy_tells_nothing(make, name, tmp_path):
    source = make(tmp_path / name)
    assert tells(source)
    found = copied(source, tmp_path / f"copy-{name}")
    assert tells(found.written) == []
    assert found.removed["host names"] == 1
    assert not found.left_out


def test_a_copy_of_a_run_tells_nothing_and_says_what_it_lacks(tmp_path, monkeypatch):
    monkeypatch.setattr(tool_process, "find", lambda _: None)
    source = planted.run_folder(tmp_path / "run")
    found = copied(source, tmp_path / "copy")
    assert tells(found.written) == []
    assert found.left_out.keys() == {
        "nsys/profile.nsys-rep", "device/odd.bin", "device/link.json", "link.json", "up", "report.html",
    }  # fmt: skip
    assert "profile.sqlite" in found.left_out["nsys/profile.nsys-rep"]
    assert found.files == len([each for each in found.written.rglob("*") if each.is_file()]) == 7
    assert found.removed["environment variables"] == len(planted.ENVIRONMENT)


def test_files_of_one_copy_share_their_stand_ins_and_name_each_other(tmp_path):
    found = copied(planted.run_folder(tmp_path / "run"), tmp_path / "copy").written
    manifest, agent = (json.loads((found / name).read_text()) for name in ("run.json", "agents/torch-1.json"))
    assert (found / manifest["passes"][0]["files"][0]).is_file()
    assert (found / "torch" / agent["trace"]).is_file()
    assert (
        (found / "nccl" / "rank0.log")
        .read_text()
        .startswith("host-1:12:13 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.")
    )
    assert json.loads((found / "torch" / "host-1_2.1700000000000.pt.trace.json").read_text())["hostname"] == "host-1"
    assert manifest["environment"].keys() == {"CUDA_VISIBLE_DEVICES", "NCCL_DEBUG_FILE"}


def test_a_database_keeps_its_numbers_and_no_free_page(tmp_path):
    target = copied(planted.export(tmp_path / "a.sqlite"), tmp_path / "b.sqlite").written
    with sqlite3.connect(tmp_path / "a.sqlite") as before, sqlite3.connect(target) as after:
        assert before.execute("PRAGMA freelist_count").fetchone()[0] > 0
        assert after.execute("PRAGMA freelist_count").fetchone()[0] == 0
        for table in ("NVTX_EVENTS", "OSRT_API"):
            numbers = f'SELECT start, "end", globalTid FROM {table}'
            assert after.execute(numbers).fetchall() == before.execute(numbers).fetchall()
        assert after.execute("SELECT * FROM NOBODY_KNOWS").fetchall() == [
            (1, "on host-1 at 192.0.2.1", b"\1\2\3"), (2, None, None), (3, 4.5, None),
        ]  # fmt: skip
        assert after.execute("SELECT name, value FROM META_DATA_CAPTURE").fetchall() == [
            ("PROCESS_0:COLLECT_NVTX_TRACE", "true")
        ]
        assert after.execute("SELECT name, value FROM TARGET_INFO_SYSTEM_ENV").fetchall() == [("CpuCores", "8")]
        assert [name for (name,) in after.execute("SELECT name FROM PROCESSES")] == ["/folder-1/bin/python"]


def test_what_a_snapshot_shares_it_shares_in_the_copy(tmp_path):
    target = copied(planted.snapshot(tmp_path / "a.pickle"), tmp_path / "b.pickle").written
    data = pickle.loads(target.read_bytes())
    events = data["device_traces"][0]
    assert events[0] is events[1]
    assert events[0]["frames"] is data["segments"][0]["frames"]
    assert events[0]["frames"][0]["filename"] == "/project-1/train.py"
    assert events[0]["frames"][1]["filename"] == "/usr/lib/python3/dist-packages/torch/nn/modules/module.py"


@pytest.mark.parametrize("piece_bytes", [1000, 1 << 16])
def test_strings_are_replaced_wherever_a_piece_of_the_file_ends(tmp_path, monkeypatch, piece_bytes):
    source = planted.trace(tmp_path / "a.json", odd={'k"\\': 'a\\"b\n' + planted.HOST, "é": ["x"] * 40})
    whole = json.loads(numberless(copied(source, tmp_path / "whole.json")))
    monkeypatch.setattr(streams, "_PIECE_BYTES", piece_bytes)
    assert json.loads(numberless(copied(source, tmp_path / "pieces.json"))) == whole
    assert whole["odd"] == {'k"\\': 'a\\"b\nhost-1', "é": ["x"] * 40}
    assert whole["environ"] == {}


@pytest.mark.parametrize("lines", [None, 1])
def test_a_trace_that_breaks_off_or_is_damaged_is_cleaned_too(tmp_path, lines):
    text = json.dumps(json.loads(planted.trace(tmp_path / "a.json").read_text()), indent=lines)
    for number, damaged in enumerate(
        (text[: text.rindex(planted.HOST) + 5], text.replace('"traceEvents"', 'traceEvents"'))
    ):
        (tmp_path / f"d{number}.json").write_text(damaged)
        found = copied(tmp_path / f"d{number}.json", tmp_path / f"e{number}-{lines}.json")
        assert tells(found.written) == []


def test_kept_paths_stay_and_secrets_do_not(tmp_path):
    found = copied(planted.trace(tmp_path / "a.json"), tmp_path / "b.json", keep_paths=True)
    text = found.written.read_text()
    assert f"{planted.HOME}/acme/data.bin" in text
    assert planted.SECRET not in text
    assert planted.HOST not in text


def test_a_report_of_nsys_becomes_its_cleaned_export(tmp_path, monkeypatch):
    report = tmp_path / "a.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report " + planted.HOST.encode())
    monkeypatch.setattr(tool_process, "find", lambda _: None)
    with pytest.raises(PerfdoctorError) as error:
        copied(report, tmp_path / "b.nsys-rep")
    assert "nsys export --type sqlite --include-blobs=true -o a.sqlite a.nsys-rep" in error.value.do
    monkeypatch.setattr(tool_process, "find", lambda _: "nsys")
    exported = planted.export(tmp_path / "exported.sqlite")
    monkeypatch.setattr("perfdoctor.readers.nsys.export.export", lambda *_, **__: exported)
    found = copied(report, tmp_path / "b.nsys-rep")
    assert found.written == tmp_path / "b.sqlite"
    assert tells(found.written) == []


@pytest.mark.nsys
def test_what_nsys_stores_of_an_environment_is_in_no_copy(tmp_path, monkeypatch):
    tool, report = nsys(), tmp_path / "a.nsys-rep"
    monkeypatch.setenv("PERFDOCTOR_NSYS", tool)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command = [tool, "profile", "-t", "osrt,nvtx", "-f", "true", "-o", str(report), "sh", "-c", "sleep 0.2"]
    environment = {**os.environ, "DB_PASSWORD": planted.SECRET, "COMPANY": "acme-of-lovelace"}
    with_its_agent(
        lambda: subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120),
        lambda ran: ran.stdout + ran.stderr,
    )
    assert b"acme-of-lovelace" in report.read_bytes()
    found = copied(report, tmp_path / "b.sqlite")
    assert tells(found.written) == []
    assert found.removed["environment variables"] > 2


def test_members_that_are_called_like_a_user_or_host_stay_and_other_files_of_it_are_copied(tmp_path):
    (tmp_path / "run" / "torch").mkdir(parents=True)
    (tmp_path / "run" / "a.log").write_text("worker-1:1:2 [0] NCCL INFO x\nworker-10 waits\n")
    (tmp_path / "run" / "b.json").write_text(json.dumps({
        "user": "stacks", "hostname": "collective", "node": "worker-1", "worker-1": 0, "worker-10": 1,
        "stacks": [{"collective": "stacks"}], "x": "worker-10 and worker-1",
    }))  # fmt: skip
    found = copied(tmp_path / "run", tmp_path / "copy")
    assert found.left_out == {}
    assert json.loads((found.written / "b.json").read_text()) == {
        "user": "user-1", "hostname": "host-2", "node": "host-1", "host-1": 0, "worker-10": 1,
        "stacks": [{"collective": "user-1"}], "x": "worker-10 and host-1",
    }  # fmt: skip


@pytest.mark.parametrize("piece_bytes", [64, 100, 1 << 16])
def test_a_file_that_still_tells_something_is_found_wherever_a_piece_ends(tmp_path, monkeypatch, piece_bytes):
    monkeypatch.setattr(streams, "_PIECE_BYTES", piece_bytes)
    texts = Texts()
    texts.learn("worker-1", "hostname")
    texts.settle()
    for filled in range(70):
        for name, is_clean in (("worker-10", True), ("worker-1", False)):
            (tmp_path / "a.log").write_text("." * filled + name)
            assert copies.is_clean(tmp_path / "a.log", texts) == is_clean


@pytest.mark.parametrize("piece_bytes", [64, 100, 1 << 16])
def test_a_private_key_in_a_log_is_masked_wherever_a_piece_ends(tmp_path, monkeypatch, piece_bytes):
    monkeypatch.setattr(streams, "_PIECE_BYTES", piece_bytes)
    kind, lines = "OPENSSH PRIVATE KEY", "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE\n" * 9
    key = f"-----BEGIN {kind}-----\n{lines}-----END {kind}-----\n"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.log").write_text(("epoch 1\n" * 5 + key) * 2 + "epoch 2\n")
    found = (copied(tmp_path / "a", tmp_path / "b").written / "a.log").read_text()
    assert found == ("epoch 1\n" * 5 + "***\n") * 2 + "epoch 2\n"


@pytest.mark.parametrize("make", [planted.trace, planted.export, planted.snapshot])
def test_a_file_that_still_tells_something_is_no_copy(make, tmp_path, monkeypatch):
    source = make(tmp_path / "a")
    monkeypatch.setattr(Texts, "text", lambda _, text, key="", **__: text)
    with pytest.raises(PerfdoctorError, match="still names"):
        copied(source, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_word_that_begins_like_a_host_costs_no_file(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    text = "nodes: worker-1,worker-10 worker-11"
    (folder / "nccl.log").write_text(f"worker-1:1:2 [0] NCCL INFO comm 0x1 rank 0\n{text}\n")
    (folder / "a.json").write_text(json.dumps({"note": f"x\n{text}"}))
    (folder / "a.pickle").write_bytes(pickle.dumps({"segments": [], "note": text}, protocol=4))
    with sqlite3.connect(folder / "a.sqlite") as database:
        database.execute("CREATE TABLE a (one TEXT, other TEXT)")
        database.execute("INSERT INTO a VALUES (?, ?)", (text, text))
    found = copied(folder, tmp_path / "copy")
    assert (found.left_out, found.files) == ({}, 4)
    assert (found.written / "nccl.log").read_text().endswith("nodes: host-1,worker-10 worker-11\n")


def test_files_that_only_a_removed_name_told_apart_are_both_there(tmp_path):
    (tmp_path / "a").mkdir()
    for secret in ("hf_abcdefghijklmnopqrst", "hf_bbcdefghijklmnopqrst"):
        (tmp_path / "a" / f"run-{secret}.json").write_text("{}")
    found = copied(tmp_path / "a", tmp_path / "b")
    assert sorted(each.name for each in found.written.iterdir()) == ["2-run-***.json", "run-***.json"]


def test_folders_that_only_a_removed_name_told_apart_stay_two(tmp_path):
    folders = ("0123456789abcdef" * 2 + "01234567", "89abcdef" + "0123456789abcdef" * 2)
    for commit in folders:
        (tmp_path / "a" / commit / "torch").mkdir(parents=True)
        (tmp_path / "a" / commit / "torch" / "rank0.json").write_text("{}")
        (tmp_path / "a" / commit / "run.json").write_text("{}")
    written = copied(tmp_path / "a", tmp_path / "b").written
    assert sorted(each.relative_to(written).as_posix() for each in written.rglob("*.json")) == [
        "***/run.json", "***/torch/rank0.json", "2-***/run.json", "2-***/torch/rank0.json",
    ]  # fmt: skip


def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    for name in ("closed", "open"):
        (tmp_path / "a" / name).mkdir(parents=True)
        (tmp_path / "a" / name / "x.json").write_text("{}")
    scan = os.scandir

    def refused(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    found = copied(tmp_path / "a", tmp_path / "b")
    assert (found.left_out, found.files) == ({"closed": "a folder that cannot be read"}, 1)


@pytest.mark.parametrize("beside", ["link", "text", "cut", "unread"])
def test_a_report_is_exported_where_what_lies_beside_it_is_no_whole_export(tmp_path, monkeypatch, beside):
    (tmp_path / "run").mkdir()
    report, export = tmp_path / "run" / "a.nsys-rep", tmp_path / "run" / "a.sqlite"
    report.write_bytes(b"NVIDIA Tegra Profiler Report ")
    whole = planted.export(tmp_path / "exported.sqlite")
    if beside == "link":
        export.symlink_to(whole)
    else:
        raw = whole.read_bytes()
        export.write_bytes(
            {"text": b"SQLite\0", "cut": raw[: len(raw) // 2], "unread": raw[:100] + b"\1" * 9000}[beside]
        )
    monkeypatch.setattr(tool_process, "find", lambda _: "nsys")
    monkeypatch.setattr("perfdoctor.readers.nsys.export.export", lambda *_, **__: whole)
    found = copied(tmp_path / "run", tmp_path / "copy")
    assert found.left_out.keys() == {"a.nsys-rep", "a.sqlite"}
    assert "takes its place" in found.left_out["a.nsys-rep"]
    with sqlite3.connect(found.written / "a.sqlite") as database:
        assert database.execute("SELECT count(*) FROM NVTX_EVENTS").fetchone()[0] > 0


def test_a_report_that_nsys_cannot_export_costs_no_other_file(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report ")
    (tmp_path / "run" / "a.json").write_text("{}")

    def refused(*_, **__):
        raise PerfdoctorError("nsys cannot export it", do="Record it again.")

    monkeypatch.setattr(tool_process, "find", lambda _: "nsys")
    monkeypatch.setattr("perfdoctor.readers.nsys.export.export", refused)
    found = copied(tmp_path / "run", tmp_path / "copy")
    assert (found.left_out, found.files) == ({"a.nsys-rep": "nsys cannot export it"}, 1)


def test_nothing_is_overwritten_or_written_into_the_source(tmp_path):
    source = planted.trace(tmp_path / "a.json")
    for target, what in ((source, "exists already"), (tmp_path, "exists already")):
        with pytest.raises(UsageError, match=what):
            copied(source, target)
    with pytest.raises(UsageError, match="lies in"):
        copied(tmp_path, tmp_path / "copy")
    with pytest.raises(PerfdoctorError, match="does not exist"):
        copied(tmp_path / "none", tmp_path / "copy")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.json"]


def test_the_command_prints_what_was_removed_by_kind_and_what_was_left_out(tmp_path):
    planted.run_folder(tmp_path / "run")
    result = CliRunner().invoke(
        app, ["scrub", str(tmp_path / "run"), "-o", str(tmp_path / "copy")], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert re.search(r"^  environment variables +6$", result.stdout, re.MULTILINE)
    assert "left out report.html: a page, made anew by perfdoctor analyze COPY" in result.stderr


@pytest.mark.parametrize(
    "piece",
    [
        '\\"', '"env":{', '{"', '"a":"', '"argv":["', "[", '"project":{"name":', '"env":{"', '"env":{\\"', '"argv":["a\\"', '"a":["b",',
        '"env":{"a":"{",', '"password":["a",', '"credentials":{"a":"b",', '"token', '"credentials":{',
    ],
)  # fmt: skip
def test_a_damaged_file_of_any_form_is_cleaned_soon(tmp_path, piece):
    (tmp_path / "a.json").write_text("{" + piece * (2_000_000 // len(piece)))
    begun = time.process_time()
    copied(tmp_path / "a.json", tmp_path / "b.json")
    assert time.process_time() - begun < 10


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_copy_of_a_trace_that_breaks_off_says_so_and_one_of_a_whole_trace_does_not(tmp_path, is_packed):
    whole = json.dumps({"traceEvents": [{"ph": "X", "name": 'a "b" [{', "ts": 1, "dur": 2}] * 9, "x": [{}]}).encode()
    (tmp_path / "run").mkdir()
    for name, text in (("whole", whole), ("cut", whole[:-30]), ("in-a-string", whole[:40])):
        (tmp_path / "run" / f"{name}.json").write_bytes(gzip.compress(text) if is_packed else text)
    damaged = {"in-a-string.json", "cut.json"}
    if is_packed:
        (tmp_path / "run" / "member.json").write_bytes(gzip.compress(whole)[:-9])
        damaged |= {"member.json"}
    result = CliRunner().invoke(
        app, ["scrub", str(tmp_path / "run"), "-o", str(tmp_path / "copy")], catch_exceptions=False
    )
    assert set(re.findall(r"(\S+) breaks off or is damaged, and so is its copy", result.stderr)) == damaged
    assert len(list((tmp_path / "copy").iterdir())) == len(damaged) + 1


def test_two_projects_of_one_copy_are_two_and_no_copy_says_which_project_it_is_of(tmp_path):
    for name in ("acme", "other"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        project = {"name": name, "id": f"1{name}", "program": "train.py"}
        (tmp_path / "runs" / name / "run.json").write_text(json.dumps({"project": project}))
    copied(tmp_path / "runs", tmp_path / "copy")
    found = [json.loads(file.read_text())["project"] for file in sorted((tmp_path / "copy").rglob("run.json"))]
    assert found == [{"name": f"project-{n}", "id": "", "program": "train.py"} for n in (1, 2)]
    assert [project_from(each) for each in found] == [None, None]


@pytest.mark.parametrize(
    ("member", "value", "shown"),
    [
        ("environment", {"CUSTOMER": "lovelace-ltd", "BASH_FUNC_module%%": '() { a; "b"\n}'}, {}),
        ("env", {"CUSTOMER": "lovelace-ltd", "PROMPT": "{user}@{host}", "RANK": "1"}, {"RANK": "1"}),
        ("command", ["a", "--password", "lovelace-ltd", "x=[1,2]", "{"], ["a", "--password", "***", "x=[1,2]", "{"]),
        ("password", ["lovelace-ltd", "a]b"], ["***", "***"]),
        (
            "credentials",
            {"lovelace": "lovelace-ltd", "n": 1, "x": ["lovelace-ltd"]},
            {"lovelace": "***", "n": 1, "x": ["***"]},
        ),
        ("user", {"id": "x", "name": "kept"}, {"id": "x", "name": "kept"}),
        ("token", ["the", "Zx81kLmn0PqRs"], ["the", "***"]),
        ("password", [1, "lovelace-ltd", None, "ab"], [1, "***", None, "***"]),
        ("project", {"name": "lovelace-ltd", "program": "t.py {x}"}, {"name": "project-1", "program": "t.py {x}"}),
        (
            "checkout",
            {"commit": "0123456789" * 4, "dirty": True, "branch": "lovelace-ltd {x}"},
            {"commit": "", "dirty": True, "branch": ""},
        ),
        ("words", ["a", "b"], ["a", "b"]),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_brackets_in_strings_hide_nothing(tmp_path, member, value, shown, indent):
    document = {"traceEvents": [], "other": {member: value, "next": ["kept", "lovelace-ltd" * (member == "command")]}}
    (tmp_path / "a.json").write_text(json.dumps(document, indent=indent))
    found = json.loads(copied(tmp_path / "a.json", tmp_path / "b.json").written.read_text())["other"]
    assert found == {member: shown, "next": ["kept", "***" * (member == "command")]}


@pytest.mark.parametrize("member", ["environment", "password", "credentials", "command"])
def test_what_goes_on_in_the_next_piece_is_cleaned_as_a_whole(tmp_path, monkeypatch, member):
    values = {"environment": {f"A{n}": "{x}, lovelace-ltd" for n in range(9)}, "password": ["[x], lovelace-ltd"] * 9}
    values["credentials"] = values["environment"]
    value = values.get(member, ["--password", "lovelace-ltd", "x=[1]"] * 9)
    (tmp_path / "a.json").write_text(json.dumps({"a": [{"b": "c"}, {"b": "d"}], member: value, "e": "f"}))
    for size in (64, 100, 128):
        monkeypatch.setattr(streams, "_PIECE_BYTES", size)
        found = copied(tmp_path / "a.json", tmp_path / f"{size}.json").written.read_text()
        assert "lovelace" not in found
        assert json.loads(found)["e"] == "f"

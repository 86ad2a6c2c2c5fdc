"""What becomes of a call that takes too long, needs too much, or is given up?"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from folders import FIXTURES

pytest.importorskip("mcp")

from perfdoctor.assistant import tools
from perfdoctor.assistant.asking import Call, WorkerProcess
from perfdoctor.assistant.desk import Desk
from perfdoctor.assistant.root import AllowedRoot
from perfdoctor.assistant.worker import ToolRequest, WorkerSetup, answered
from perfdoctor.errors import PerfdoctorError

TORCH = {"path": "input-bound-single-process/torch"}

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes and signals as on Linux and macOS")


@pytest.fixture
def setting():
    return WorkerSetup(str(FIXTURES), [], 60.0, 0)


@pytest.fixture
def worker(setting):
    made = WorkerProcess(setting)
    yield made
    made.close()
    assert not Path(made._scratch.name).exists()


def test_a_call_that_takes_too_long_ends_its_process_and_the_next_one_is_answered(worker, setting):
    setting.seconds = 0.02  # in which no Python starts
    with pytest.raises(PerfdoctorError, match=r"no answer within 0\.02 s"):
        worker.ask(Call("analyze", TORCH))
    assert worker._process is None
    setting.seconds = 60.0
    assert worker.ask(Call("analyze", TORCH)).data["step_ns"] == 34_306_000


def test_a_worker_that_died_between_two_calls_is_replaced(worker):
    first = worker.ask(Call("analyze", TORCH))
    number = worker._process.pid
    os.kill(number, signal.SIGKILL)
    worker._process.exit_code()
    assert worker.ask(Call("analyze", TORCH)).data == first.data
    assert worker._process.pid != number


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no limit")
def test_too_little_memory_is_an_error_of_the_call(setting, worker):
    setting.memory_bytes = 40 << 20  # Python alone takes most of it
    with pytest.raises(PerfdoctorError, match="memory") as failed:
        worker.ask(Call("analyze", TORCH))
    assert "--memory" in failed.value.do


def test_modules_of_the_folder_in_which_a_client_starts_it_are_not_imported(worker, tmp_path, monkeypatch):
    for name in ("numpy", "msgspec", "json", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    (tmp_path / "perfdoctor").mkdir()
    (tmp_path / "perfdoctor" / "__init__.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    assert worker.ask(Call("analyze", TORCH)).data["step_ns"] == 34_306_000
    assert not (tmp_path / "run").exists()


def test_who_gives_up_ends_his_own_call_alone(worker):
    worker.ask(Call("analyze", TORCH))
    number, other = worker._process.pid, Call("analyze", TORCH)
    worker.give_up(other)
    with pytest.raises(PerfdoctorError):
        worker.ask(other)
    assert worker.ask(Call("explain", {"rule": "input-wait"})).data["rule"] == "input-wait"
    assert worker._process.pid == number


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_memory_that_runs_out_within_a_call_is_said(monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(tools, "answer_of", lambda _: fails)
    reply = answered(ToolRequest("analyze", TORCH), Desk(AllowedRoot.at(FIXTURES)))
    assert (reply.data, reply.is_last, "memory" in reply.what, "--memory" in reply.do) == (None, True, True, True)


def test_a_bug_of_ours_ends_one_call_and_shows_nothing_of_itself(monkeypatch, capsys):
    def fails(*_):
        raise ZeroDivisionError("secret text")

    monkeypatch.setattr(tools, "answer_of", lambda _: fails)
    reply = answered(ToolRequest("analyze", TORCH), Desk(AllowedRoot.at(FIXTURES)))
    assert (reply.is_bug, reply.what) == (True, "perfdoctor failed: ZeroDivisionError")
    assert capsys.readouterr().out == ""


def test_what_was_read_is_read_again_when_its_files_change(tmp_path, monkeypatch):
    source = FIXTURES / "input-bound-single-process" / "torch" / "rank0.pt.trace.json.gz"
    file = tmp_path / "rank0.pt.trace.json.gz"
    file.write_bytes(source.read_bytes())
    desk = Desk(AllowedRoot.at(tmp_path))
    first = desk.examined(file.name)
    assert desk.examined(str(file)) is first
    assert desk.examined(".") is not first
    other = FIXTURES / "healthy" / "torch" / "rank0.pt.trace.json.gz"
    file.write_bytes(other.read_bytes())
    assert desk.examined(file.name) is not first
    assert len(desk._kept) == 2


def test_few_diagnoses_are_kept(tmp_path, monkeypatch):
    source = FIXTURES / "healthy" / "torch" / "rank0.pt.trace.json.gz"
    desk = Desk(AllowedRoot.at(tmp_path))
    monkeypatch.setattr("perfdoctor.assistant.desk.MOST_KEPT", 2)
    for number in range(4):
        (tmp_path / f"{number}.json.gz").write_bytes(source.read_bytes())
        desk.examined(f"{number}.json.gz")
    assert [Path(key.path).name for key in desk._kept] == ["2.json.gz", "3.json.gz"]


def test_an_address_is_read_only_below_what_is_allowed(tmp_path):
    root = AllowedRoot.at(tmp_path, ("s3://bucket/runs",))
    assert root.address("s3://bucket/runs/1") == "s3://bucket/runs/1"
    assert root.address("runs/1") is None
    for address in (
        "s3://bucket/runs-2/1", "s3://bucket/", "s3://bucket/runs/../other", "s3://bucket/runs/%2e%2e/other",
        "S3://bucket/runs/1", "https://bucket/runs/1", "s3://bucket/runs/*", "s3://me@bucket/runs/1",
    ):  # fmt: skip
        with pytest.raises(PerfdoctorError, match="may not be read"):
            root.address(address)

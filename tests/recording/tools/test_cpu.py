"""The sampler of the processor counts what its program and others really use, and stays cheap and silent."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from launched import wait_for

from perfdoctor.readers.machine import cpu_samples
from perfdoctor.recording.tools import cpu
from perfdoctor.recording.tools.cpu import COLUMNS, CpuSampler

#: A program with a child and a second thread: each computes for a given CPU time, and all say what they used.
BUSY = """
import subprocess, sys, threading, time
def compute(seconds):
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        pass
    time.sleep(1)  # a thread that has ended is no longer seen
thread = threading.Thread(target=compute, args=(0.2,))
thread.start()
child = [sys.executable, "-c", "import time\\nwhile time.process_time() < 0.5: pass\\ntime.sleep(2)"]
started = subprocess.Popen(child)
compute(0.2)
thread.join()
started.wait()
"""
#: A daemon that computes once its parent has ended, and six processes one after the other; files say how far they are.
SHORT_LIVED = """
import subprocess, sys, time
from pathlib import Path
def begin(role):
    return subprocess.Popen([sys.executable, __file__, role])
def compute(seconds):
    while time.process_time() < seconds:
        pass
def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.01)
if sys.argv[1] == "program":
    begin("parent").wait()
    Path("parent-ended").touch()
    for _ in range(6):
        begin("short").wait()
    wait_for("daemon-computed")
    Path("computed").touch()
    wait_for("end")
elif sys.argv[1] == "parent":
    begin("daemon")
    wait_for("daemon-seen")
elif sys.argv[1] == "daemon":
    Path("daemon-begun").touch()
    wait_for("parent-ended")
    compute(0.6)
    Path("daemon-computed").touch()
    wait_for("end")
else:
    compute(0.2)
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def sampled(tmp_path: Path) -> list[dict[str, str]]:
    target = tmp_path / "cpu.csv"
    sampler = CpuSampler(target, hertz=50)
    assert sampler.start() == ""
    program = subprocess.Popen([sys.executable, "-c", BUSY])
    sampler.follow(program.pid)
    program.wait()
    written = sampler.stop()
    rows = list(csv.DictReader(target.open()))
    assert (len(rows), tuple(rows[0])) == (written, COLUMNS)
    return rows


def test_it_counts_the_programs_threads_and_children(sampled: list[dict[str, str]]) -> None:
    known = [row for row in sampled if row["program_cpu_ns"]]
    assert max(int(row["program_processes"]) for row in known) == 2
    assert max(int(row["program_threads"]) for row in known) >= 2
    # 0.2 s in each of two threads and 0.5 s in the child; interpreters start, too.
    assert 0.85e9 < int(known[-1]["program_cpu_ns"]) < 2e9
    assert all(int(row["allowed_cores"][0]) <= int(row["cores"]) for row in sampled)


def test_all_counters_only_rise(sampled: list[dict[str, str]]) -> None:
    for column in (name for name in COLUMNS if name.endswith("_ns")):
        values = [int(row[column]) for row in sampled if row[column]]
        assert values == sorted(values), column
    passed = int(sampled[-1]["unix_ns"]) - int(sampled[0]["unix_ns"])
    spent = sum(int(sampled[-1][c]) - int(sampled[0][c]) for c in ("busy_ns", "idle_ns", "steal_ns"))
    cores = len(os.sched_getaffinity(0))
    assert spent == pytest.approx(passed * cores, rel=0.3)  # the kernel counts in ticks


def test_what_it_writes_is_read(sampled: list[dict[str, str]], tmp_path: Path) -> None:
    frame = cpu_samples.read(tmp_path / "cpu.csv")["cpu_samples"]
    assert len(frame) == len(sampled) - 1
    cores = frame.floats("program_cores")
    known = [(row["program_cpu_ns"], int(row["unix_ns"])) for row in sampled]
    for index, ((used, begun), (later, ended)) in enumerate(pairwise(known)):
        assert bool(np.isnan(cores[index])) == (not used or not later)
        if used and later:
            assert cores[index] == pytest.approx((int(later) - int(used)) / (ended - begun))


def test_what_came_and_went_between_two_samples_and_a_daemon_count_as_the_programs(tmp_path: Path) -> None:
    """Else another program would seem to have used it."""
    (tmp_path / "phases.py").write_text(SHORT_LIVED)
    used = cpu._Used()
    with subprocess.Popen([sys.executable, "phases.py", "program"], cwd=tmp_path) as program:
        try:
            wait_for((tmp_path / "daemon-begun").exists)
            begun = used.sample(program.pid)["program_cpu_ns"]
            (tmp_path / "daemon-seen").touch()
            wait_for((tmp_path / "computed").exists)
            known = used.sample(program.pid)["program_cpu_ns"]
        finally:  # it waits for this without an end
            (tmp_path / "end").touch()
    assert isinstance(begun, int)
    assert isinstance(known, int)
    # 0.6 s of the daemon and 1.2 s of the others. The kernel counts in ticks.
    assert known - begun > 1.7e9


def test_without_the_list_of_children_nothing_is_said_of_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Children would count as other programs."""
    monkeypatch.setattr(cpu, "_PROC", tmp_path)
    assert cpu._Used().sample(1) == {}


def test_it_waits_longer_where_a_sample_is_expensive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_: frozenset[int]) -> dict[str, object]:
        begun = time.thread_time()
        while time.thread_time() - begun < 0.005:
            pass
        return {"cores": 1}

    monkeypatch.setattr(cpu, "_machine", slow)
    sampler = CpuSampler(tmp_path / "cpu.csv", hertz=1000)
    sampler.start()
    time.sleep(0.3)
    assert sampler.stop() <= 2  # one at the start, one at the end: 5 ms of work in 1 s


def test_without_proc_there_is_a_reason_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_PROC", tmp_path / "nothing")
    assert CpuSampler(tmp_path / "cpu.csv").start() == "/proc/stat cannot be read"
    assert not (tmp_path / "cpu.csv").exists()


def test_a_kernel_without_pressure_and_schedstat_counts_in_ticks_and_a_thread_that_ended_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, stat in {"7": "7 (a (b) c) R" + " 0" * 10 + " 30 12" + " 0" * 30, "8": ""}.items():
        folder = tmp_path / "5" / "task" / name
        folder.mkdir(parents=True)
        (folder / "stat").write_text(stat)
    monkeypatch.setattr(cpu, "_PROC", tmp_path)
    (thread,) = cpu.threads_of(5)
    assert (thread.process, thread.thread, thread.state, thread.delay_ns) == (5, 7, "R", 0)
    assert thread.cpu_ns == 42 * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert cpu._pressure_ns() == ""
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "cpu").write_text("full avg10=0.00 total=1\nsome avg10=0.00 total=5\n")
    assert cpu._pressure_ns() == 5_000

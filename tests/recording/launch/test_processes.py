"""Which processes belong to a program, by /proc: chains, orphans, zombies, strange names."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launched import SH, python, wait_for

from perfdoctor.recording.launch import processes


@contextmanager
def started(*command: str, **more: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, **more) as process:
        try:
            yield process
        finally:
            for pid in [*processes.descendants(process.pid), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_descendants_are_children_and_theirs_nearest_first() -> None:
    with started(SH, "-c", f"{SH} -c 'sleep 60 & echo; wait' & wait") as top:
        top.stdout.readline()
        child, grandchild = wait_for(lambda: found if len(found := processes.descendants(top.pid)) == 2 else None)
        assert wait_for(lambda: processes.name_of(grandchild) == "sleep")  # until then it is a fork of the shell
        assert processes.descendants(child) == [grandchild]
        assert processes.descendants(child, top.pid) == [grandchild, child, grandchild]


def test_what_is_left_out_is_left_out_with_what_it_started() -> None:
    with started(SH, "-c", f"{SH} -c 'sleep 60 & echo; wait' & sleep 60 & wait") as top:
        top.stdout.readline()
        found = wait_for(lambda: found if len(found := processes.descendants(top.pid)) == 3 else None)
        parent = next(pid for pid in found if processes.descendants(pid))
        (kept,) = processes.descendants(top.pid, but={parent})
        assert processes.name_of(kept) == "sleep"
        assert kept in found


def test_one_that_has_ended_is_not_alive_though_it_was_not_reaped() -> None:
    with started(SH, "-c", "exit 0") as process:
        wait_for(lambda: not processes.is_alive(process.pid))
        assert process.pid not in processes.descendants(os.getpid())
        os.kill(process.pid, 0)  # it is still there


def test_one_whose_main_thread_has_ended_is_alive_as_long_as_another_runs() -> None:
    text = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
    with started(*python(text)) as process:
        process.stdout.readline()
        stat = Path(f"/proc/{process.pid}/stat")
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
        assert processes.is_alive(process.pid)
        assert process.pid in processes.descendants(os.getpid())


def test_a_process_that_does_not_exist_is_not_alive_and_has_no_name_and_no_time() -> None:
    with started(SH, "-c", "exit 0") as process:
        process.wait()
        assert not processes.is_alive(process.pid)
        assert processes.name_of(process.pid) == ""
        assert processes.cpu_seconds([process.pid]) == 0
        processes.send([process.pid], signal.SIGTERM)


def test_a_name_with_brackets_blanks_and_control_characters_is_read() -> None:
    text = "import ctypes, time; ctypes.CDLL(None).prctl(15, b') Z 1\\x1b(\\xff', 0, 0, 0); print(flush=True); time.sleep(60)"
    with started(*python(text)) as process:
        process.stdout.readline()
        assert processes.is_alive(process.pid)
        assert process.pid in processes.descendants(os.getpid())
        assert processes.name_of(process.pid) == ") Z 1?(\ufffd"


def test_cpu_time_counts_work_and_not_waiting() -> None:
    with started(sys.executable, "-c", "while True: pass") as busy, started("sleep", "60") as idle:
        wait_for(lambda: processes.cpu_seconds([busy.pid]) > 0.1)
        assert processes.cpu_seconds([idle.pid]) < 0.1
        assert processes.cpu_seconds([busy.pid, idle.pid]) >= processes.cpu_seconds([idle.pid])
        wait_for(lambda: not processes.any_runnable([idle.pid]))
        assert processes.any_runnable([idle.pid, busy.pid])


def test_children_that_ended_are_reaped_with_how_they_ended() -> None:
    text = """
import os
from perfdoctor.recording.launch import processes
pids = [os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", body) for body in ("exit 3", "kill -KILL $$", "exec sleep 60")]
found = {}
while len(found) < 2:
    found.update(processes.reap())
print([os.waitstatus_to_exitcode(found[pid]) for pid in pids[:2]], pids[2] in found)
processes.send(pids[2:], 9)
os.waitpid(pids[2], 0)
print(list(processes.reap()))
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=_environment(), timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["[3, -9] False", "[]"]


def test_orphans_become_children_of_the_subreaper_and_end_with_their_parent_if_requested() -> None:
    text = """
import os, time
from perfdoctor.recording.launch import processes
processes.adopt_orphans()
os.spawnlp(os.P_WAIT, "sh", "sh", "-c", "setsid sleep 60 > /dev/null & exit 0")
(orphan,) = processes.descendants(os.getpid())
child = os.fork()
if child == 0:
    processes.end_with_parent()
    print(orphan, os.getpid(), flush=True)
    time.sleep(60)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, env=_environment()) as process:
        orphan, child = map(int, process.stdout.readline().split())
        assert {orphan, child} == set(processes.descendants(process.pid))
        process.kill()
        process.wait()
        wait_for(lambda: not processes.is_alive(child))
        assert processes.is_alive(orphan)
        os.kill(orphan, signal.SIGKILL)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

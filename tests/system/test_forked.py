"""What is worked out in a forked child: the same as here, without a trace of it afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")

#: Whoever is first waits until the other process has taken its function too.
_HEAD = """
import os, sys, time, threading
from perfdoctor.system.forked import several
here = os.getpid()
def where():
    time.sleep(0.2)
    return os.getpid()
def in_child(work):
    return several([lambda: where() != here and work()] * 2)
"""


def _says(program: str, jobs: int = 2, **more: str) -> str:
    """What a program of its own prints; it is forked without pytest's threads, and any warning is an error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _HEAD + program],
        env={**os.environ, "PERFDOCTOR_JOBS": str(jobs), "PYTHONUNBUFFERED": "", **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


_WHERE = "print(len(set(several([where, where]))) == 2)"


def test_it_is_done_in_a_child() -> None:
    assert _says(_WHERE) == "True\n"


def test_with_one_process_allowed_it_is_done_here() -> None:
    assert _says(_WHERE, jobs=1) == "False\n"


def test_a_process_with_two_threads_is_not_forked() -> None:
    program = "import threading, time; threading.Thread(target=time.sleep, args=(1,), daemon=True).start()\n"
    assert _says(program + _WHERE) == "False\n"


def test_where_memory_is_short_it_is_done_here() -> None:
    program = "import perfdoctor.system.forked as b; b.available_bytes = lambda: 1 << 20\n"
    assert _says(program + _WHERE) == "False\n"


def test_a_thread_of_a_display_is_paused_for_the_fork() -> None:
    program = """
import contextlib
from perfdoctor.system.forked import pausing
class Display:
    def start(self):
        self.end = threading.Event(); self.thread = threading.Thread(target=self.end.wait); self.thread.start()
    def stop(self): self.end.set(); self.thread.join()
    @contextlib.contextmanager
    def paused(self):
        self.stop()
        try: yield
        finally: self.start()
display = Display(); display.start()
with pausing(display.paused):
    print(sorted(in_child(threading.active_count)), threading.active_count())
display.stop()
"""
    assert _says(program) == "[False, 1] 2\n"


def test_what_is_buffered_is_written_once() -> None:
    program = "print('once', end=' ')\n" + "in_child(lambda: print('never'))\n"
    assert _says(program) == "once "


def test_an_exception_arrives() -> None:
    program = "def f(): raise KeyError(7)\ntry: several([f, where])\nexcept KeyError as e: print(repr(e))"
    assert _says(program) == "KeyError(7)\n"


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), 9)", "os._exit(0)", "sys.exit(1)", "1 / 0"])
def test_where_a_child_dies_the_work_is_done_here(how: str) -> None:
    program = f"def f():\n  if where() != here: {how}\n  return 'done'\n"
    assert _says(program + "print(several([f, f, lambda: 'too']))") == "['done', 'done', 'too']\n"


@pytest.mark.parametrize("jobs", [1, 2, 3, 16])
def test_results_come_in_the_order_of_the_functions(jobs: int) -> None:
    program = "def f(n): time.sleep(0.002 * (n % 3)); return n * n\n"
    program += "found = several([lambda n=n: f(n) for n in range(50)])\nprint(found == [n * n for n in range(50)])"
    assert _says(program, jobs) == "True\n"


def test_a_program_that_ignores_the_ends_of_its_children_has_the_result() -> None:
    program = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    assert _says(program + _WHERE) == "True\n"


def test_large_results_arrive() -> None:
    program = "import numpy as np\nprint([int(each.sum()) for each in several([lambda: where() and np.arange(3_000_000)] * 2)])"
    assert _says(program, OPENBLAS_NUM_THREADS="1") == f"{[3_000_000 * 2_999_999 // 2] * 2}\n"


def test_a_child_that_nobody_waits_for_is_ended() -> None:
    program = "def f(): return 1 / 0 if os.getpid() == here else time.sleep(60)\n"
    program += "def first(): return where() and f()\n"
    program += "try: several([first, first])\nexcept ZeroDivisionError: pass\n"
    program += "try: os.waitpid(-1, 0)\nexcept ChildProcessError: print('none')"
    assert _says(program) == "none\n"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_child_outlives_its_parent(how: signal.Signals, tmp_path: Path) -> None:
    mark = tmp_path / "child"
    program = f"""
def f():
    open({str(mark)!r} + '.new', 'w').write(str(os.getpid())); os.rename({str(mark)!r} + '.new', {str(mark)!r})
    time.sleep(600)
in_child(f)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", _HEAD + program],
        env={**os.environ, "PERFDOCTOR_JOBS": "2"},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _wait_until(mark.exists)
    child = int(mark.read_text())
    assert child != parent.pid
    if how == signal.SIGINT:
        os.killpg(parent.pid, how)  # as a terminal does
    else:
        parent.send_signal(how)
    parent.wait(30)
    _wait_until(lambda: not _lives(child))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_until(is_so: object, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.01)

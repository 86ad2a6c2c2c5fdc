"""Does a running interpreter run our words at a safe point, and does the program notice none of it? With the real gdb."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from running import Running, awaited, needs_gdb, running

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.attaching import debugger, image, interpreter_calls
from perfdoctor.recording.attaching.interpreter_calls import Injection
from perfdoctor.recording.attaching.target import inspect
from perfdoctor.recording.launch.processes import is_stopped

_BUSY = """
import signal, sys, threading, time
before = set(globals()) | {"before"}
print("begun", flush=True)
def work():
    while True: sum(number for number in range(200))
threading.Thread(target=work, daemon=True).start()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
while True:
    sum(number for number in range(200))
    if set(globals()) - before - {"work"}: print("changed", sorted(set(globals()) - before))
"""
_ASLEEP = """
import time
print("begun", flush=True)
time.sleep(4)
for number in range(100): sum(range(100))
print("awake", flush=True)
time.sleep(100)
"""


@pytest.fixture(autouse=True)
def _gdb() -> None:
    needs_gdb()


def _words(folder: Path) -> tuple[Path, Path]:
    """A file that the interpreter is to run, and the one that it writes then."""
    start, mark = folder / "start.py", folder / "mark"
    start.write_text(f"import threading\nopen({str(mark)!r}, 'x').write(threading.current_thread().name)")
    return start, mark


def _inject(program: Running, start: Path) -> Injection:
    target = inspect(program.pid)
    assert target is not None
    return interpreter_calls.inject(target, start)


def _pythons() -> list[str]:
    """This Python, and each other version that the agent is for and that starts here."""
    installed = sorted(Path(os.environ.get("PYENV_ROOT", "/nowhere"), "versions").glob("3.*/bin/python3"))
    found = {sys.version_info[1]: sys.executable}
    for minor in range(8, 15):
        of_pyenv = next((str(each) for each in installed if f"/3.{minor}." in str(each)), None)
        python = of_pyenv or shutil.which(f"python3.{minor}")
        if python and minor not in found:
            done = subprocess.run([python, "-c", ""], capture_output=True, check=False)
            found |= {minor: python} if not done.returncode else {}
    return list(found.values())


@pytest.mark.parametrize("python", _pythons())
def test_the_words_run_in_a_thread_of_their_own_and_leave_no_name_and_no_byte(tmp_path: Path, python: str) -> None:
    start, mark = _words(tmp_path)
    with running(tmp_path, _BUSY, python=python) as program:
        injection = _inject(program, start)
        address, size = injection.address, injection.size
        assert awaited(mark.exists)
        assert awaited(lambda: "Dummy" in mark.read_text())
        injection.clear()
        assert not address or not any(image.bytes_at(program.pid, address, size))
        assert program.end() == 7
        assert program.output == "begun\n"
        assert injection.stopped_s < 5


def test_an_interpreter_that_sleeps_does_nothing_later_when_nobody_waits_any_more(tmp_path: Path) -> None:
    start, mark = _words(tmp_path)
    with running(tmp_path, _ASLEEP) as program:
        injection = _inject(program, start)
        assert not mark.exists()
        start.unlink()
        injection.withdraw()
        assert awaited(lambda: "awake" in program.output)
        time.sleep(0.2)
        assert not mark.exists()
        assert program.output == "begun\nawake\n"


def test_ctrl_c_reaches_the_program_while_it_is_attached_to(tmp_path: Path) -> None:
    start, _ = _words(tmp_path)
    with running(tmp_path, _BUSY) as program:
        _inject(program, start)
        program.process.send_signal(signal.SIGINT)
        assert program.process.wait(20) != 0
        assert "KeyboardInterrupt" in program.output


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="no debugger is used")
def test_a_debugger_that_is_killed_lets_the_program_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before it calls: in the call itself, which lasts a millisecond, it takes the program with it."""
    tool = debugger.find()
    assert tool is not None
    # a call that is made only after a while, in which the program stands still
    words = debugger.Debugger.words

    def slow(self: debugger.Debugger, pid: int, address: int, arguments: tuple[int, ...]) -> list[str]:
        made = words(self, pid, address, arguments)
        at = made.index("-p") + 2
        return [*made[:at], "-ex", "shell sleep 30", *made[at:]]

    monkeypatch.setattr(debugger.Debugger, "words", slow)
    start, mark = _words(tmp_path)
    with running(tmp_path, _BUSY) as program:
        killer = threading.Thread(target=_kill_tracer, args=(program.pid,))
        killer.start()
        with pytest.raises(PerfdoctorError, match="could not call into the program"):
            _inject(program, start)
        killer.join()
        assert awaited(lambda: not is_stopped(program.pid), 5)
        assert program.end() == 7
        assert not mark.exists()


def _kill_tracer(pid: int) -> None:
    def tracer() -> int:
        found = inspect(pid)
        return found.tracer if found else 0

    awaited(lambda: tracer() > 0, 20)
    os.kill(tracer(), signal.SIGKILL)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="no debugger is used")
def test_a_debugger_that_hangs_is_ended_and_the_program_runs_on(tmp_path: Path) -> None:
    fake = tmp_path / "gdb"
    fake.write_text("#!/bin/sh\nexec sleep 100\n")
    fake.chmod(0o755)
    with running(tmp_path, _BUSY) as program:
        with pytest.raises(PerfdoctorError, match="did not end in time"):
            debugger.call(debugger.Debugger("gdb", str(fake)), program.pid, 0, limit_s=0.3)
        assert program.end() == 7


def test_what_gdb_says_of_a_refusal_is_a_reason_and_a_remedy(tmp_path: Path) -> None:
    fake = tmp_path / "gdb"
    fake.write_text("#!/bin/sh\necho 'ptrace: Operation not permitted.'\n")
    fake.chmod(0o755)
    with running(tmp_path, _BUSY) as program:
        with pytest.raises(PerfdoctorError, match="forbids ptrace") as error:
            debugger.call(debugger.Debugger("gdb", str(fake)), program.pid, 0)
        assert "--cap-add=SYS_PTRACE" in error.value.do


def test_words_hold_no_character_that_the_memory_of_another_process_might_read_otherwise() -> None:
    assert interpreter_calls.words(Path("/tmp/x/1.py")).isascii()
    with pytest.raises(PerfdoctorError, match="not ASCII"):
        interpreter_calls.words(Path("/tmp/ä/1.py"))

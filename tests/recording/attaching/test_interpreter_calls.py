"""Does a running interpreter run our words at a safe point, and does the program notice none of it?"""

from __future__ import annotations

import _ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from running import Running, awaited, needs_ptrace, running

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.attaching import calling, image, interpreter_calls, waiting
from perfdoctor.recording.attaching.interpreter_calls import Injection
from perfdoctor.recording.attaching.target import Target, inspect

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


#: Its main thread waits in one of several ways while another thread works.
_BESIDE = """
import os, select, sys, threading, time
def work():
    while not is_over: sum(number for number in range(200))
is_over, other = False, threading.Thread(target=work, daemon=True)
other.start()
print("begun", flush=True)
if sys.argv[1] == "join": other.join()
if sys.argv[1] == "event": threading.Event().wait()
if sys.argv[1] == "sleep": time.sleep(1000)
if sys.argv[1] == "pipe": select.select([os.pipe()[0]], [], [])
if sys.argv[1] == "soon":
    time.sleep(6)
    for number in range(100): sum(range(100))
    print("awake", flush=True)
    time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def _ptrace() -> None:
    needs_ptrace()


def _words(folder: Path) -> tuple[Path, Path]:
    """A file that the interpreter is to run, and the one that it writes then."""
    start, mark = folder / "start.py", folder / "mark"
    start.write_text(f"import threading\nopen({str(mark)!r}, 'x').write(threading.current_thread().name)")
    return start, mark


def _injected(target: Target, start: Path) -> Injection:
    interpreter_calls.prepare(target, start)
    return interpreter_calls.inject(target, start)


def _inject(program: Running, start: Path) -> Injection:
    return _injected(_target(program), start)


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


@pytest.mark.parametrize("python", _pythons())
def test_where_the_main_thread_waits_the_words_run_in_a_new_thread_once(tmp_path: Path, python: str) -> None:
    start, mark = _words(tmp_path)
    with running(tmp_path, _BESIDE, "soon", python=python) as program:
        injection = _inject(program, start)
        assert waiting.work_beside([program.pid], 0.5) == {program.pid}
        assert not mark.exists()
        injection = interpreter_calls.in_own_thread(injection, start)
        assert awaited(mark.exists)
        assert awaited(lambda: "Dummy" in mark.read_text())
        mark.unlink()
        start.unlink()  # as the agent does, which has begun
        injection.clear()
        assert awaited(lambda: "awake" in program.output)
        time.sleep(0.2)
        assert not mark.exists(), "the main thread comes to the words, and does nothing"
        assert program.output == "begun\nawake\n"
        assert program.is_alive


@pytest.mark.parametrize("how", ["join", "event", "sleep", "pipe"])
def test_a_main_thread_may_wait_in_any_way_and_as_often_as_somebody_attaches(tmp_path: Path, how: str) -> None:
    with running(tmp_path, _BESIDE, how) as program:
        assert waiting.work_beside([program.pid], 0.2) == {program.pid}
        threads, held = set(_threads(program)), []
        for number in range(3):
            (folder := tmp_path / str(number)).mkdir()
            start, mark = _words(folder)
            injection = interpreter_calls.in_own_thread(Injection(_target(program), "none"), start)
            assert awaited(mark.exists)
            assert awaited(lambda: set(_threads(program)) == threads)
            injection.clear()
            held.append(injection.address)
        assert len(set(held)) == 1, "what was written is written again in its place"
        assert program.is_alive
        assert program.output == "begun\n"


def test_a_main_thread_that_has_gone_on_meanwhile_is_not_called_into(tmp_path: Path) -> None:
    start, mark = _words(tmp_path)
    with running(tmp_path, "print('begun', flush=True)\nwhile True: pass") as program:
        with pytest.raises(PerfdoctorError, match="has gone on meanwhile"):
            interpreter_calls.in_own_thread(Injection(_target(program), "none"), start)
        assert (program.is_alive, mark.exists()) == (True, False)


def test_on_another_processor_no_code_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "system_call", lambda *_: ["230", "0x0"])
    assert waiting.main_thread_waits(1)
    monkeypatch.setattr(calling.platform, "machine", lambda: "aarch64")
    assert not waiting.main_thread_waits(1)


def _threads(program: Running) -> list[str]:
    return os.listdir(f"/proc/{program.pid}/task")  # noqa: PTH208 the names alone


@pytest.mark.parametrize("how", ["busy", "asleep", "locked"])
def test_a_main_thread_that_works_and_one_beside_which_nobody_works_are_left(tmp_path: Path, how: str) -> None:
    code = {
        "busy": _BUSY,
        "asleep": "import time; print('begun', flush=True); time.sleep(1000)",
        # glibc waits for its own locks as for this one, which its other thread holds while it works.
        "locked": """
import ctypes, threading
libc, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)
def work():
    libc.pthread_mutex_lock(lock)
    print("begun", flush=True)
    while True: sum(range(200))
threading.Thread(target=work, daemon=True).start()
__import__("time").sleep(0.2)
libc.pthread_mutex_lock(lock)
""",
    }[how]
    with running(tmp_path, code) as program:
        time.sleep(0.3)
        assert waiting.work_beside([program.pid], 0.3) == set()


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


def test_the_words_lie_where_nothing_is_unloaded_though_a_plugin_is_mapped_lower() -> None:
    """An interpreter that comes to them late, or never, keeps their address."""
    files = {
        "/bin/python3.11": 1, "/tmp/compiled.so": 2, "/opt/libcudart.so.12": 3, "/opt/torch/lib/libtorch_cpu.so": 4,
        "/lib/libm.so.6": 5, "/usr/share/locale": 6, "/lib/libc-2.31.so": 7, "/lib/libc.so.6": 8, "/lib/libmkl.so": 9,
        "/lib/libstdc++.so.6": 10, "/lib/libpython3.11.so.1.0": 11,
    }  # fmt: skip
    found = list(interpreter_calls._never_unloaded_first(files, "/bin/python3.11").values())
    assert found == [4, 5, 7, 8, 10, 11, 1, 2, 3, 9]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="sys.remote_exec is used")
def test_a_library_that_a_program_loads_itself_gets_no_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "libcompiled.so"
    shutil.copy(_ctypes.__file__, own)
    spare, asked = image.spare, list[str]()

    def noted(file: Path, *rest: Any, **kind: bool) -> int | None:
        asked.append(file.name)
        return spare(file, *rest, **kind)

    monkeypatch.setattr(image, "spare", noted)
    code = f"import ctypes, time; ctypes.CDLL({str(own)!r}); print('begun', flush=True); time.sleep(100)"
    with running(tmp_path, code) as program:
        _inject(program, _words(tmp_path)[0])
    assert asked[-1].startswith(("libc.", "libm.", "libpython"))


def test_words_hold_no_character_that_the_memory_of_another_process_might_read_otherwise() -> None:
    assert interpreter_calls.words(Path("/tmp/x/1.py")).isascii()
    with pytest.raises(PerfdoctorError, match="not ASCII"):
        interpreter_calls.words(Path("/tmp/ä/1.py"))


@pytest.mark.parametrize(
    ("said", "code", "what", "do"),
    [
        ("", 0, None, None),
        ("Traceback\nRuntimeError: Remote debugging is not enabled", 1, "not enabled", "without PYTHON_DISABLE_REMOTE"),
        ("PermissionError: [Errno 1]", 1, "PermissionError", "--cap-add=SYS_PTRACE"),
        ("", 3, "exit code 3", "Try again; where it fails again"),
    ],
)
def test_from_python_3_14_on_the_interpreter_itself_is_asked_and_a_refusal_has_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int, what: str | None, do: str | None
) -> None:
    asked: list[list[str]] = []

    def answer(command: list[str], _: float) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, code, "", said)

    monkeypatch.setattr(interpreter_calls.tool_process, "asked", answer)
    start, _ = _words(tmp_path)
    target = replace(_own(), python=(3, 99))
    if what is None or do is None:
        injection = _injected(target, start)
        injection.withdraw()
        assert [each[-1] for each in asked] == [str(start.with_suffix(interpreter_calls.WORDS)), "/dev/null"]
        assert asked[0][0] == f"/proc/{os.getpid()}/exe"  # of the same minor version
        return
    with pytest.raises(PerfdoctorError, match=what) as error:
        _injected(target, start)
    assert do in error.value.do


def test_an_interpreter_that_cannot_be_asked_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(command: list[str], limit_s: float) -> None:
        raise subprocess.TimeoutExpired(command, limit_s)

    monkeypatch.setattr(interpreter_calls.tool_process, "asked", late)
    with pytest.raises(PerfdoctorError, match=r"sys\.remote_exec failed"):
        _injected(replace(_own(), python=(3, 99)), _words(tmp_path)[0])


@pytest.mark.parametrize(
    ("part", "gives", "what"),
    [
        ("interpreter", [], "does not say where its functions are"),
        ("image.spare", None, "no place for a few words"),
    ],
)
def test_without_symbols_or_a_place_for_the_words_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, gives: object, what: str
) -> None:
    monkeypatch.setattr(f"{interpreter_calls.__name__}.{part}", lambda *_, **__: gives)
    with running(tmp_path, _BUSY) as program:
        target = replace(_target(program), python=(3, 11))
        with pytest.raises(PerfdoctorError, match=what):
            _injected(target, _words(tmp_path)[0])
        assert program.is_alive


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="sys.remote_exec is used")
def test_where_the_interpreter_takes_no_more_calls_its_memory_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[int] = []

    def full(pid: int, _: int, __: int, address: int) -> calling.Called:
        assert any(image.bytes_at(pid, address, 16))
        addresses.append(address)
        return calling.Called(interpreter_calls._QUEUE_FULL, 0.0)

    monkeypatch.setattr(interpreter_calls.calling, "call", full)
    with running(tmp_path, _BUSY) as program:
        with pytest.raises(PerfdoctorError, match="queue of calls is full"):
            _inject(program, _words(tmp_path)[0])
        assert not any(image.bytes_at(program.pid, addresses[0], 16))
        assert program.is_alive


def _own() -> Target:
    found = inspect(os.getpid())
    assert found is not None
    return found


def _target(program: Running) -> Target:
    found = inspect(program.pid)
    assert found is not None
    return found

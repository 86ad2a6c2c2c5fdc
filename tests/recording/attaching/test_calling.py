"""Is a function called in a running program, and does the program notice none of it?"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from running import Running, awaited, needs_ptrace, running

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.attaching import call_in, calling, image
from perfdoctor.recording.attaching.target import interpreter
from perfdoctor.recording.launch.processes import is_stopped
from perfdoctor.system.paths import text_of

_CALLED = "Py_IsInitialized"
#: Machine code of two functions of the addresses of 128 bytes to keep and of 128 to write them to: each loads them,
#: counts to three million, and writes them. The first one holds them in zmm16 and zmm31 behind a `vzeroall`, as a copy
#: of memory by the C library does, the second one in xmm0, xmm15, r8, r11, and below the stack at -8 and -128.
_UPPER = "c5fc7762e1fe486f076261fe486f7f01b9c0c62d00ffc975fc62e1fe487f066261fe487f7e01c5f877c3"
_PLAIN = (
    "f30f6f07f3440f6f7f104c8b47204c8b5f28488b473048894424f8488b57384889542480b9c0c62d00ffc975fcf30f7f06f3440f7f7e10"
    "4c8946204c895e28488b4c24f848894e30488b4c248048894e38c3"
)
_KEEPS = """
import ctypes, mmap, sys
code, size = bytes.fromhex(sys.argv[1]), int(sys.argv[2])
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
keep = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
given = (ctypes.c_char * 192)(*bytes(range(1, 193)))
print("begun", flush=True)
while True:
    found = (ctypes.c_char * 192)()
    keep(ctypes.addressof(given), ctypes.addressof(found))
    if found.raw[:size] != given.raw[:size]: print("LOST", found.raw[:size].hex(), flush=True)
"""
_HANDLES = """
import signal, sys, time
counts = [0, 0]
def count(number, frame): counts[0] += 1
signal.signal(signal.SIGALRM, count)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
def end(number, frame):
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
print("begun", flush=True)
while True: time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def _ptrace() -> None:
    needs_ptrace()


def _address(pid: int) -> int:
    """Return the address of a function without arguments, which returns 1."""
    ((_, at),) = interpreter(pid, image.files(image.maps(pid)), (_CALLED,))
    return at[_CALLED]


def _usleep(pid: int) -> int:
    """Return the address of usleep(3) in the C library."""
    file, base = next(each for each in image.files(image.maps(pid)).items() if Path(each[0]).name.startswith("libc."))
    found = image.read(Path(file), ("usleep",))
    assert found is not None
    return base + found.symbols["usleep"]


@pytest.mark.parametrize(
    ("code", "size"),
    [
        pytest.param(
            _UPPER, 128, id="vectors",
            marks=pytest.mark.skipif("avx512f" not in text_of("/proc/cpuinfo"), reason="no such registers"),
        ),
        pytest.param(_PLAIN, 64, id="others"),
    ],
)  # fmt: skip
def test_all_registers_are_as_before_and_the_bytes_below_the_stack(tmp_path: Path, code: str, size: int) -> None:
    with running(tmp_path, _KEEPS, code, str(size)) as program:
        called = [calling.call(program.pid, _address(program.pid)) for _ in range(20)]
        assert [each.value for each in called] == [1] * 20
        assert all(0 < each.stopped_s < 1 for each in called)
        time.sleep(0.1)
        assert program.output == "begun\n"
        assert program.is_alive


def test_signals_of_the_program_reach_it_while_it_is_called_into(tmp_path: Path) -> None:
    with running(tmp_path, _HANDLES) as program:
        for _ in range(20):
            assert calling.call(program.pid, _address(program.pid)).value == 1
        assert program.end() == 7
        assert program.output == "begun\n"


@pytest.mark.parametrize(
    "how", ["time.sleep(2)", "select.select([pipe], [], [], 2)", "os.read(pipe, 1)", "lock.acquire()"]
)
def test_a_call_of_the_system_that_was_interrupted_goes_on(tmp_path: Path, how: str) -> None:
    code = f"""
import os, select, threading, time
pipe, end = os.pipe()
lock = threading.Lock()
lock.acquire()
print("begun", flush=True)
threading.Timer(2, lambda: (os.write(end, b"x"), lock.release())).start()
begun = time.monotonic()
{how}
print(round(time.monotonic() - begun), flush=True)
time.sleep(100)
"""
    with running(tmp_path, code) as program:
        for _ in range(10):
            assert calling.call(program.pid, _address(program.pid)).value == 1
            time.sleep(0.05)
        assert awaited(lambda: program.output == "begun\n2\n", 10), program.output


def test_a_function_that_fails_leaves_the_program_as_it_was(tmp_path: Path) -> None:
    with running(tmp_path, _KEEPS, _PLAIN, "64") as program:
        with pytest.raises(PerfdoctorError, match="the call failed with SIGSEGV"):
            calling.call(program.pid, 16)  # no code is there
        time.sleep(0.1)
        assert (program.output, program.is_alive) == ("begun\n", True)


def test_a_function_that_does_not_return_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = call_in._RETURNS_WITHIN_S
    changed = tmp_path / "call_in.py"
    text = Path(call_in.__file__).read_text()
    changed.write_text(text.replace(f"_RETURNS_WITHIN_S = 10.0, {patient}", "_RETURNS_WITHIN_S = 10.0, 0.5"))
    assert changed.read_text() != text
    monkeypatch.setattr(calling, "_PROGRAM", changed)
    with running(tmp_path, _KEEPS, _PLAIN, "64") as program:
        with pytest.raises(PerfdoctorError, match="did not return"):
            calling.call(program.pid, _usleep(program.pid), 30_000_000)
        time.sleep(0.1)
        assert (program.output, program.is_alive) == ("begun\n", True)


def test_whoever_is_killed_before_the_call_lets_the_program_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "call_in.py"
    text = Path(call_in.__file__).read_text()
    changed.write_text(
        text.replace("    begun = time.monotonic()\n    try:", "    time.sleep(30)\n    begun = 0\n    try:")
    )
    assert changed.read_text() != text
    monkeypatch.setattr(calling, "_PROGRAM", changed)
    with running(tmp_path, _HANDLES) as program:
        killer = threading.Thread(target=_kill_tracer, args=(program,))
        killer.start()
        with pytest.raises(PerfdoctorError, match="could not be called into"):
            calling.call(program.pid, _address(program.pid))
        killer.join()
        assert not is_stopped(program.pid)
        assert program.end() == 7


def _kill_tracer(program: Running) -> None:
    def tracer() -> int:
        (line,) = (line for line in text_of(f"/proc/{program.pid}/status").splitlines() if line.startswith("TracerPid"))
        return int(line.split()[1])

    awaited(lambda: tracer() > 0, 20)
    time.sleep(0.1)
    os.kill(tracer(), signal.SIGKILL)


@pytest.mark.parametrize(("said", "what"), [
    ({"errno": errno.EPERM}, "forbids ptrace"), ({"errno": errno.EIO}, "Input/output error"),
    ({"error": "it ended"}, "it ended"), ([], "it gave no answer"),
])  # fmt: skip
def test_why_a_call_failed_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: Any, what: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import json; print(json.dumps({said!r}))")
    monkeypatch.setattr(calling, "_PROGRAM", program)
    with pytest.raises(PerfdoctorError, match=what) as error:
        calling.call(1, 2)
    assert ("--cap-add=SYS_PTRACE" in error.value.do) == (what == "forbids ptrace")


def test_a_process_that_is_gone_or_stopped_is_said() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    process.send_signal(signal.SIGSTOP)
    assert awaited(lambda: is_stopped(process.pid))
    with pytest.raises(PerfdoctorError, match="it is stopped"):
        calling.call(process.pid, 16)
    assert awaited(lambda: is_stopped(process.pid), 5)
    process.kill()
    process.wait()
    with pytest.raises(PerfdoctorError, match="it ended"):
        calling.call(process.pid, 16)

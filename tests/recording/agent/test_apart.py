"""A copy of a process that is kept from changing anything of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from perfdoctor.recording.tools import torch_profiler

sys.path.insert(0, str(torch_profiler.AGENT))
from perfdoctor_agent import apart

sys.path.remove(str(torch_profiler.AGENT))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")

COPY = """
import mmap, os, shutil, signal, socket, subprocess, sys
sys.path.insert(0, {agent!r})
from perfdoctor_agent import apart
{before}
parent, (reader, writer) = os.getpid(), os.pipe()
child = os.fork()
if not child:
    try:
        apart.separate(parent, writer)
        guard = apart.Guard()
        guard.install()
        def tell(text):
            os.write(writer, str(text).encode())
{inside}
    except BaseException as error:
        os.write(writer, (type(error).__name__ + ": " + str(error)).encode())
    finally:
        os._exit(0)
os.close(writer)
_, status = os.waitpid(child, 0)
told = os.read(reader, 9999).decode()
{after}
"""


def copied(folder: Path, inside: str, before: str = "", after: str = "print(told)") -> str:
    """What the process prints; `inside` is what its copy does, with `tell(text)`."""
    program = COPY.format(
        agent=str(torch_profiler.AGENT),
        before=textwrap.dedent(before),
        inside=textwrap.indent(textwrap.dedent(inside), " " * 8),
        after=textwrap.dedent(after),
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_open_files_are_read_from_where_they_stand_and_neither_written_nor_moved(tmp_path: Path) -> None:
    (tmp_path / "read").write_text("0123456789")
    said = copied(
        tmp_path,
        """
        part = os.read(file, 3).decode()
        try:
            os.write(log, b"more")
        except OSError:
            part += " read only"
        tell(part)
        """,
        'file, log = os.open("read", os.O_RDONLY), os.open("log", os.O_RDWR | os.O_CREAT)\nos.read(file, 2)',
        'print(told, os.read(file, 1).decode(), os.path.getsize("log"))',
    )
    assert said == "234 read only 2 0"


def test_nothing_is_printed_and_no_pipe_or_socket_is_reached(tmp_path: Path) -> None:
    said = copied(
        tmp_path,
        """
        os.write(1, b"printed")
        os.write(ours, b"sent")
        one.send(b"sent")
        tell("done")
        """,
        "theirs, ours = os.pipe()\none, other = socket.socketpair()\nother.setblocking(False)",
        """
        os.close(ours)
        try:
            came = other.recv(9)
        except BlockingIOError:
            came = b""
        print(told, os.read(theirs, 9), came)
        """,
    )
    assert said.endswith("b'' b''")
    assert "printed" not in said


def test_whoever_writes_into_shared_memory_ends(tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(b"unchanged")
    said = copied(
        tmp_path,
        'tell(table[:9].decode() + " ")\ntable[0:1] = b"X"\ntell("written")',
        'file = open("table", "r+b")\ntable = mmap.mmap(file.fileno(), 0)',
        'print(told, os.WTERMSIG(status) == signal.SIGSEGV, open("table").read())',
    )
    assert said == "unchanged  True unchanged"


@pytest.mark.parametrize(
    "act",
    [
        'open("new", "w")',
        'open("old", "a")',
        'os.remove("old")',
        'os.rename("old", "new")',
        'os.mkdir("new")',
        'shutil.rmtree(".")',
        'subprocess.run(["touch", "new"])',
        'os.system("touch new")',
        "os.fork()",
        'socket.create_connection(("127.0.0.1", 9))',
    ],
)
def test_what_the_programs_code_does_beyond_reading_is_refused_even_if_it_catches_the_error(
    tmp_path: Path, act: str
) -> None:
    (tmp_path / "old").write_text("old")
    inside = f"""
    with guard.within():
        try:
            {act}
        except OSError:
            pass
    tell("not refused")
    """
    assert copied(tmp_path, inside).startswith("PermissionError: it does more than read: ")
    assert [file.name for file in tmp_path.iterdir()] == ["old"]


def test_reading_is_not_refused_and_outside_of_the_programs_code_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    inside = """
    with guard.within():
        found = open("old").read() + str(os.listdir("."))
    os.mkdir("new")
    tell(found)
    """
    assert copied(tmp_path, inside) == "old['old']"


def test_no_file_grows_that_is_written_without_python(tmp_path: Path) -> None:
    """As a library in C writes: past all of Python's events."""
    inside = """
    with apart.files_do_not_grow():
        try:
            os.write(os.open("new", os.O_CREAT | os.O_WRONLY), b"text")
        except OSError as error:
            tell(error.strerror)
    os.write(os.open("other", os.O_CREAT | os.O_WRONLY), b"text")
    """
    assert copied(tmp_path, inside) == "File too large"
    assert ((tmp_path / "new").stat().st_size, (tmp_path / "other").stat().st_size) == (0, 4)


def test_the_programs_handlers_of_signals_are_not_called(tmp_path: Path) -> None:
    said = copied(
        tmp_path,
        "tell('alive ')\nos.kill(os.getpid(), signal.SIGTERM)\ntell('still')",
        'signal.signal(signal.SIGTERM, lambda *_: print("handled", flush=True))',
        "print(told, os.WTERMSIG(status))",
    )
    assert said == "alive  15"


def test_below_other_folders_nothing_is_written_made_or_removed_also_by_code_in_c(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "own").mkdir()
    said = copied(
        tmp_path,
        """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        if not apart.only_below(os.path.abspath("own"), "/dev/shm"):
            tell("no Landlock")
            os._exit(0)
        flags = os.O_WRONLY | os.O_CREAT
        opened = [libc.open(name, flags | more, 0o600) for name, more in (
            (b"new", 0), (b"kept", 0), (b"kept", os.O_TRUNC), (b"own/new", 0), (b"/dev/null", 0))]
        tell([number >= 0 for number in opened])
        tell((libc.unlink(b"kept"), libc.mkdir(b"folder", 0o700), libc.rename(b"kept", b"other")))
        """,
        after='print(told, open("kept").read(), sorted(os.listdir(".")))',
    )
    expected = "[False, False, False, True, True](-1, -1, -1) kept ['kept', 'own']"
    assert said in (expected, "no Landlock kept ['kept', 'own']")


def test_the_guard_refuses_in_its_own_thread_and_there_alone() -> None:
    guard = apart.Guard()
    guard._heard("os.remove", ("a",))  # outside of `within` nothing is refused
    with guard.within():
        guard._heard("open", ("a", "r", os.O_RDONLY))
        guard._heard("os.listdir", (".",))
        guard._heard("open", (3, None, None))
        other = threading.Thread(target=guard._heard, args=("os.remove", ("a",)))
        other.start()
        other.join()
    assert guard.refused == ""


@pytest.mark.parametrize(
    ("event", "given"), [("open", ("a", "w", os.O_WRONLY)), ("socket.connect", ()), ("os.kill", ())]
)
def test_the_guard_says_what_was_refused_also_where_the_program_caught_it(
    event: str, given: tuple[object, ...]
) -> None:
    guard = apart.Guard()
    refused = pytest.raises(PermissionError, match=f"it does more than read: {event}")
    with refused, guard.within(), contextlib.suppress(PermissionError):
        guard._heard(event, given)

"""Programs that wait at their end as those do whose descriptors of nsys are closed, without nsys."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from launched import PROMPT_S, wait_for

from perfdoctor.recording.launch.held_by_nsys import _stop_and_go_on, is_held

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="recording is for Linux")

#: A thread of this name waits in epoll_wait, and the main thread waits for its end.
_JOINS = """
import ctypes, os, select, sys
libc = ctypes.CDLL(None)
epoll = select.epoll()
number = epoll.fileno()
@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def waits(_):
    libc.prctl(15, {name!r}, 0, 0, 0)
    events = ctypes.create_string_buffer(64)
    print("waits", flush=True)
    libc.epoll_wait(number, events, 1, -1)
    return None
thread = ctypes.c_ulong()
libc.pthread_create(ctypes.byref(thread), None, waits, None)
{then}
libc.pthread_join(thread, None)
os._exit(7)
"""
_CLOSES = "import time; time.sleep(0.2); epoll.close()"


@contextmanager
def _started(then: str, name: bytes = b"[NSys Comms]") -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-c", _JOINS.format(name=name, then=then)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"waits\n"
            yield program
        finally:
            program.kill()


@pytest.mark.parametrize("then", [_CLOSES, f"{_CLOSES}; other = os.open('/dev/null', 0); os.dup2(other, number)"])
def test_who_joins_a_thread_of_nsys_whose_epoll_is_closed_is_held_until_it_is_woken(then: str) -> None:
    with _started(then) as program:
        wait_for(lambda: is_held(program.pid))
        _stop_and_go_on(program.pid)
        assert program.wait(timeout=PROMPT_S) == 7


@pytest.mark.parametrize(("then", "name"), [("", b"[NSys Comms]"), (_CLOSES, b"mine")])
def test_other_threads_are_waited_for_as_long_as_the_program_wants(then: str, name: bytes) -> None:
    with _started(then, name) as program:
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(timeout=1)
        assert not is_held(program.pid)
        program.send_signal(signal.SIGTERM)

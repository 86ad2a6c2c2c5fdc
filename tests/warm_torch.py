"""Programs with torch that begin at once: each is a fork of a Python that has imported it (warm_python.py).

To import torch, and what an optimizer needs of it, takes four seconds of a processor, and a test's program a tenth of one.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from torch_python import torch_python

#: One worker runs all tests that ask for such a Python: it is started once.
ALL_AT_ONE = pytest.mark.xdist_group("warm torch")
_SERVER = Path(__file__).parent / "warm_python.py"


class Program:
    """One that runs; as much of `subprocess.Popen` as tests need."""

    def __init__(self, words: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> None:
        self._server = _server()
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading, "rb", buffering=0)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 closed when it is read
        given = {"words": [str(word) for word in words], "folder": str(folder), "environment": dict(environment)}
        socket.send_fds(self._server, [json.dumps(given).encode()], [writing, self._errors.fileno()])
        os.close(writing)
        self.pid: int = json.loads(self._server.recv(100))
        self._output = b""

    def wait_for_line(self) -> None:
        while b"\n" not in self._output:
            self._output += self.stdout.read(1 << 16)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def finish(self, timeout_s: float = 120) -> tuple[int, str, str]:
        """(exit code, output, errors), the code negative for the signal that ended it."""
        deadline = time.monotonic() + timeout_s
        while True:
            if not self._readable(deadline - time.monotonic()):
                self.send_signal(signal.SIGABRT)  # it says where it was: see warm_python.py
                time.sleep(1)
                self.send_signal(signal.SIGKILL)
                self._errors.seek(0)
                pytest.fail(
                    f"it still ran after {timeout_s} s: {self._errors.read()[-2_000:].decode(errors='replace')}"
                )
            piece = self.stdout.read(1 << 16)
            if not piece:
                break
            self._output += piece
        self._server.send(json.dumps({"wait": self.pid}).encode())
        code = os.waitstatus_to_exitcode(json.loads(self._server.recv(100)))
        self.stdout.close()
        with self._errors as errors:
            errors.seek(0)
            return code, self._output.decode(), errors.read().decode()

    def _readable(self, limit_s: float) -> bool:
        with selectors.DefaultSelector() as selector:  # select() refuses descriptors above 1023
            selector.register(self.stdout, selectors.EVENT_READ)
            return bool(selector.select(max(limit_s, 0)))


#: Stands in for Python: a script runs in a fork of the warm one, whatever else is asked for in a real one.
_COMMAND = """#!{python} -IS
import json, os, signal, socket, sys
words = sys.argv[1:]
if not words or not words[0].endswith(".py"):
    os.execv({torch!r}, [{torch!r}, *words])
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect({door!r})
    given = {{"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}}
    socket.send_fds(server, [json.dumps(given).encode()], [1, 2])
    code = os.waitstatus_to_exitcode(json.loads(server.recv(100)))
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def warm_python(folder: Path) -> str:
    """Path of a new command `python` in this folder: for tests of what perfdoctor makes of a program that it starts.

    Its program is no descendant of who runs it, and no signal but SIGKILL reaches it: how a program is started, watched
    and ended is tested with a real Python.
    """
    _server()
    command = folder / "python"
    command.write_text(_COMMAND.format(python=sys.executable, torch=torch_python(), door=str(_door())), "utf-8")
    command.chmod(0o755)
    return str(command)


@cache
def _door() -> Path:
    """Where commands ask for programs. In a short path: one of a socket has a hundred characters at most."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "door"


@cache
def _server() -> socket.socket:
    """The other end of what the process listens to; closed, it ends that."""
    command = [torch_python(), str(_SERVER)]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(str(_door()))
        door.listen()
        files = [theirs.fileno(), door.fileno()]
        process = subprocess.Popen([*command, *map(str, files)], pass_fds=files)

    def end() -> None:
        ours.close()
        process.wait(10)

    atexit.register(end)
    return ours

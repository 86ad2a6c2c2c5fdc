"""Run by a Python with torch, see warm_torch.py: torch is imported once, and each program runs in a fork of this process.

A program finds everything as a Python that has just started would show it: its own environment, arguments, folder and
output, its `sitecustomize`, and a torch that it has yet to import, whatever hooks it puts on imports before.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib.abc
import importlib.machinery
import json
import os
import runpy
import select
import signal
import site
import socket
import sys
from pathlib import Path
from typing import Any

_raised: list[BaseException] = []  # what the program ended with


@atexit.register
def _end_at_once() -> None:
    """The last thing that runs, since it was the first to be registered: taking torch down again would take a second."""
    if any(isinstance(error, KeyboardInterrupt) for error in _raised):
        return  # Python ends itself by the signal
    sys.stdout.flush()
    sys.stderr.flush()
    code = next(iter(_raised), None)
    code = code.code if isinstance(code, SystemExit) else code
    os._exit(code if isinstance(code, int) else int(code is not None))


os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a fork has no threads
import torch  # noqa: E402
import torch._dynamo  # noqa: E402 what making an optimizer imports

_PATH = [each for each in sys.path if each not in ("", str(Path(__file__).parent))]


class _AsIfNew(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the torch that is there already; "importing" it takes no time."""

    def __init__(self) -> None:
        self.torch = sys.modules.pop("torch")
        self.spec = self.torch.__spec__

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch" or "torch" in sys.modules:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, origin=self.torch.__file__, is_package=True)
        spec.submodule_search_locations = list(self.torch.__path__)
        return spec

    def create_module(self, spec: Any) -> Any:
        return self.torch

    def exec_module(self, module: Any) -> None:
        module.__spec__ = self.spec


def serve(asked: socket.socket, door: socket.socket) -> dict[str, Any]:
    """Forks for each program that is asked for, and reports how it ended. Returns what to run, in the fork.

    Who started this process asks by one socket for all its programs; a command that stands in for Python connects to
    the door, asks for its own, and hears how that ended; if it is killed, so is its program.
    """
    commands: dict[int, socket.socket] = {}
    while True:
        waiting = select.select([asked, door, *commands.values()], [], [], 0.02 if commands else None)[0]
        for pid, connection in list(commands.items()):
            if connection in waiting:
                os.kill(pid, signal.SIGKILL)
            ended, status = os.waitpid(pid, 0 if connection in waiting else os.WNOHANG)
            if ended:
                with commands.pop(pid) as answered, contextlib.suppress(OSError):  # who asked is gone
                    answered.send(json.dumps(status).encode())
        if door in waiting:
            connection, _ = door.accept()
            given, files = _received(connection)
            if pid := _forked(files):
                commands[pid] = connection
                continue
            return given
        if asked not in waiting:
            continue
        given, files = _received(asked)
        if not given:
            sys.exit(0)
        if "wait" in given:
            asked.send(json.dumps(os.waitpid(given["wait"], 0)[1]).encode())
        elif pid := _forked(files):
            asked.send(json.dumps(pid).encode())
        else:
            return given


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    message, files, _, _ = socket.recv_fds(connection, 1 << 20, 2)
    return (json.loads(message) if message else {}), files


def _forked(files: list[int]) -> int:
    """Fork, and return what `os.fork` does. The files become output and errors of the child, and are closed here."""
    pid = os.fork()
    for number, file in enumerate(files, 1):
        if pid == 0:
            os.dup2(file, number)
        os.close(file)
    return pid


given = serve(socket.socket(fileno=int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2])))
faulthandler.enable()
os.chdir(given["folder"])
os.environ.clear()
os.environ.update(given["environment"])
sys.argv = given["words"]
sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *_PATH]
sys.meta_path.insert(0, _AsIfNew())
sys.modules.pop("sitecustomize", None)
del torch, given
site.execsitecustomize()
sys.path.insert(0, str(Path(sys.argv[0]).parent))
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except BaseException as error:
    _raised.append(error)
    raise

"""How is one function called in a running process? By `call_in.py`, in a process of its own, which whoever stops this
one does not stop.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.system import tool_process

_PROGRAM = Path(__file__).with_name("call_in.py")
#: It gives up by itself before.
LIMIT_S = 40.0
_ALLOW = "In a container, start it with --cap-add=SYS_PTRACE; elsewhere run perfdoctor attach as root."


class Called(Struct, frozen=True):
    """`value`: what the function returned; None where it was not called. `stopped_s`: so long it stood still."""

    value: int | None
    stopped_s: float


def is_possible() -> bool:
    """Is it known on this machine how functions are called?"""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def call(pid: int, address: int, *arguments: int, waits: Mapping[str, Sequence[int]] | None = None) -> Called:
    """Call the function at this address in the main thread. PerfdoctorError where that fails; the process runs on.

    `waits`: it is called only where that thread waits so (`call_in.py`).
    """
    given = {"pid": pid, "address": address, "arguments": arguments, "waits": waits}
    said = _answer([sys.executable, *tool_process.isolated(), str(_PROGRAM), json.dumps(given)])
    if "stopped_s" in said:
        return Called(said["value"], said["stopped_s"])
    number = said.get("errno", 0)
    if number in (errno.EPERM, errno.EACCES):
        raise PerfdoctorError("the system forbids ptrace here", do=_ALLOW)
    why = said.get("error") or os.strerror(number)
    raise PerfdoctorError(f"process {pid} could not be called into: {why}", do="Try again.")


def _answer(command: list[str]) -> dict[str, Any]:
    environment = tool_process.environment("LD_LIBRARY_PATH")
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", env=environment,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise PerfdoctorError(f"{command[0]} does not start: {error.strerror or error}", do="Try again.") from error
    try:
        output, errors = process.communicate(timeout=LIMIT_S)
    except KeyboardInterrupt:
        with contextlib.suppress(subprocess.TimeoutExpired):  # in the middle of a call nobody may leave
            process.communicate(timeout=LIMIT_S)
        raise
    except subprocess.TimeoutExpired as error:
        process.kill()
        raise PerfdoctorError("the call did not end in time", do="Try again: the machine is busy.") from error
    try:
        found = json.loads(output)
    except ValueError:
        found = {"error": (errors.decode("utf-8", "replace").strip().splitlines() or ["it was ended"])[-1][:200]}
    return found if isinstance(found, dict) else {"error": "it gave no answer"}

"""How is a tool run that reads or writes a file for us? In a session of its own, which is ended as a whole.

NVIDIA's tools are scripts that start other programs: ending only the script would leave those running.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfdoctor.errors import PerfdoctorError

_SOURCE = str(Path(__file__).absolute().parents[2])
_ENTRY = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; "
    "sys.path.append({source!r}); from {module} import main; main()"
)
_OWN_ENTRY = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"


def run(
    command: Sequence[str], *, environment: Mapping[str, str], timeout_s: float, not_started: str,
    too_slow: PerfdoctorError, folder: Path | None = None, merged: bool = False,
) -> tuple[int, bytes, bytes]:  # fmt: skip
    """Run a tool without input; (exit code, output, errors). With `merged`, errors are in the output as printed.

    Raises PerfdoctorError, with `not_started` to do, where it cannot be started, and `too_slow` after `timeout_s`.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE, env=environment, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise PerfdoctorError(f"{command[0]} cannot be started: {error.strerror or error}", do=not_started) from error
    with process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except BaseException as error:  # Ctrl-C as well: no process of the tool may go on
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise too_slow from error
    return process.returncode, output, errors or b""


def asked(
    command: Sequence[str | Path], timeout_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What a short command prints without input. Raises OSError or subprocess.SubprocessError where it does not end."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout_s,
        env=environment, check=False,
    )  # fmt: skip


def environment(*names: str) -> dict[str, str]:
    """These variables of our environment, where they are set: a tool gets no others."""
    return {name: os.environ[name] for name in names if name in os.environ}


def find(name: str) -> str | None:
    """The `ncu` or `nsys` to use: the one that PERFDOCTOR_NCU or PERFDOCTOR_NSYS names, else the first on PATH."""
    return os.environ.get(f"PERFDOCTOR_{name.upper()}") or shutil.which(name)


def own_command(module: str, python: str = "") -> tuple[str, ...]:
    """The command that starts `main` of a module of this very perfdoctor, not of one on PATH.

    Others see no PYTHONPATH, and nothing is imported from the working directory. It imports from where this process
    does, and runs no `sitecustomize`. `python`: another interpreter, whose own perfdoctor is taken where it has one.
    """
    if python:
        return python, "-c", _ENTRY.format(source=_SOURCE, module=module)
    path = [_SOURCE, *(os.path.abspath(each) for each in sys.path if each)]  # noqa: PTH100 links stay as they are
    return (sys.executable, *isolated(), "-c", _OWN_ENTRY.format(path=path, module=module))


def isolated() -> tuple[str, ...]:
    """The options of a Python that is ours: it runs no code of the user at its start."""
    return ("-I", "-S", *(["-B"] if sys.dont_write_bytecode else []))

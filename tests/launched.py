"""Programs under `launch.run` and under `perfdoctor run`, in processes of their own: launch ends whatever its process
has left behind, and that must not be the tests.

A *way* is how the program runs: "plain" without us, "alone" without a tool, "group" with a stand-in tool that starts it
in its own process group, "session" with one that puts it into a session of its own (as nsys does), "nsys" with nsys.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from folders import ROOT
from real_nsys import nsys

SH = "/bin/sh"
MARK = "PERFDOCTOR_TEST_MARK"
STAND_INS = {"group": '"$@"', "session": 'setsid -w "$@"'}
STANDING_IN = ["alone", *STAND_INS]
WAYS = [*STANDING_IN, pytest.param("nsys", marks=pytest.mark.nsys)]
PROMPT_S = 15  # what should come at once; far more than it takes, far less than any grace time adds up to

_DRIVER = """
import json, os, sys
from msgspec import to_builtins
from pathlib import Path
from perfdoctor.recording.launch import program_run as launch
from perfdoctor.recording.tools import nsys
given = json.loads(sys.argv[1])
folder = Path(given["folder"])
for name, value in given["constants"].items():
    assert hasattr(launch, name)
    setattr(launch, name, value)
arguments = lambda program: [*given["tool"], *program]
if given["nsys"]:
    arguments = lambda program: nsys.command(nsys.find(), folder / "rep", program, has_gpu=False, has_range=False)
tool = launch.ProfilerCommand(arguments, folder / "tool.log") if given["tool"] or given["nsys"] else None
overdue = lambda: [int((folder / "overdue").read_text())] if (folder / "overdue").exists() else []
ended = launch.run(
    given["command"], dict(os.environ), tool=tool, time_limit_s=given["time_limit_s"],
    is_finished=(folder / "finished").exists, overdue=overdue,
)
(folder / "ended.json").write_text(json.dumps(to_builtins(ended)))
sys.exit(ended.code)
"""


def stand_in(folder: Path, script: str) -> list[str]:
    """A tool: a shell script that starts its arguments ("$@")."""
    file = folder / f"tool-{uuid.uuid4().hex[:6]}"
    file.write_text(
        f'#!/bin/sh\necho "the tool starts"\numask 077\n{script}\ncode=$?\necho "the tool ends"\nexit $code\n'
    )
    file.chmod(0o755)
    return [str(file)]


@dataclass
class Run:
    """One program started in a way. Use as a context: at its end nothing of it lives any more."""

    folder: Path
    command: Sequence[str]
    way: str = "alone"
    script: str = ""  # of the stand-in, instead of the way's own
    constants: dict[str, float] = field(default_factory=dict)
    time_limit_s: float | None = None
    environment: dict[str, str] = field(default_factory=dict)
    popen: dict[str, Any] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __enter__(self) -> Run:  # noqa: PYI034 Self is younger than our oldest Python
        self.folder.mkdir(exist_ok=True)
        words = self.words()
        known: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        known["env"] = {**os.environ, "PYTHONPATH": str(ROOT / "src"), MARK: self.mark, **self.environment}
        self.process = subprocess.Popen(words, **{**known, **self.popen})
        return self

    def words(self) -> list[str]:
        if self.way == "plain":
            return list(self.command)
        tool: list[str] = []
        if self.way == "nsys":
            self.environment = {**self.environment, "PERFDOCTOR_NSYS": nsys()}
        elif self.script or self.way in STAND_INS:
            tool = stand_in(self.folder, self.script or STAND_INS[self.way])
        known = {
            "folder": str(self.folder), "tool": tool, "nsys": self.way == "nsys", "command": list(self.command),
            "constants": self.constants, "time_limit_s": self.time_limit_s,
        }  # fmt: skip
        return [sys.executable, "-c", _DRIVER, json.dumps(known)]

    def __exit__(self, *_: object) -> None:
        for pid, _name in self.alive():
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def finish(self, given: bytes | None = None, timeout: float = 60) -> tuple[int, bytes, bytes]:
        output, errors = self.process.communicate(given, timeout=timeout)
        return shell_code(self.process.returncode), output or b"", errors or b""

    @property
    def ended(self) -> dict[str, Any]:
        return json.loads((self.folder / "ended.json").read_text())

    @property
    def notes(self) -> str:
        return "\n".join(self.ended["notes"])

    def alive(self) -> list[tuple[int, str]]:
        """(pid, command line) of every living process that has this run's mark in its environment."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                marked = entry.name.isdigit() and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0] if marked else "Z"
                if marked and state not in "ZX":
                    found.append((int(entry.name), (entry / "cmdline").read_text().replace("\0", " ")))
            except OSError:  # noqa: PERF203 it has ended meanwhile
                continue
        return found


class PerfdoctorRun(Run):
    """The same under the whole program, with the torch pass: no tool around."""

    def words(self) -> list[str]:
        return perfdoctor(self.folder, *self.command)

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "run" / "run.json").read_text("utf-8"))

    @property
    def notes(self) -> str:
        return "\n".join(note for known in self.manifest["passes"] for note in known["notes"])


def perfdoctor(folder: Path, *command: str) -> list[str]:
    # Without nsys and GPU or with: these programs are run in the one pass that puts nothing around them.
    options = ["--no-html", "--passes", "torch", "-o", str(folder / "run")]
    return [sys.executable, "-m", "perfdoctor.cli.main", "run", *options, "--", *command]


def plain(folder: Path, command: Sequence[str], given: bytes | None = None, **more: Any) -> tuple[int, bytes, bytes]:
    with Run(folder, command, "plain", **more) as run:
        return run.finish(given)


def shell_code(code: int) -> int:
    return 128 - code if code < 0 else code


def python(text: str) -> list[str]:
    return [sys.executable, "-I", "-c", text]


def wait_for(what: Callable[[], Any], seconds: float = PROMPT_S) -> Any:
    """What it returns as soon as that is true; fails after a long time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.02)
    pytest.fail(f"waited {seconds} s in vain for {what}")


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []

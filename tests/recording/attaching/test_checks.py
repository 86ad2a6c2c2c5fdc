"""Is it said why a process cannot be attached to, and what to do, before anything of it is touched?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from running import awaited, running

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.attaching import checks, image, ranks
from perfdoctor.recording.attaching.target import Target, inspect

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has /proc")


def _own() -> Target:
    """This process, as if it trained."""
    found = inspect(os.getpid())
    assert found is not None
    environment = {name: value for name, value in found.environment.items() if not name.endswith("INJECTION64_PATH")}
    return replace(found, has_torch=True, environment=environment, tracer=0, state="R")


def _what(target: Target, *places: Path) -> str:
    trouble = checks.trouble(target, places)
    return "" if trouble is None else f"{trouble.what} → {trouble.do}"


@pytest.mark.parametrize(
    ("changed", "what", "do"),
    [
        ({"is_pypy": True}, "PyPy", "CPython"),
        ({"python": None}, "no Python", "--children"),
        ({"python": (3, 7)}, "Python 3.7", "3.8 or newer"),
        ({"has_torch": False}, "has not loaded torch", "once it has begun"),
        ({"environment": {"PERFDOCTOR_AGENT": "{}"}}, "started by perfdoctor", "perfdoctor watch -- COMMAND"),
        ({"environment": {"PERFDOCTOR_AGENT": '{"watch": null}'}}, "started by perfdoctor", "perfdoctor watch --"),
        ({"environment": {"PERFDOCTOR_AGENT": "no settings"}}, "started by perfdoctor", "perfdoctor watch --"),
        ({"environment": {"PERFDOCTOR_AGENT": '{"watch": {"rows": "x"}}'}}, "started by perfdoctor", "record-now"),
        ({"environment": {"CUDA_INJECTION64_PATH": "x"}}, "another tool", "Wait"),
        ({"state": "T"}, "is stopped", "kill -CONT"),
        ({"state": "Z"}, "has ended", "one that runs"),
    ],
)
def test_each_reason_comes_with_its_remedy(changed: dict[str, object], what: str, do: str) -> None:
    said = _what(replace(_own(), **changed))
    assert what in said.partition(" → ")[0]
    assert do in said.partition(" → ")[2]


def test_a_debugger_that_is_there_already_is_named() -> None:
    assert f"({os.getppid()}) is attached" in _what(replace(_own(), tracer=os.getppid()))


@pytest.mark.parametrize("switched_off", ["environment", "command"])
def test_a_program_that_refuses_remote_code_is_left_alone(switched_off: str) -> None:
    given: dict[str, object] = {"python": (3, 14)}
    given |= (
        {"environment": {"PYTHON_DISABLE_REMOTE_DEBUG": "1"}}
        if switched_off == "environment"
        else {"command": ("python", "-X", "disable_remote_debug", "train.py")}
    )
    assert "sys.remote_exec is switched off" in _what(replace(_own(), **given))


def test_on_another_processor_nothing_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.platform, "machine", lambda: "aarch64")
    assert "x86-64 alone, and this is aarch64" in _what(replace(_own(), python=(3, 11)))


def test_a_python_without_names_of_its_functions_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "interpreter", lambda *_: [])
    assert "does not say where its functions are" in _what(replace(_own(), python=(3, 11)))


@pytest.mark.parametrize(
    ("user", "scope", "capable", "what", "do"),
    [
        (12345, 0, True, "belongs to another user", "sudo perfdoctor attach"),
        (1000, 1, True, "ptrace_scope is 1", "sysctl kernel.yama.ptrace_scope=0"),
        (1000, 3, True, "ptrace_scope is 3", "next start"),
        (1000, 0, False, "no CAP_SYS_PTRACE", "--cap-add=SYS_PTRACE"),
        (1000, 0, True, "the kernel forbids", "perfdoctor run"),
    ],
)
def test_why_the_system_forbids_it_is_said(
    monkeypatch: pytest.MonkeyPatch, user: int, scope: int, capable: bool, what: str, do: str
) -> None:
    monkeypatch.setattr(image, "may_be_changed", lambda _pid: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(checks, "ptrace_scope", lambda: scope)
    monkeypatch.setattr(checks, "_has_capability", lambda: capable)
    for target in (replace(_own(), user=user), replace(_own(), user=user, python=None, environment={})):
        said = _what(target)
        assert what in said.partition(" → ")[0]
        assert do in said.partition(" → ")[2]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start another user's processes")
def test_the_kernel_itself_says_that_another_users_process_may_not_be_changed(tmp_path: Path) -> None:
    with running(tmp_path, "import time; print('begun', flush=True); time.sleep(100)") as program:
        code = f"import os; os.setuid(65534); open('/proc/{program.pid}/mem', 'r+b')"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "PermissionError" in done.stderr
        assert image.may_be_changed(program.pid)


def test_a_container_that_does_not_see_the_agent_is_not_entered(tmp_path: Path) -> None:
    here = tmp_path / "not-there"
    assert "runs in a container" in _what(_own(), here)
    assert "runs in a container" not in _what(_own(), tmp_path)


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder that nobody else may enter, in one that all may: those of pytest may not be."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        yield Path(made)


def test_a_folder_that_another_user_cannot_enter_is_refused(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, runs = replace(_own(), user=os.geteuid() + 12345), closed / "runs"
    runs.mkdir(0o711)
    monkeypatch.setattr(checks, "_permission", lambda _: ())
    said = _what(other, runs)
    assert f"may not enter {closed} → Choose a folder that user {other.user} can reach: -o" in said
    assert "may not enter" not in _what(_own(), runs)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(runs))
    assert "TMPDIR" in _what(other, runs)


def test_a_folder_is_entered_as_its_owner_its_group_or_anybody(closed: Path) -> None:
    user, group = os.geteuid() + 12345, closed.stat().st_gid
    found = {mode: (closed.chmod(mode), checks.closed_to(user, {group}, closed))[1] for mode in (0o700, 0o701, 0o710)}
    assert found == {0o700: closed, 0o701: closed, 0o710: None}
    assert checks.closed_to(user, set(), closed) == closed
    assert checks.closed_to(os.geteuid(), set(), closed) is None
    closed.chmod(0o701)
    assert checks.closed_to(user, set(), closed / "not-there") is None


def test_a_process_that_was_stopped_is_found_so(tmp_path: Path) -> None:
    with running(tmp_path, "import time; print('begun', flush=True); time.sleep(100)") as program:
        program.process.send_signal(signal.SIGSTOP)
        assert awaited(lambda: (inspect(program.pid) or _own()).state == "T", 10)


_LAUNCHER = """
import os, subprocess, sys, time
child = "import time; print('begun', flush=True); time.sleep(100)"
ranks = [subprocess.Popen([sys.executable, "-c", child], env={**os.environ, "RANK": str(n)}) for n in range(2)]
time.sleep(100)
"""


def _as_if_it_trained(pid: int) -> Target | None:
    found = inspect(pid)
    return found and replace(found, has_torch=True)


def test_of_a_launcher_the_ranks_are_attached_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(ranks, "inspect", _as_if_it_trained)
    with running(tmp_path, _LAUNCHER, until="begun\nbegun") as program:
        with pytest.raises(PerfdoctorError, match="launches others") as error:
            ranks.chosen(program.pid, children=False)
        found = ranks.chosen(program.pid, children=True)
        one = min(each.pid for each in found)
        assert error.value.do.endswith(
            f"perfdoctor attach {program.pid} --children. One alone: perfdoctor attach {one}"
        )
    assert [each.environment["RANK"] for each in found] == ["0", "1"]


def test_a_worker_of_a_loader_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = replace(_own(), name="pt_data_worker")
    monkeypatch.setattr(ranks, "inspect", lambda _pid: worker)
    with pytest.raises(PerfdoctorError, match="no process at or below"):
        ranks.chosen(os.getpid(), children=True)


def test_there_is_no_process_of_that_number() -> None:
    with pytest.raises(PerfdoctorError, match="there is no process"):
        ranks.chosen((1 << 22) + 1, children=False)

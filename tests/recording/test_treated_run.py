"""What a trial reports of a program, by how it ended and what it left: real processes, with reports as an agent writes them."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.treated_run import TrialOrder, TrialProgram, TrialReport, run_trial

_S = 10**9


def tried(tmp_path: Path, *command: str, limit_s: float | None = None, copies_folder: bool = False) -> TrialReport:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    program = TrialProgram(command, dict(os.environ), folder, copies_folder=copies_folder)
    return run_trial(program, TrialOrder(1, limit_s=limit_s), tmp_path / "trial")


def reporting(tmp_path: Path, **facts: Any) -> str:
    """A program, as words of the shell, that leaves what an agent in it would report."""
    document = {"pass": "treated", "pid": 7, "state": "watching", "ended": True, "torch": "2.13.0", **facts}
    return f"printf %s '{json.dumps(document)}' > {tmp_path}/trial/agents/treated-7.json"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo first; echo last >&2; exit 3", "exit code 3: last"),
        ("exit 3", "exit code 3: it printed nothing"),
        ("echo x; kill -9 $$", "ended by SIGKILL: x"),
        ("echo x; kill -40 $$", "ended by signal 40: x"),
        ("echo 'E: CUDA out of memory. Tried'; echo x; exit 1", "out of memory: E: CUDA out of memory. Tried"),
        ("echo 'out of memory, and caught'; true", "no steps were timed: out of memory, and caught"),
    ],
)
def test_a_trial_that_fails_says_why(tmp_path: Path, command: str, why: str) -> None:
    found = tried(tmp_path, "sh", "-c", command)
    assert found.why == why
    assert found.lengths_ns == ()


def test_a_program_that_cannot_be_started_is_said(tmp_path: Path) -> None:
    assert "no-such-program" in tried(tmp_path, str(tmp_path / "no-such-program")).why


def test_a_program_without_steps_at_its_time_limit_hangs(tmp_path: Path) -> None:
    found = tried(tmp_path, "sleep", "60", limit_s=0.3)
    assert found.is_cut
    assert found.why.startswith("hangs, or is far slower: no step was reported within ")


@pytest.mark.parametrize(("silent_s", "why"), [(20, "hangs: no step for 20 s behind step 4"), (3, "")])
def test_a_program_at_its_time_limit_hangs_where_it_made_no_step_for_long(
    tmp_path: Path, silent_s: int, why: str
) -> None:
    timed = {"start_unix_ns": 100 * _S, "lengths_ns": [_S, _S, _S], "recorded": [0, 0]}
    done = reporting(tmp_path, steps_seen=3, timed=timed, unix_ns=(103 + silent_s) * _S, started_unix_ns=98 * _S)
    found = tried(tmp_path, "sh", "-c", f"{done}; sleep 60", limit_s=2.0)
    assert found.is_cut
    assert found.why == why
    assert found.lengths_ns == (_S, _S, _S)
    assert found.start_s == 2.0


def test_facts_of_a_report_are_those_of_the_trial_and_damaged_ones_are_none(tmp_path: Path) -> None:
    timed = {"start_unix_ns": 100 * _S, "lengths_ns": [_S], "recorded": [0, 0]}
    facts = {"touched": {"tf32": 2}, "errors": {}, "losses": [0.5, None], "threads": 4}
    found = tried(tmp_path, "sh", "-c", reporting(tmp_path, steps_seen=1, timed=timed, treated=facts))
    assert (found.why, found.touched, found.threads, found.losses[0]) == ("", {"tf32": 2}, 4, 0.5)
    assert found.losses[1] != found.losses[1]
    (tmp_path / "again").mkdir()
    damaged = {"touched": {"\udcff": "much"}}
    found = tried(
        tmp_path / "again", "sh", "-c", reporting(tmp_path / "again", steps_seen=1, timed=timed, treated=damaged)
    )
    assert (found.why, found.touched) == ("", {})
    (tmp_path / "refused").mkdir()
    refused = {**facts, "errors": {"tf32": "no GPU"}}
    found = tried(
        tmp_path / "refused", "sh", "-c", reporting(tmp_path / "refused", steps_seen=1, timed=timed, treated=refused)
    )
    assert found.why == "tf32 could not be applied: no GPU"


def test_a_trial_in_a_copy_of_the_working_folder_leaves_the_folder_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data").write_text("mine")
    found = tried(tmp_path, "sh", "-c", "cat data; echo theirs > data; exit 2", copies_folder=True)
    assert found.why == "exit code 2: mine"
    assert (tmp_path / "work" / "data").read_text() == "mine"


def test_a_copy_of_the_working_folder_lies_beside_it_and_has_no_recordings(tmp_path: Path) -> None:
    (tmp_path / "work" / "perfdoctor-runs").mkdir(parents=True)
    (tmp_path / "work" / "data").mkdir()
    (tmp_path / "labels").write_text("../ is the same")
    found = tried(tmp_path, "sh", "-c", "ls -x; cat ../labels; exit 2", copies_folder=True)
    assert found.why == "exit code 2: ../ is the same"
    assert (tmp_path / "trial" / "output.log").read_text().startswith("data\n")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["labels", "trial", "work"]


def test_where_nothing_can_be_written_beside_the_working_folder_the_copy_lies_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tempfile.mkdtemp

    def refused(prefix: str, dir: Path | None = None) -> str:  # noqa: A002 as tempfile has it
        if dir == tmp_path:
            raise PermissionError("read-only")
        return made(prefix=prefix, dir=dir)

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data").write_text("mine")
    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    assert tried(tmp_path, "sh", "-c", "cat data; exit 2", copies_folder=True).why == "exit code 2: mine"


def test_a_working_folder_that_cannot_be_copied_is_said(tmp_path: Path) -> None:
    program = TrialProgram(("true",), dict(os.environ), tmp_path / "gone", copies_folder=True)
    with pytest.raises(PerfdoctorError, match=r"the working folder cannot be copied: .*No such file") as caught:
        run_trial(program, TrialOrder(1), tmp_path / "trial")
    assert "--cwd-copy" in caught.value.do

"""What `perfdoctor run` says of a program, by the reports of its processes and by how it ended."""

from __future__ import annotations

import re
from typing import Any

import pytest
from folders import ROOT

from perfdoctor.recording.launch.program_run import Ended
from perfdoctor.recording.outcome import TRIED, outcome
from perfdoctor.recording.tools.torch_profiler import StepWindow
from perfdoctor.system.run_folder import ProcessReport, _process_report

NOT_STARTED = "perfdoctor's agent did not start: KeyError: 'torch.optim.optimizer'"
FAILED = "perfdoctor's agent failed: RuntimeError: no"


def report(pid: int = 1, **facts: Any) -> ProcessReport:
    return _process_report({"pass": "torch", "pid": pid, "state": "written", "torch": "2.13.0", "ended": True, **facts})


@pytest.mark.parametrize("ended", [Ended(), Ended(code=1), Ended(code=137, signal=9), Ended(timed_out=True)])
@pytest.mark.parametrize(
    "facts",
    [
        {"state": "failed", "notes": [NOT_STARTED]},
        {"state": "failed", "notes": [NOT_STARTED], "torch": ""},
        {"state": "failed", "notes": ["torch 2.13.0 has no x: y", FAILED], "steps_seen": 0},
    ],
)
def test_where_the_agent_failed_its_reason_is_said_and_nothing_about_torch_or_steps(facts: dict, ended: Ended) -> None:
    found = outcome([report(**facts)], StepWindow(), "torch", ended)
    assert found.notes == (facts["notes"][-1],)
    assert TRIED in found.do


def test_an_agent_that_failed_among_the_steps_is_no_reason_to_record_fewer() -> None:
    found = outcome([report(state="failed", steps_seen=3, notes=[FAILED])], StepWindow(), "torch", Ended())
    assert FAILED in found.notes
    assert TRIED in found.do


def test_beside_a_training_only_processes_with_torch_are_missed() -> None:
    training = report(steps_seen=15, steps_recorded=10, trace="rank0.pt.trace.json")
    helper = report(2, state="failed", notes=[NOT_STARTED], torch="")
    assert outcome([training, helper], StepWindow(), "torch", Ended()).notes == ()
    other = report(3, state="failed", notes=[NOT_STARTED])
    assert outcome([training, other], StepWindow(), "torch", Ended()).notes == (NOT_STARTED,)


def test_a_part_that_was_lost_is_said_and_is_no_profiler_of_the_programs_own() -> None:
    lost = "torch 2.13.0 has no profiler.profiler._KinetoProfile: a trace may not be noticed"
    found = outcome([report(state="watching", steps_seen=2, notes=[lost])], StepWindow(), "torch", Ended())
    assert found.notes == (lost, "ended after 2 steps, of which the first 5 are skipped")
    assert "Only one profiler" not in found.do


def test_the_versions_that_are_tried_are_stated_and_tried_each_night() -> None:
    torch, python = re.findall(r"([\d.]+) to ([\d.]+)", TRIED)
    assert (
        f"PyTorch {torch[0]} to {torch[1]}, on Python {python[0]} to {python[1]}"
        in (ROOT / "docs/recording.md").read_text()
    )
    assert f'torch = ["torch>={torch[0]}"]' in (ROOT / "pyproject.toml").read_text()
    tried = (ROOT / "scripts/try-torch-versions").read_text()
    assert f"oldest={torch[0]}." in tried
    assert all(f"3.{minor}" in tried for minor in range(int(python[0][2:]), int(python[1][2:]) + 1))


@pytest.mark.parametrize(
    ("reports", "ended", "note", "do"),
    [
        ([], Ended(timed_out=True), "no step was seen until then", "--timeout"),
        ([], Ended(interrupted_by=2), "SIGINT came before it imported torch", "Let it run"),
        ([report()], Ended(code=137, signal=9), "the program was ended by SIGKILL before its first step", "dmesg"),
        ([], Ended(code=143, signal=15), "the program was ended by SIGTERM before it imported torch", "Let it run"),
        ([], Ended(code=139, signal=11), "the program was ended by SIGSEGV before it imported torch", "own last lines"),
        ([], Ended(code=168, signal=40), "the program was ended by signal 40 before it imported torch", "own last lines"),
        ([report()], Ended(code=3), "the program ended with code 3 before its first step", "own last lines"),
        ([], Ended(), "no Python that perfdoctor's agent could enter imported torch: no steps", "docker, ssh, sbatch"),
        ([report()], Ended(), "no optimizer made an update, and no module ran forward", "trains or runs a model"),
        ([report(ended=False)], Ended(), "ran forward before the program was killed", "trains or runs a model"),
    ],
)  # fmt: skip
def test_where_nothing_trained_it_is_said_how_far_the_program_came(
    reports: list[ProcessReport], ended: Ended, note: str, do: str
) -> None:
    found = outcome(reports, StepWindow(), "torch", ended)
    assert len(found.notes) == 1
    assert note in found.notes[0]
    assert do in found.do


def test_a_program_that_did_not_start_says_nothing_of_steps() -> None:
    found = outcome([], StepWindow(), "torch", Ended(was_started=False))
    assert found.notes == ()
    assert "Check the command" in found.do


@pytest.mark.parametrize(
    ("facts", "ended", "note", "do"),
    [
        ({"state": "recording", "steps_seen": 9}, Ended(signal=9, code=137), "what torch.profiler held is lost", "SIGTERM"),
        ({"state": "watching", "steps_seen": 9, "ended": False}, Ended(), "before the recorded steps began", "Record the few"),
        ({"state": "watching", "steps_seen": 1}, Ended(), "ended after 1 step, of which", "more steps: the first one is"),
        ({"state": "watching", "steps_seen": 3}, Ended(code=4), "ended with code 4 after 3 steps", "own last lines"),
        ({"steps_seen": 9, "steps_recorded": 2, "trace": "a"}, Ended(), "after 2 of 10 recorded steps: too few", ""),
        ({"steps_seen": 12, "steps_recorded": 7, "trace": "a"}, Ended(), "after 7 of 10 recorded steps", ""),
        ({"steps_seen": 9, "notes": ["its own torch.profiler ran"]}, Ended(), "own torch.profiler ran", "Only one profiler"),
        ({"steps_seen": 9, "trace": "own-1", "own_traces": ["/a/x.json", "/a/y.json"]}, Ended(),
         "its own trace (y.json, the last of 2) is diagnosed", ""),
    ],
)  # fmt: skip
def test_of_a_training_it_is_said_what_is_missing_and_what_to_do(
    facts: dict[str, Any], ended: Ended, note: str, do: str
) -> None:
    found = outcome([report(**facts)], StepWindow(), "torch", ended)
    assert any(note in each for each in found.notes), found.notes
    assert do in found.do
    assert bool(do) == bool(found.do)


def test_what_nsys_lost_are_the_ops_alone() -> None:
    found = outcome([report(state="recording", steps_seen=9)], StepWindow(), "nsys", Ended(signal=9, code=137))
    assert found.notes == ("killed while it was recorded: its ops are lost",)

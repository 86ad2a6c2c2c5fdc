"""Trials that are at work at once take turns of whole steps, and never work beside each other."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from pathlib import Path

import msgspec
import pytest
from torch_python import torch_python

from perfdoctor.recording.launch import processes
from perfdoctor.recording.race import Entry, _Racer, run_race
from perfdoctor.recording.treated_run import TrialOrder, TrialProgram

pytestmark = pytest.mark.torch

PROGRAM = """
import os, sys, time
import torch

parent = os.getpid()
if not os.fork():  # a loader's worker
    with open("work-" + os.environ["NAME"], "w") as work:
        while os.getppid() == parent:
            print(time.monotonic_ns(), file=work, flush=True)
            time.sleep(0.001)
    os._exit(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with open("steps-" + os.environ["NAME"], "w") as steps:
    for step in range(200):
        begun = time.monotonic_ns()
        model(torch.randn(4, 8)).sum().backward()
        time.sleep(0.1 if os.environ["NAME"] == "slow" else 0.005)
        print(begun, time.monotonic_ns(), file=steps, flush=True)
        if step == 30 and os.environ["NAME"] == "crashes":
            sys.exit("no data")
        if step == 30 and os.environ["NAME"] == "hangs":
            time.sleep(600)
        optimizer.step()
"""


def order(name: str, number: int, limit_s: float = 60.0) -> TrialOrder:
    return TrialOrder(number, environment={"NAME": name}, end_after=150, limit_s=limit_s)


def _is_of(pid: int, folder: Path) -> bool:
    """Daemons that other tests have left come to us when their parents end."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(folder)
    except OSError:  # it ends
        return False


def test_turns_are_whole_steps_of_one_program_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    program = TrialProgram((torch_python(), "program.py"), dict(os.environ), tmp_path)
    names = ["one", "other", "crashes", "hangs", "slow"]
    orders = [order(name, n, 30.0 if name == "hangs" else 60.0) for n, name in enumerate(names)]
    entries = [Entry(program, each, tmp_path / name) for name, each in zip(names, orders, strict=True)]
    made = dict(zip(names, run_race(entries, steps=10, seed=1), strict=True))
    assert not [pid for pid in processes.descendants(os.getpid()) if _is_of(pid, tmp_path)]

    assert not list(tmp_path.rglob("turns"))

    assert made["crashes"].why == "exit code 1: no data"
    assert made["hangs"].is_cut
    assert made["hangs"].why.startswith("hangs: no step for")
    assert made["slow"].why == ""
    assert 8 <= len(made["slow"].turns) < 14
    for name in ("one", "other"):
        assert made[name].why == ""
        assert sorted(made[name].turns) == list(range(10, 150, 10))
        assert len(made[name].lengths_ns) == 149
        assert max(made[name].lengths_ns) < 1e9  # no step holds the turns of the others

    steps = []
    for name in ("one", "other"):
        lines = (tmp_path / f"steps-{name}").read_text().split("\n")[:-1]
        steps += [(*map(int, line.split()), name) for line in lines]
    steps.sort()
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(steps))
    for name, other in (("one", "other"), ("other", "one")):
        worked = [int(line) for line in (tmp_path / f"work-{name}").read_text().split("\n")[:-1]]
        theirs = [step for step in steps if step[2] == other]
        assert len(worked) > 100
        assert not any(begin < each < end for each in worked for begin, end, _ in theirs)
    lengths = [len(list(turn)) for _, turn in itertools.groupby(steps, key=lambda step: step[2])]
    assert {length % 10 for length in lengths} == {0}
    assert len(lengths) > 4


@pytest.mark.parametrize(
    ("turns_s", "is_slower"),
    [([0.04] * 5 + [6.0] + [0.04] * 4, False), ([0.3] * 10, True), ([0.3] * 7, False), ([0.04] * 8 + [0.3] * 2, False)],
)
def test_one_long_turn_does_not_make_a_trial_far_slower(turns_s: list[float], is_slower: bool) -> None:
    one, other = (object.__new__(_Racer) for _ in range(2))
    one.turns_s, other.turns_s, one.report = [9.0, *turns_s], [3.0, *[0.06] * 20], None
    assert one.is_slower_than(other) is is_slower


def test_after_ctrl_c_nothing_is_left_running_or_stopped(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.replace("range(200)", "range(10**6)"))
    program = TrialProgram((torch_python(), "program.py"), dict(os.environ), tmp_path)
    entries = [
        Entry(program, msgspec.structs.replace(order(name, n), end_after=0), tmp_path / name)
        for n, name in enumerate(("one", "other"))
    ]

    def interrupt_in_turns() -> None:
        while not all((tmp_path / f"steps-{entry.into.name}").exists() for entry in entries):
            time.sleep(0.05)
        time.sleep(0.5)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt_in_turns, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_race(entries, steps=10, seed=1)
    assert not [pid for pid in processes.descendants(os.getpid()) if _is_of(pid, tmp_path)]


def test_after_ctrl_c_no_copy_of_the_working_folder_is_left(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    stubborn = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    (work / "program.py").write_text(stubborn + PROGRAM.replace("range(200)", "range(10**6)"))
    program = TrialProgram((torch_python(), "program.py"), dict(os.environ), work, copies_folder=True)
    given = msgspec.structs.replace(order("one", 0), end_after=0)

    def interrupt() -> None:
        while not list(tmp_path.glob(".perfdoctor-treat-*/steps-one")):
            time.sleep(0.05)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_race([Entry(program, given, tmp_path / "one")], steps=10, seed=1)
    assert not list(tmp_path.glob(".perfdoctor-treat-*"))
    assert not [pid for pid in processes.descendants(os.getpid()) if _is_of(pid, tmp_path)]

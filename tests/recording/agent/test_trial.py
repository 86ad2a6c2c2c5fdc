"""Workers tried in a copy of real trainings: what is measured, and that nothing of the program is changed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from warm_torch import ALL_AT_ONE, Program

from perfdoctor.recording.agent.perfdoctor_agent import apart
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow

pytestmark = [
    pytest.mark.torch,
    ALL_AT_ONE,
    pytest.mark.skipif(apart.landlock_version() < 1, reason="this kernel has no Landlock: nothing is tried"),
]

TRAINING = """
import os, random, sys, time, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
torch.manual_seed(0)
torch.set_num_threads(1)

class Items(Dataset):
    made = 0
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        self.made += 1
        self.make(index)
        return torch.full((8,), float(index)), index % 2
    def make(self, index):
        {make}

class Stream(IterableDataset):
    def __init__(self, items):
        self.items, self.made = items, 0
    def __iter__(self):
        return map(self.items.__getitem__, range(1000))

def main():
    dataset, rest = Items(), 0
    {prepare}
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, (inputs, labels) in enumerate(DataLoader(dataset, batch_size=4, shuffle=isinstance(dataset, Items))):
        if number == 12:
            break
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        time.sleep(rest)
        optimizer.step()
    print(round(loss.item(), 6), torch.rand(1).item(), random.random(), dataset.made)
random.seed(0)
main()
{end}
"""
SLEEP = "time.sleep(0.002)"


def trained(
    folder: Path, make: str = SLEEP, prepare: str = "pass", end: str = "", *, trial_s: float = 20.0
) -> tuple[int, str, str, dict[str, Any]]:
    """Exit code, output, errors and the trial's facts."""
    for name in ("agents", "torch", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    for old in (folder / "agents").iterdir():
        old.unlink()
    program = folder / "program.py"
    program.write_text(TRAINING.format(make=make, prepare=prepare, end=end), "utf-8")
    window = StepWindow(steps=4, skip=3, trial_s=trial_s)
    environment = torch_profiler.environment(
        {**os.environ, "TMPDIR": str(folder / "tmp")}, PassSettings("torch", folder / "torch", "cpu"), window,
        reports=folder / "agents", nccl=None,
    )  # fmt: skip
    code, output, errors = Program([program], folder, environment).finish()
    (report,) = [json.loads(file.read_text()) for file in (folder / "agents").glob("*.json")]
    assert list((folder / "tmp").iterdir()) == []
    assert report["state"] == "written"
    assert report["held_ns"] > report["loader_trial"].get("wall_ns", 0)
    return code, output, errors, report["loader_trial"]


def test_it_measures_what_a_batch_costs_alone_and_from_workers(tmp_path: Path) -> None:
    *_, facts = trained(tmp_path)
    assert facts["left_out"] == "", facts
    assert facts["make_ns"] > 8e6  # four items
    assert facts["make_cpu_ns"] < facts["make_ns"] / 2
    assert 0 <= facts["make_delay_ns"] < facts["make_ns"]
    assert 0 < facts["receive_ns"] < facts["make_ns"]
    assert [each["workers"] for each in facts["taken"]] == [1, 2, 4]
    assert all(each["batch_ns"] > 0 for each in facts["taken"])


def test_output_exit_code_random_state_and_the_dataset_stay_as_they_are(tmp_path: Path) -> None:
    end = "sys.exit(3)"
    without, with_it = (trained(tmp_path, end=end, trial_s=limit_s) for limit_s in (0, 20))
    assert (with_it[:3], with_it[0]) == (without[:3], 3)
    assert (bool(without[3]), bool(with_it[3]["taken"])) == (False, True)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (SLEEP + "; open(f'cache-{index}', 'w').close()", "it does more than read: open"),
        (SLEEP + "; os.path.exists('seen') or os.mkdir('seen')", ""),
        (SLEEP + "; 1 / (os.getpid() == OWN)", "ZeroDivisionError"),
        (SLEEP + "; os.getpid() == OWN or os.kill(os.getpid(), 9)", "it does more than read: os.kill"),
        (SLEEP + "; os.getpid() == OWN or print('copy', flush=True)", ""),
    ],
)
def test_a_dataset_that_does_more_than_read_or_fails_costs_the_trial_alone(tmp_path: Path, make: str, why: str) -> None:
    code, output, errors, facts = trained(tmp_path, make, "global OWN; OWN = os.getpid()")
    assert (code, errors, len(output.split())) == (0, "", 4)
    assert facts["left_out"] == why
    assert len(list(tmp_path.glob("cache-*"))) in (0, int(output.split()[-1]))  # one for each item of the program's own


def test_a_dataset_that_keeps_what_it_made_by_code_in_c_finds_its_files_as_they_were(tmp_path: Path) -> None:
    """`torch.save` opens files where Python hears nothing of it."""
    keeps = "; name = f'item-{index}.pt'; os.path.exists(name) and torch.load(name); torch.save(index, name)"
    code, output, errors, facts = trained(tmp_path, SLEEP + keeps)
    assert (code, errors) == (0, "")
    assert facts["left_out"]
    assert not facts["taken"]
    assert len(list(tmp_path.glob("item-*.pt"))) == int(output.split()[-1])  # one for each item of the program's own
    assert all(file.stat().st_size for file in tmp_path.glob("item-*.pt"))


@pytest.mark.parametrize(
    ("make", "prepare", "why"),
    [
        ("pass", "rest = 0.1", "the loader was hardly waited for"),
        (
            SLEEP,
            "import signal; signal.signal(signal.SIGCHLD, lambda *_: print('a child'))",
            "the program handles the end",
        ),
        (SLEEP, "sys.modules['jax'] = sys", "a library of the program minds forks"),
        (SLEEP, "dataset = Stream(dataset)", "no loader of torch's with a dataset of items"),
    ],
)
def test_it_is_left_out_where_it_could_disturb_the_program_or_tell_nothing(
    tmp_path: Path, make: str, prepare: str, why: str
) -> None:
    code, output, _, facts = trained(tmp_path, make, prepare)
    assert (code, len(output.split())) == (0, 4)
    assert facts["left_out"].startswith(why)


def test_a_dataset_that_hangs_is_ended_in_time(tmp_path: Path) -> None:
    hangs = SLEEP + "; os.getpid() == OWN or time.sleep(99)"
    code, output, errors, facts = trained(tmp_path, hangs, "global OWN; OWN = os.getpid()", trial_s=0.5)
    assert (code, errors, len(output.split())) == (0, "", 4)
    assert facts["left_out"] == "it took too long, or ended by itself"
    assert 0.5e9 <= facts["wall_ns"] < 1.5e9


def test_no_process_of_it_is_left(tmp_path: Path) -> None:
    end = """
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("none")
"""
    code, output, _, facts = trained(tmp_path, end=end)
    assert (code, output.split()[-1]) == (0, "none")
    assert facts["taken"]

"""May the sampler read the training and its loader's workers while steps are recorded, and at no other time?"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from warm_torch import ALL_AT_ONE, Program

from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow

SAMPLER = 4_000_000  # no process: the kernel is not asked in this test
PROGRAM = """
import os, sys, time
{early}
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        time.sleep(0.002)
        return index

def log(word):
    with open("log", "a") as file:
        print(os.getpid(), word, file=file)

def watch():
    import perfdoctor_agent.sampling
    perfdoctor_agent.sampling.permit = log

def main():
    import torch
    watch()
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for epoch in range(2):
        for batch in DataLoader(Data(), batch_size=1, num_workers=2, multiprocessing_context=sys.argv[1]):
            (parameter * 2).sum().backward()
            optimizer.step()
        log("epoch")

if __name__ == "__main__":
    main()
elif {watches_at_import}:
    watch()
"""


@pytest.mark.torch
@ALL_AT_ONE
@pytest.mark.parametrize(
    ("start", "early"),
    [("fork", ""), ("spawn", "import torch"), pytest.param("forkserver", "import torch", marks=pytest.mark.thorough)],
)
def test_training_and_workers_permit_it_from_the_first_recorded_step_to_the_last(
    tmp_path: Path, start: str, early: str
) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.format(early=early, watches_at_import=bool(early)), "utf-8")
    requests = tmp_path / "requests"
    os.mkfifo(requests)
    listening = os.open(requests, os.O_RDONLY | os.O_NONBLOCK)
    settings = {"sampler": SAMPLER, "requests": str(requests), "ready": str(tmp_path), "source": True}
    for name in ("agents", "torch"):
        (tmp_path / name).mkdir()
    environment = torch_profiler.environment(
        os.environ, PassSettings("torch", tmp_path / "torch", "cpu"), StepWindow(steps=10, skip=5),
        reports=tmp_path / "agents", nccl=None, sampling=settings,
    )  # fmt: skip
    # A DataLoader with spawned workers leaves one now and then on a busy machine (3 of 50), with nobody watching.
    environment |= {"PYTHONWARNINGS": "ignore:resource_tracker:UserWarning"}
    assert Program([program, start], tmp_path, environment).finish() == (0, "", "")
    words = os.read(listening, 1 << 16).decode().split()
    os.close(listening)
    _, training, _, *workers = words[: words.index("end")]
    assert len(workers) == 2
    log = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert log[-1] == [training, "epoch"]
    assert log[0] == [training, str(SAMPLER)]  # nobody permits it before
    for pid in (training, *workers):
        assert [word for each, word in log if each == pid and word != "epoch"] == [str(SAMPLER), "0"]
    # Of the second epoch no process permits it; workers of the first one end at its end.
    assert {pid for pid, _ in log} == {training, *workers}
    (report,) = (
        json.loads(file.read_text()) for file in (tmp_path / "agents").glob("*.json") if file.stem.endswith(training)
    )
    assert report["steps_recorded"] == 10
    assert not list(tmp_path.glob(f"window-{training}"))

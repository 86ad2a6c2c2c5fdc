"""`perfdoctor.watch` in real programs: what it finds, and that it leaves them as they are."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import msgspec
import pytest
from folders import ROOT
from recording.inside.test_recording import MODEL, begun
from warm_torch import ALL_AT_ONE

from perfdoctor.cli.watch_process import Orders
from perfdoctor.recording.inside.watch import watch
from perfdoctor.recording.launch import processes

pytestmark = [pytest.mark.torch, ALL_AT_ONE]

#: Each batch is made in the training process, and takes half of a step.
TRAINING = """
class Batches(torch.utils.data.Dataset):
    def __len__(self): return 1_000_000
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.ones(8, 32)
import os
for batch in torch.utils.data.DataLoader(Batches(), batch_size=None):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
    if os.path.exists("enough"): break
"""


def until(condition: object, limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def commanded(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "perfdoctor", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_program_that_lets_itself_be_watched_is_as_under_the_command(tmp_path: Path) -> None:
    port = free_port()
    script = f"""
watch = perfdoctor.watch(output="run", windows=1, first_window_s=0, steps=20, metrics_port={port})
{TRAINING}
watch.finish()
left = [each for each in torch.optim.SGD.__mro__[1].__dict__.values() if "perfdoctor" in str(each)]
print(left, "perfdoctor" in str(torch.utils.data.dataloader._BaseDataLoaderIter.__next__), watch.folder)
sys.exit(7)
"""
    program = begun(tmp_path, MODEL + script)
    run = tmp_path / "run"
    until((run / "windows" / "1" / "diagnosis.json").exists)
    (rows,) = (run / "steps").glob("rank0-*.jsonl")
    pid = rows.stem.partition("-")[2]
    now = commanded(tmp_path, "record-now", pid, "--steps", "5")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        scraped = answer.read().decode()
    (tmp_path / "enough").touch()
    code, output, errors = program.finish()
    assert (code, output) == (7, f"[] False {run}\n"), errors
    assert "input cannot keep up" in errors
    assert "Training waits for data" in errors
    assert now.returncode == 0, now.stderr
    assert 'perfdoctor_watched_anomalies{kind="input",run="run"} 1.0' in scraped
    known = json.loads((run / "watch.json").read_text())
    assert (known["state"], [each["rule"] for each in known["windows"]]) == ("ended", ["input-wait", "input-wait"])
    assert json.loads((run / "run.json").read_text())["passes"][0]["state"] == "done"


def test_two_ranks_are_watched_together_and_record_the_same_window(tmp_path: Path) -> None:
    script = """
import torch.distributed as dist
dist.init_process_group("gloo")
perfdoctor.watch(windows=0, first_window_s=0)
model = torch.nn.parallel.DistributedDataParallel(model)
enough = torch.zeros(1)
while not enough.item():  # both leave behind the same step
    train(5)
    time.sleep(0.01)
    enough[0] = os.path.exists("enough")
    dist.all_reduce(enough)
dist.destroy_process_group()
"""
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        begun(tmp_path, f"import os\n{MODEL}{script}", RANK=str(rank), LOCAL_RANK=str(rank), **shared)
        for rank in (0, 1)
    ]
    runs = tmp_path / "perfdoctor-runs"
    until(lambda: len([*runs.glob("*/steps/*.jsonl")]) == 2)
    time.sleep(2)
    (run,) = runs.iterdir()
    now = commanded(tmp_path, "record-now", str(run), "--steps", "10")
    (tmp_path / "enough").touch()
    ended = [rank.finish() for rank in ranks]
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert now.returncode == 0, now.stdout + now.stderr
    known = json.loads((run / "watch.json").read_text())
    assert (known["state"], [each["rank"] for each in known["ranks"]]) == ("ended", [0, 1])
    window = json.loads((run / "windows" / "1" / "diagnosis.json").read_text())
    assert [each["rank"] for each in window["time"]] == [0, 1]
    firsts = [json.loads(file.read_text())["steps_seen"] for file in (run / "windows" / "1" / "agents").glob("*.json")]
    assert len(firsts) == 2


def test_a_program_that_is_killed_leaves_nobody_that_watches(tmp_path: Path) -> None:
    """Nor do processes that it forked, which hold what it had open."""
    forks = """
if os.fork() == 0:
    time.sleep(20)
    os._exit(0)
"""
    training = TRAINING.replace("import os\n", "import os\n" + forks)
    program = begun(tmp_path, f"{MODEL}\nperfdoctor.watch(output='run', first_window_s=0)\n{training}")
    run = tmp_path / "run"
    until((run / "watch.json").exists)
    until(lambda: json.loads((run / "watch.json").read_text())["ranks"])
    (rows,) = (run / "steps").glob("rank0-*.jsonl")
    pid = int(rows.stem.partition("-")[2])
    watchers = [
        int(each.parent.name) for each in Path("/proc").glob("[0-9]*/cmdline") if str(run).encode() in _text(each)
    ]
    assert watchers
    os.kill(pid, 9)
    program.finish()
    until(lambda: not any(processes.is_alive(each) for each in watchers), 15)
    assert json.loads((run / "watch.json").read_text())["state"] == "ended"


def _text(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("perfdoctor.watch(output='train.py')", "this run is not watched"),
        (
            "perfdoctor.watch(output='run', first_window_s=0, quiet=True); perfdoctor.watch()",
            "another recording is running",
        ),
        ("perfdoctor.watch(output='run', metrics_port=1, first_window_s=0)", ""),
    ],
)
def test_what_goes_wrong_is_a_line_and_the_program_goes_on(tmp_path: Path, call: str, said: str) -> None:
    code, output, errors = begun(tmp_path, f"{MODEL}\n{call}\ntrain(300)\nprint('trained')").finish()
    assert (code, output) == (0, "trained\n"), errors
    assert said in errors
    assert "Traceback" not in errors


def test_below_perfdoctor_run_it_does_nothing(tmp_path: Path) -> None:
    code, _, errors = begun(
        tmp_path, f"{MODEL}\nwatch = perfdoctor.watch()\nassert watch.folder is None", PERFDOCTOR_AGENT="{}"
    ).finish()
    assert (code, errors) == (0, "")


def test_its_orders_are_those_of_the_process_that_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfdoctor.recording.inside.watch.Watch._start", lambda _: None)
    made = watch(windows=2, apart_minutes=1, metrics="m.prom", metrics_port=9, summaries="s", log="mlflow", quiet=True)
    orders = msgspec.convert({**made._orders, "folder": str(tmp_path)}, Orders)
    assert (orders.policy.windows, orders.policy.apart_s, orders.policy.log) == (2, 60.0, ("mlflow",))
    assert (orders.port, orders.summaries, orders.quiet) == (9, "s", True)
    assert made._orders.keys() | {"folder"} == {field.name for field in msgspec.structs.fields(Orders)}
    assert made._orders["policy"].keys() | {"steps"} == {
        field.name for field in msgspec.structs.fields(type(orders.policy))
    }

"""`perfdoctor watch`, `status` and `record-now` on real programs, which run as they would without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from folders import ROOT
from typer.testing import CliRunner
from warm_torch import ALL_AT_ONE, warm_python

from perfdoctor.cli import outside_options
from perfdoctor.cli.main import app
from perfdoctor.errors import PerfdoctorError
from perfdoctor.system import remote
from perfdoctor.watching import document

#: Its loader makes each batch in the training process, and sleeps for half of a step.
TRAINING = """
import os, sys, time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
class Batches(torch.utils.data.Dataset):
    def __len__(self): return 1_000_000
    def __getitem__(self, index):
        time.sleep(0.005)  # the line
        return torch.ones(8, 32)
for batch in torch.utils.data.DataLoader(Batches(), batch_size=None):
    loss = model(batch).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if os.path.exists("enough"): break
print("loss", float(loss.detach()))
sys.exit(7)
"""
LOADER = ("--first-window", "0", "--windows", "1", "--steps", "20")


@contextmanager
def watching(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "train.py").write_text(TRAINING, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PERFDOCTOR_HISTORY": str(folder / "history.db")}
    with subprocess.Popen(
        [sys.executable, "-m", "perfdoctor", "watch", *words], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def asked(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "perfdoctor", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def until(condition: object, limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.1)


@ALL_AT_ONE
@pytest.mark.torch
def test_trouble_is_said_recorded_and_diagnosed_while_the_training_runs(tmp_path: Path) -> None:
    hook = 'echo "$PERFDOCTOR_KIND" >> hook.txt'
    words = [*LOADER, "-o", "run", "--on-anomaly", hook, "--metrics", "run.prom", "--summaries", "left"]
    with watching(tmp_path, *words, "--", warm_python(tmp_path), "train.py") as process:
        run = tmp_path / "run"
        until((run / "windows" / "1" / "diagnosis.json").exists)
        known = asked(tmp_path, "status", "run")
        now = asked(tmp_path, "record-now", "run", "--steps", "5")
        (tmp_path / "enough").touch()
        output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (7, "loss " + output.partition(" ")[2])
    assert "input cannot keep up" in errors
    assert "window 1 (input cannot keep up)" in errors
    assert now.returncode == 0, now.stderr
    assert "window 2 (as asked for): Training waits for data" in now.stdout
    assert "running, step" in known.stdout
    assert "waiting for batches" in known.stdout
    assert (tmp_path / "hook.txt").read_text().split()[0] == "input"
    assert 'perfdoctor_watched_anomalies{kind="input",run="run"} 1.0' in (tmp_path / "run.prom").read_text()
    document = json.loads((run / "watch.json").read_text())
    assert (document["state"], document["exit_code"]) == ("ended", 7)
    assert [each["rule"] for each in document["windows"]] == ["input-wait", "input-wait"]
    for window in ("1", "2"):
        first = json.loads((run / "windows" / window / "diagnosis.json").read_text())["findings"][0]
        assert first["rule"] == "input-wait"
    assert (run / "report.html").is_file()
    until(lambda: list((tmp_path / "left" / "window-1-rank0").glob("rank0-*")))  # a process of its own makes it
    assert "ended, step" in asked(tmp_path, "status", "left").stdout


@ALL_AT_ONE
@pytest.mark.torch
def test_a_watcher_that_is_killed_changes_nothing_in_the_program(tmp_path: Path) -> None:
    with watching(tmp_path, *LOADER, "-o", "run", "--", warm_python(tmp_path), "train.py") as process:
        steps = tmp_path / "run" / "steps"
        until(lambda: [*steps.glob("*.jsonl")])
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (watcher,) = [pid for pid in children if b"watch_process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(int(watcher), signal.SIGKILL)
        (tmp_path / "enough").touch()
        output, _ = process.communicate(timeout=60)
    assert (process.returncode, output[:5]) == (7, "loss ")
    assert json.loads(next(steps.glob("*.jsonl")).read_text().splitlines()[-1])["why"] == ""


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("kill -TERM $$", -15), ("echo out; echo err >&2", 0)])
def test_exit_codes_signals_and_output_are_the_programs(tmp_path: Path, command: str, code: int) -> None:
    with watching(tmp_path, "-q", "-o", "run", "--", "sh", "-c", command) as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode == code
    if not code:
        assert (output, errors) == ("out\n", "err\n")


ALONE = """\
import os, torch
os.environ.update(RANK='1', WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT='9')
torch.distributed.init_process_group('gloo')
"""


@ALL_AT_ONE
@pytest.mark.torch
def test_ranks_that_wait_at_the_start_are_named(tmp_path: Path) -> None:
    with watching(tmp_path, "-o", "run", "--hang-after", "1", "--", warm_python(tmp_path), "wait.py") as process:
        (tmp_path / "wait.py").write_text(ALONE, "utf-8")
        known = tmp_path / "run" / "watch.json"
        until(lambda: known.exists() and json.loads(known.read_text())["hang"])
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert "no step yet, " in errors
    assert "rank 0 waits in init_process_group, in wait.py:3 in <module>" in errors


def test_where_no_folder_can_be_made_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with watching(tmp_path, "-o", "taken", "--", "sh", "-c", "echo ran; exit 4") as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (4, "ran\n")
    assert "this run is not watched" in errors


def test_a_run_without_steps_says_so(tmp_path: Path) -> None:
    with watching(tmp_path, "-o", "run", "--", "sh", "-c", "exit 0") as process:
        _, errors = process.communicate(timeout=60)
    assert "no step was seen" in errors
    assert asked(tmp_path, "status", "run").stdout.startswith("ended; as of")


@pytest.mark.parametrize(
    "words", [("status", "."), ("status", ""), ("status", "none"), ("record-now", "."), ("record-now", "1")]
)
def test_what_is_not_watched_is_an_error_of_two_lines(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = asked(tmp_path, *words)
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 2, done.stderr


def node(first: int, wait_share: float) -> bytes:
    now = time.time_ns()
    ranks = tuple(
        document.RankNow(rank, 100 + rank, 500, 50_000_000, wait_share, 0.3, 1 << 30, 1 << 30, now, ended=False)
        for rank in range(first, first + 2)
    )
    return document.encoded(document.WatchDocument(1, "running", now, now, step_ns=50_000_000, ranks=ranks))


@pytest.mark.parametrize("place", ["memory://bucket/job-17", "file://"])
def test_what_all_nodes_have_left_in_one_place_names_the_rank_that_keeps_them_waiting(
    tmp_path: Path, place: str
) -> None:
    pytest.importorskip("fsspec")
    where = place if place != "file://" else (tmp_path / "job-17").as_uri()
    for first, share in ((0, 0.02), (2, 0.4), (4, 0.02)):
        remote.write(where, f"watch-rank{first}.json", node(first, share))
    done = CliRunner().invoke(app, ["status", where])
    assert done.exit_code == 0, done.output
    remote.write(where, "watch-rank6.json", b'{"format')
    with_damaged = CliRunner().invoke(app, ["status", where])
    assert with_damaged.stdout.count("node of rank") == 3
    assert "watch-rank6.json is damaged" in with_damaged.stderr
    first, *others = done.stdout.splitlines()
    assert "rank 2" in first
    assert "input" in first or "batch" in first
    assert sum(line.startswith("node of rank") for line in others) == 3


def test_a_place_elsewhere_that_nobody_has_written_to_is_an_error_of_two_lines() -> None:
    pytest.importorskip("fsspec")
    done = CliRunner().invoke(app, ["status", "memory://bucket/nothing"])
    assert done.exit_code == 1
    assert "memory://bucket/nothing holds no watch-rank*.json" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_folder_of_summaries_that_nothing_can_write_to_is_said_before_the_start(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(PerfdoctorError, match="--summaries needs a package that is not installed: fsspec"):
        outside_options.needs_remote("--summaries", "s3://bucket/job")
    for folder in ("", "shared/job", "file:///shared/job"):
        outside_options.needs_remote("--summaries", folder)

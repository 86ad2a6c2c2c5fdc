"""An agent that stays in the program: every step is noted, and windows are recorded as often as one is asked for."""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warm_torch import ALL_AT_ONE, Program

from perfdoctor.readers.kineto import trace as kineto
from perfdoctor.recording.inside.in_process import agent_module
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow

pytestmark = [pytest.mark.torch, ALL_AT_ONE]

TRAINING = """\
import os, sys, time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(torch.utils.data.DataLoader(torch.ones(8 * 2000, 32), batch_size=8))
def step(number):
    loss = model(next(batches)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""


class Watched:
    """What a program left behind."""

    def __init__(self, folder: Path, code: int, output: str, errors: str) -> None:
        self.folder, self.code, self.output, self.errors = folder, code, output, errors
        files = sorted((folder / "rows").glob("*.jsonl"))
        self.lines = [[json.loads(line) for line in file.read_text().splitlines() if line] for file in files]

    @property
    def rows(self) -> list[dict[str, Any]]:
        (lines,) = self.lines
        return [line for line in lines if "first" in line]


def _watch(
    folder: Path, body: str, environment: Mapping[str, str] | None = None, steps: int = 0, watcher: int = 0
) -> Watched:
    for name in ("rows", "agents", "torch"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "train.py").write_text(TRAINING + body, "utf-8")
    full = torch_profiler.environment(
        {**os.environ, **(environment or {})}, PassSettings("torch", folder / "torch", "cpu"),
        StepWindow(steps=steps, skip=3), reports=folder / "agents", nccl=None,
        watch={"rows": str(folder / "rows"), "watcher": watcher},
    )  # fmt: skip
    return Watched(folder, *Program([folder / "train.py"], folder, full).finish())


def _request(folder: Path, number: int, first_step: int, **more: object) -> str:
    """Code of the program that asks for a window, and waits until the agent has seen it."""
    window = folder / f"window-{number}"
    for name in ("torch", "agents"):
        (window / name).mkdir(parents=True)
    wanted = {
        "window": number, "first_step": first_step, "until": time.time_ns() + 10**12, "steps": 4, "most_steps": 4,
        "traces": str(window / "torch"), "reports": str(window / "agents"), **more,
    }  # fmt: skip
    target = str(folder / "rows" / "window.json")
    return (
        f"open({target + '.new'!r}, 'w').write({json.dumps(wanted)!r}); os.replace({target + '.new'!r}, {target!r}); "
        "time.sleep(1)"
    )


def test_every_step_is_noted_and_the_program_prints_what_it_printed(tmp_path: Path) -> None:
    body = "losses = [float(step(number).detach()) for number in range(200)]\nprint(losses[-1])"
    found = _watch(tmp_path, body)
    alone = Program([tmp_path / "train.py"], tmp_path, dict(os.environ)).finish()
    assert (found.code, found.output, found.errors) == alone
    rows = found.rows
    assert [row["first"] for row in rows[1:]] == [row["first"] + row["steps"] for row in rows[:-1]], "none is missing"
    assert rows[-1]["first"] + rows[-1]["steps"] - 1 == 200
    assert rows[0]["first"] <= 4
    assert all(row["q"] == sorted(row["q"]) and 0 < row["wait"] < row["sum"] for row in rows)
    assert all(row["q"][0] * row["steps"] <= row["sum"] <= row["q"][4] * row["steps"] for row in rows)
    assert "ended" in found.lines[0][-1]
    report = json.loads(next((tmp_path / "agents").glob("*.json")).read_text())
    assert (report["steps_seen"], report["ended"], report["notes"]) == (200, True, [])


def test_batches_are_noted_outside_of_steps(tmp_path: Path) -> None:
    body = """\
for number in range(60): step(number)
for number in range(15):
    next(batches)
    time.sleep(0.2)
time.sleep(2)
"""
    (lines,) = _watch(tmp_path, body).lines
    ages_s = [line["batch"] / 1e9 for line in lines if "at" in line]
    assert min(ages_s[1:3]) < 0.5, "of the evaluation"
    assert ages_s[-1] > 1, "behind it"


def test_windows_are_recorded_as_often_as_one_is_asked_for(tmp_path: Path) -> None:
    asked = [_request(tmp_path, number, first) for number, first in ((1, 60), (2, 300))]
    body = f"""\
for number in range(500):
    if number == 40:
        {asked[0]}
    if number == 280:
        {asked[1]}
    step(number)
"""
    found = _watch(tmp_path, body)
    assert (found.code, found.output, found.errors) == (0, "", "")
    for number in (1, 2):
        window = tmp_path / f"window-{number}"
        trace = kineto.read(window / "torch" / "rank0.pt.trace.json")
        assert sum(text.startswith("ProfilerStep#") for text in trace.ranges.name) == 4
        report = json.loads(next((window / "agents").glob("*.json")).read_text())
        assert (report["state"], report["steps_recorded"], report["step_found_by"]) == ("written", 4, "optimizer")
        assert report["unwatched_step_ns"] > 0
    rows = found.rows
    assert rows[-1]["first"] + rows[-1]["steps"] - 1 == 500, "steps are counted through the windows"
    recorded = [(row["first"], row["first"] + row["steps"]) for row in rows if row["recorded"]]
    assert min(recorded)[0] == 61
    assert any(first == 301 for first, _ in recorded)


def test_behind_a_window_the_stacks_are_for_the_one_that_watches_again(tmp_path: Path) -> None:
    sampling = {"sampler": 12, "requests": str(tmp_path / "none"), "ready": str(tmp_path), "source": False}
    body = f"""\
from perfdoctor_agent import sampling
permitted = []
sampling.permit = permitted.append
for number in range(300):
    if number == 40:
        {_request(tmp_path, 1, 60, sampling=sampling)}
    step(number)
print(permitted)
"""
    assert _watch(tmp_path, body, watcher=34).output == "[12, 0, 34]\n"


def test_a_request_that_cannot_be_served_any_more_gives_way_to_the_next_one(tmp_path: Path) -> None:
    soon = "__SOON__"
    lost = _request(tmp_path, 1, 10**9, until=soon).replace(f'"{soon}"', "' + str(time.time_ns() + 10**9) + '")
    far = _request(tmp_path, 2, 10**9)
    body = f"""\
for number in range(40): step(number)
{lost}
time.sleep(1)
before = getattr(__import__("gc"), "get_objects")
from perfdoctor_agent.watching import WatchingAgent
(agent,) = [each for each in before() if type(each) is WatchingAgent]
print(agent._wanted)
{far}
{_request(tmp_path, 3, 60)}
for number in range(400): step(number)
"""
    found = _watch(tmp_path, body)
    assert (found.code, found.output, found.errors) == (0, "None\n", "")
    assert [row["first"] for row in found.rows if row["recorded"]][:1] == [61]


def test_a_request_from_before_the_process_began_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    old = f"import os, time\n{_request(tmp_path, 1, 60, asked=time.time_ns())}\n"
    exec(old.replace("time.sleep(1)", ""), {})
    body = """\
for number in range(100): step(number)
time.sleep(1)
for number in range(100): step(number)
"""
    assert not any(row["recorded"] for row in _watch(tmp_path, body).rows)


def test_a_window_at_the_start_is_followed_by_the_same_watch(tmp_path: Path) -> None:
    found = _watch(tmp_path, "for number in range(300): step(number)", steps=4)
    trace = kineto.read(tmp_path / "torch" / "rank0.pt.trace.json")
    assert sum(text.startswith("ProfilerStep#") for text in trace.ranges.name) == 4
    assert found.rows[-1]["first"] + found.rows[-1]["steps"] - 1 == 300


def test_another_optimizer_in_the_place_of_the_first_makes_the_steps(tmp_path: Path) -> None:
    body = """\
for number in range(100): step(number)
optimizer = torch.optim.Adam(model.parameters())
for number in range(300): step(number)
"""
    rows = _watch(tmp_path, body).rows
    assert sum(row["steps"] for row in rows) > 300


@pytest.mark.parametrize("updates", [5, 60])
def test_steps_that_the_program_marks_are_the_steps_however_many_updates_each_has(tmp_path: Path, updates: int) -> None:
    body = f"""\
for number in range(40):
    with torch.profiler.record_function("perfdoctor.step"):
        for _ in range({updates}): optimizer.step()
        time.sleep(0.02)
"""
    rows = _watch(tmp_path, body).rows
    # Until the first mark the updates are the steps, and marks that show that they are the steps are no longer counted.
    assert 35 <= sum(row["steps"] for row in rows) <= 40 + updates
    last = rows[-1]
    assert 20_000_000 <= last["q"][0] < 40_000_000, "a step is from one mark to the next, and not to the one after it"


def test_children_of_a_loader_write_nothing_and_a_forked_training_writes_its_own(tmp_path: Path) -> None:
    body = """\
batches = iter(torch.utils.data.DataLoader(torch.ones(8 * 2000, 32), batch_size=8, num_workers=2))
for number in range(60): step(number)
del batches
child = os.fork()
if not child:
    batches = iter(torch.utils.data.DataLoader(torch.ones(8 * 2000, 32), batch_size=8))
    for number in range(60): step(number)
    time.sleep(0.7)
    os._exit(0)
os.waitpid(child, 0)
"""
    found = _watch(tmp_path, body)
    assert (found.code, found.errors) == (0, "")
    assert len(found.lines) == 2
    assert len({lines[0]["pid"] for lines in found.lines}) == 2


@pytest.mark.parametrize("how", ["missing", "full"])
def test_where_nothing_can_be_written_the_program_runs_as_without(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    # /dev/full takes nothing, as a full disk does.
    body = "import glob, shutil\nfor number in range(50): step(number)\n"
    body = ("import shutil; shutil.rmtree('rows')\n" if how == "missing" else "") + body + "print('done')"
    if how == "full":
        body = "real = os.open\nos.open = lambda p, *a: real('/dev/full' if '.jsonl' in str(p) else p, *a)\n" + body
    found = _watch(folder, body)
    assert (found.code, found.output, found.errors) == (0, "done\n", "")
    assert found.lines == []


def test_an_error_of_ours_ends_the_agent_and_says_so_in_the_last_line(tmp_path: Path) -> None:
    body = """\
for number in range(60): step(number)
from torch.optim.optimizer import _global_optimizer_post_hooks
hook = list(_global_optimizer_post_hooks.values())[-1]
def broken(is_recorded): raise RuntimeError("planted")
dict(zip(hook.__code__.co_freevars, hook.__closure__))["end"].cell_contents = broken
for number in range(60): step(number)
print("done")
"""
    found = _watch(tmp_path, body)
    assert (found.code, found.output, found.errors) == (0, "done\n", "")
    assert found.lines[0][-1]["why"] == "RuntimeError: planted"


def test_the_gpus_clock_is_read_without_waiting_for_it() -> None:
    """Events are read when the device has passed them, and one that it has not is left for later."""
    light = agent_module("light")

    class Event:
        made: ClassVar[list[Event]] = []

        def __init__(self, **_: object) -> None:
            Event.made.append(self)

        def record(self) -> None:
            self.at = len(Event.made)

        def query(self) -> bool:
            return self.at <= 3

        def elapsed_time(self, other: Event) -> float:
            return 10.0 * (other.at - self.at)

    cuda = SimpleNamespace(
        is_initialized=lambda: True, is_current_stream_capturing=lambda: False, Event=Event,
        memory_allocated=lambda: 1, memory_reserved=lambda: 2,
    )  # fmt: skip
    now = 0

    def clock() -> int:
        nonlocal now
        now += 5_000_000
        return now

    steps = light.LightSteps(SimpleNamespace(cuda=cuda), clock)
    steps.begin(0)
    for _ in range(6):
        steps.end()
    assert list(steps.gpu_clock.passed) == [(1, 2, 10_000_000, False), (2, 3, 10_000_000, False)]
    assert len(Event.made) == 6


def test_what_the_gpu_holds_is_asked_for_on_the_thread_that_trains_once_a_second(tmp_path: Path) -> None:
    light = agent_module("light")
    asked: list[tuple[int, int]] = []
    now = 0

    def held() -> int:
        asked.append((threading.get_ident(), now))
        return 1 << 20

    event = SimpleNamespace(record=lambda: None, query=lambda: False)
    cuda = SimpleNamespace(
        is_initialized=lambda: True, is_current_stream_capturing=lambda: False, Event=lambda **_: event,
        memory_allocated=held, memory_reserved=lambda: 2 << 20,
    )  # fmt: skip
    steps = light.LightSteps(SimpleNamespace(cuda=cuda), lambda: now)
    steps.begin(0)
    for now in range(0, 3_000_000_001, 100_000_000):  # noqa: B007 the clock
        steps.end()
    assert [at for _, at in asked] == [1_100_000_000, 2_200_000_000]
    writer = light.RowWriter(str(tmp_path / "rows"), steps, {}, lambda: None)
    writer._use()
    assert json.loads(writer._lines[-1])["gpu"] == [1 << 20, 2 << 20]
    assert {thread for thread, _ in asked} == {threading.get_ident()}
    assert len(asked) == 2


def test_pages_of_a_file_are_no_memory_that_the_program_holds() -> None:
    light, size = agent_module("light"), 128 << 20
    with tempfile.TemporaryFile(dir="/var/tmp") as file:  # on a disk also where /tmp is in memory
        file.truncate(size)
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
            before = light._held_bytes()
            assert sum(data[at] for at in range(0, size, mmap.PAGESIZE)) == 0
            assert abs(light._held_bytes() - before) < size // 4
    for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):  # shared with workers, as batches are
        with mmap.mmap(-1, size, flags | mmap.MAP_ANONYMOUS) as own:
            for at in range(0, size, mmap.PAGESIZE):
                own[at] = 1
            assert light._held_bytes() - before > size * 3 // 4


def _stretches(
    folder: Path, lengths_ms: Sequence[float], *, silent_s: float, many: int = 25, passed: int | None = None
) -> list[dict[str, Any]]:
    """The stretches that are written of steps of these lengths, the last of which ended so long ago.

    `passed`: a GPU has passed so many steps.
    """
    light = agent_module("light")
    steps = light.LightSteps(SimpleNamespace())
    if passed is not None:
        steps.gpu_clock._events.append((passed, None, False))
    writer = light.RowWriter(str(folder / "rows"), steps, {}, lambda: None)
    writer._length = many
    end = time.monotonic_ns() - round((silent_s + sum(lengths_ms) / 1e3) * 1e9)
    for length in (0, *lengths_ms):
        end += round(length * 1e6)
        steps.waiting.append((end, -1, 0, False))
    writer._take()
    return [json.loads(line) for line in writer._lines if '"first"' in line]


def test_the_first_slow_steps_of_a_stretch_are_noted_and_not_the_longest(tmp_path: Path) -> None:
    lengths = [10.0] * 200
    for at in range(0, 200, 10):
        lengths[at] = 20 + at / 10
    (found,) = _stretches(tmp_path, lengths, silent_s=0, many=200)
    assert [number for number, _ in found["slow"]] == [1 + 10 * at for at in range(16)]


def test_a_stretch_of_long_steps_is_not_closed_for_silence_within_one(tmp_path: Path) -> None:
    assert _stretches(tmp_path, [3000, 3000], silent_s=3) == []
    assert [each["steps"] for each in _stretches(tmp_path, [3000, 3000], silent_s=7)] == [2]
    assert [each["steps"] for each in _stretches(tmp_path, [10, 10], silent_s=3)] == [2]


def test_steps_are_written_when_the_gpu_has_passed_them_or_no_other_comes(tmp_path: Path) -> None:
    def written(passed: int, silent_s: float) -> list[int]:
        return [each["steps"] for each in _stretches(tmp_path, [10] * 60, silent_s=silent_s, passed=passed)]

    assert written(24, 0) == []
    assert written(49, 0) == [25]
    assert written(50, 0) == [25, 25]
    assert written(24, 3) == [25, 25, 10]


@given(st.lists(st.integers(1, 4), max_size=20), st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_pieces_of_the_gpus_clock_are_cut_to_stretches(pieces: list[int], stretches: list[int]) -> None:
    clock, end = agent_module("gpu_clock").GpuClock(None), 0
    for many in pieces:
        clock.passed.append((end, end + many, 10 * end, False))
        end += many
    expected = {step: each_ns for before, last, each_ns, _ in clock.passed for step in range(before + 1, last + 1)}
    found, first = {}, 1
    for many in stretches:
        for before, last, each_ns, _ in clock.of(first, first + many - 1):
            found |= dict.fromkeys(range(before + 1, last + 1), each_ns)
        first += many
    assert found == {step: ns for step, ns in expected.items() if step < first}

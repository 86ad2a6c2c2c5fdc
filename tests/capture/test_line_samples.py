"""Lines of code seen by the agent's thread: in this process, and in real trainings."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from torch_python import torch_python

from perfdoctor.capture import torch_profiler
from perfdoctor.capture.torch_profiler import Recording, Window

sys.path.insert(0, str(torch_profiler.AGENT))
from perfdoctor_agent import line_samples
from perfdoctor_agent.line_samples import LineSamples

sys.path.remove(str(Path(torch_profiler.AGENT)))

_MS = 1_000_000
_FRAME = re.compile(r"^(.+)\((\d+)\): (.+)$")


def waits_s(seconds: float) -> None:
    time.sleep(seconds)


def holds_python_s(seconds: float) -> int:
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        count += 1
    return count


def held(numbers: list[float]) -> float:
    return sum(numbers)  # in C: nothing else of Python runs


def innermost(told: dict[str, Any]) -> Counter[str]:
    """Looks by the function that ran."""
    return Counter(_function(told["frames"][told["stacks"][stack][0]]) for stack in told["stack"])


def _function(frame: str) -> str:
    found = _FRAME.match(frame)
    assert found, frame
    return found[3]


def os_threads() -> set[str]:
    return {task.name for task in Path("/proc/self/task").iterdir()}


def looked(samples: LineSamples, more: int = 5) -> bool:
    """Wait until it has looked so many times more; a busy machine may take a while."""
    wanted, end = len(samples.times_ns) + more, time.perf_counter() + 20
    while len(samples.times_ns) < wanted and time.perf_counter() < end:
        waits_s(0.005)
    return len(samples.times_ns) >= wanted


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> Iterator[LineSamples]:
    monkeypatch.setattr(line_samples, "LARGEST_SHARE", 1.0)  # as often as it is told to, however slow the machine
    made = LineSamples(2 * _MS)
    yield made
    made.end()


# --- what is seen ---


def test_the_looks_divide_the_time_as_the_program_did(samples: LineSamples) -> None:
    truth: Counter[str] = Counter()
    samples.begin()
    for _ in range(15):
        for work, seconds in ((waits_s, 0.03), (holds_python_s, 0.015)):
            begun = time.perf_counter()
            work(seconds)
            truth[work.__name__] += time.perf_counter() - begun
    samples.end()
    told = samples.told()
    seen, looks = innermost(told), len(told["stack"])
    for name, took_s in truth.items():
        assert seen[name] / looks == pytest.approx(took_s / sum(truth.values()), abs=0.15)
    assert looks * told["interval_ns"] / 1e9 == pytest.approx(sum(truth.values()), rel=0.2)


def test_the_line_is_the_one_that_runs_and_its_callers_follow(samples: LineSamples) -> None:
    samples.begin()
    waits_s(0.3)
    samples.end()
    told = samples.told()
    (most, _), *_ = Counter(told["stack"]).most_common(1)
    frames = [told["frames"][index] for index in told["stacks"][most]]
    here = Path(__file__)
    lines = here.read_text("utf-8").split("\n")
    inner, caller = _FRAME.match(frames[0]), _FRAME.match(frames[1])
    assert inner
    assert caller
    assert (inner[1], caller[1]) == (str(here), str(here))
    assert lines[int(inner[2]) - 1].strip() == "time.sleep(seconds)"
    assert lines[int(caller[2]) - 1].strip() == "waits_s(0.3)"
    assert caller[3] == "test_the_line_is_the_one_that_runs_and_its_callers_follow"


def test_it_has_the_form_that_is_agreed(samples: LineSamples, tmp_path: Path) -> None:
    begun_ns = time.time_ns()
    samples.begin()
    waits_s(0.2)
    holds_python_s(0.1)
    samples.end()
    samples.write(str(tmp_path / "rank0.lines.json"))
    assert [file.name for file in tmp_path.iterdir()] == ["rank0.lines.json"]
    told = json.loads((tmp_path / "rank0.lines.json").read_text("ascii"))
    assert list(told) == ["perfdoctor_lines", "pid", "thread", "interval_ns", "frames", "stacks", "time_ns", "stack"]
    assert (told["perfdoctor_lines"], told["pid"], told["thread"]) == (1, os.getpid(), threading.get_native_id())
    assert told["interval_ns"] == 2 * _MS
    assert len(set(told["frames"])) == len(told["frames"])
    assert len({tuple(stack) for stack in told["stacks"]}) == len(told["stacks"])
    assert all(0 < len(stack) <= 64 and max(stack) < len(told["frames"]) for stack in told["stacks"])
    assert len(told["time_ns"]) == len(told["stack"]) > 5
    assert max(told["stack"]) == len(told["stacks"]) - 1
    assert told["time_ns"] == sorted(told["time_ns"])
    assert begun_ns <= told["time_ns"][0] <= told["time_ns"][-1] <= time.time_ns()


def test_lines_are_those_that_python_itself_tells() -> None:
    def tells() -> tuple[CodeType, int, int]:
        frame = sys._getframe()
        return frame.f_code, frame.f_lasti, frame.f_lineno

    code, at, line = tells()
    assert line == code.co_firstlineno + 2
    assert line_samples._line(code, at) == line
    assert line_samples._line(code, -1) == code.co_firstlineno


def test_what_held_the_gil_longer_than_the_interval_gets_all_its_time(samples: LineSamples) -> None:
    huge = [1.0 * number for number in range(6_000_000)]
    samples.begin()
    waits_s(0.02)
    begun = time.perf_counter()
    held(huge)
    took_ns = 1e9 * (time.perf_counter() - begun)
    waits_s(0.02)
    samples.end()
    assert took_ns > 5 * samples.interval_ns
    assert innermost(samples.told())["held"] * samples.interval_ns == pytest.approx(took_ns, rel=0.4)


def test_deep_stacks_are_cut_at_their_outer_end(samples: LineSamples) -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        else:
            waits_s(0.2)

    samples.begin()
    deep(100)
    samples.end()
    told = samples.told()
    longest = max(told["stacks"], key=len)
    names = [_function(told["frames"][index]) for index in longest]
    assert len(names) == 64
    assert (names[0], set(names[1:])) == ("waits_s", {"deep"})


def test_looks_at_the_agents_own_work_are_left_out_and_so_are_its_wrappers() -> None:
    agent = str(torch_profiler.AGENT / "perfdoctor_agent" / "agent.py")

    def seen_in(name: str) -> dict[str, Any]:
        scope: dict[str, Any] = {"waits_s": waits_s}
        exec(compile(f"def {name}(): waits_s(0.3)", agent, "exec"), scope)
        samples = LineSamples(2 * _MS)
        samples.begin()
        scope[name]()
        samples.end()
        return samples.told()

    assert not innermost(seen_in("_beat"))["waits_s"]
    around = seen_in("around")
    assert innermost(around)["waits_s"] > 5
    assert not any("perfdoctor_agent" in frame for frame in around["frames"])


# --- bounds ---


def test_many_looks_are_thinned_and_their_sum_stays(samples: LineSamples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_samples, "MOST_SAMPLES", 50)
    begun = time.perf_counter()
    samples.begin()
    waits_s(0.5)
    samples.end()
    told = samples.told()
    assert len(told["stack"]) <= 50
    assert told["interval_ns"] in (8 * _MS, 16 * _MS)
    assert len(told["stack"]) * told["interval_ns"] / 1e9 == pytest.approx(time.perf_counter() - begun, rel=0.25)


def test_looks_that_cost_too_much_come_less_often(samples: LineSamples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_samples, "LARGEST_SHARE", 0.0)
    samples.begin()
    assert looked(samples, 20)
    end = time.perf_counter() + 20
    while samples.interval_ns < 8 * _MS and time.perf_counter() < end:
        waits_s(0.01)
    samples.end()
    assert samples.interval_ns >= 8 * _MS


# --- nothing stays ---


def test_the_thread_and_the_switch_interval_are_gone_when_it_has_ended(samples: LineSamples) -> None:
    before, known, switch_s = os_threads(), threading.enumerate(), sys.getswitchinterval()
    samples.begin()
    ours = os_threads() - before
    assert len(ours) == 1
    assert threading.enumerate() == known
    assert sys.getswitchinterval() < switch_s
    samples.end()
    end = time.perf_counter() + 20
    while os_threads() & ours and time.perf_counter() < end:  # it has let go of all; the system takes a moment
        time.sleep(0.01)
    assert not os_threads() & ours
    assert sys.getswitchinterval() == switch_s
    samples.end()


def test_a_switch_interval_that_the_program_sets_meanwhile_stays(samples: LineSamples) -> None:
    before = sys.getswitchinterval()
    try:
        samples.begin()
        sys.setswitchinterval(0.003)
        samples.end()
        assert sys.getswitchinterval() == pytest.approx(0.003)
    finally:
        sys.setswitchinterval(before)


def test_no_frame_is_kept_alive(samples: LineSamples) -> None:
    class Tensor:
        pass

    def works() -> weakref.ref[Tensor]:
        tensor = Tensor()
        assert looked(samples)
        return weakref.ref(tensor)

    gc.disable()
    try:
        samples.begin()
        kept = works()
        samples.end()
        assert kept() is None
    finally:
        gc.enable()
    assert innermost(samples.told())["waits_s"]


def test_without_a_gil_it_does_not_look(samples: LineSamples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    before = os_threads(), sys.getswitchinterval()
    samples.begin()
    waits_s(0.05)
    assert os_threads() <= before[0]  # none came
    assert sys.getswitchinterval() == before[1]
    assert samples.told()["stack"] == []


def test_around_a_fork_there_is_no_thread_and_then_there_is_again(samples: LineSamples) -> None:
    samples.begin()
    assert looked(samples)
    samples.pause()
    at_fork = len(samples.times_ns)
    waits_s(0.05)
    assert len(samples.times_ns) == at_fork
    samples.go_on()
    assert looked(samples)
    samples.end()
    after = len(samples.times_ns)
    samples.pause()
    samples.go_on()
    waits_s(0.05)
    assert len(samples.times_ns) == after, "what has ended is not begun by a fork"


def test_nothing_seen_and_nowhere_to_write_leave_no_file(samples: LineSamples, tmp_path: Path) -> None:
    samples.write(str(tmp_path / "rank0.lines.json"))
    assert not list(tmp_path.iterdir())
    samples.begin()
    assert looked(samples)
    samples.end()
    samples.write(str(tmp_path / "gone" / "rank0.lines.json"))
    assert not list(tmp_path.iterdir())


# --- in real trainings ---

TRAINING = """
import os, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def prepare(count):
    total = 0
    for number in range(count):
        total += number * number  # hot
    return total
def step(count=400_000):
    prepare(count)
    loss = model(torch.ones(8, 32)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@dataclass
class Recorded:
    code: int
    output: str
    errors: str
    folder: Path

    @property
    def names(self) -> list[str]:
        return sorted(file.name for file in self.folder.iterdir())

    def lines(self, name: str = "rank0") -> dict[str, Any]:
        return json.loads((self.folder / f"{name}.lines.json").read_text("utf-8"))


Runner = Callable[..., Recorded]


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    def start(
        script: str, *, window: Window | None = None, send: int = 0, activities: Any = "cpu", options: Any = ()
    ) -> Recorded:
        python = torch_python()
        for name in ("agents", "torch"):
            (tmp_path / name).mkdir(exist_ok=True)
        program = tmp_path / "program.py"
        program.write_text(TRAINING + textwrap.dedent(script), "utf-8")
        environment = torch_profiler.environment(
            os.environ, Recording("torch", tmp_path / "torch", activities), window or Window(steps=6, skip=3),
            reports=tmp_path / "agents", nccl=None,
        )  # fmt: skip
        process = subprocess.Popen(
            [python, *options, "program.py"], env=environment, cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if send:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(send)
        output, errors = process.communicate(timeout=120)
        return Recorded(process.returncode, output, errors, tmp_path / "torch")

    return start


_THREADS = "set(os.listdir('/proc/self/task'))"


@pytest.mark.torch
def test_the_busiest_line_of_a_training_is_the_one_that_takes_its_time(run: Runner) -> None:
    found = run("for number in range(12): step()\nprint('done')")
    assert (found.code, found.output, found.errors) == (0, "done\n", "")
    assert found.names == ["rank0.lines.json", "rank0.pt.trace.json"]
    told = found.lines()
    looks = Counter(told["frames"][told["stacks"][stack][0]] for stack in told["stack"])
    program = found.folder.parent / "program.py"
    hot = [number for number, text in enumerate(program.read_text("utf-8").split("\n"), 1) if text.endswith("# hot")]
    inside = sum(count for frame, count in looks.items() if frame.endswith(": prepare"))
    assert f"{program}({hot[0]}): prepare" in looks
    assert inside > 0.6 * sum(looks.values())
    trace = json.loads((found.folder / "rank0.pt.trace.json").read_text("utf-8"))
    steps = [e for e in trace["traceEvents"] if str(e.get("name")).startswith("ProfilerStep#")]
    base_ns = trace.get("baseTimeNanoseconds", 0)
    begins = min(e["ts"] for e in steps) * 1e3 + base_ns
    ends = max(e["ts"] + e["dur"] for e in steps) * 1e3 + base_ns
    assert begins - 50 * _MS <= told["time_ns"][0] <= told["time_ns"][-1] <= ends + 50 * _MS
    assert len(told["stack"]) * told["interval_ns"] == pytest.approx(ends - begins, rel=0.4)


@pytest.mark.torch
def test_the_thread_is_there_in_the_window_and_only_there(run: Runner) -> None:
    script = f"""
    import sys
    seen = []
    for number in range(14):
        step(1000)
        time.sleep(0.02)  # a thread that has ended is counted a moment longer
        seen.append(({_THREADS}, sys.getswitchinterval() < 0.004))
    print([is_short for _, is_short in seen])
    print(len(seen[6][0] - seen[1][0] - seen[13][0]))
    """
    found = run(script)
    assert (found.code, found.errors) == (0, "")
    switched, threads = found.output.splitlines()
    assert switched == str([2 <= number <= 7 for number in range(14)])
    assert threads == "1", "one came and went"


@pytest.mark.torch
def test_where_exact_stacks_are_recorded_nobody_looks(run: Runner) -> None:
    script = "for number in range(14): step(1000)\nprint('done')"
    assert run(script, window=Window(steps=4, skip=3, stacks=True)).names == ["rank0.pt.trace.json"]


@pytest.mark.torch
def test_without_torchs_profiler_as_under_ncu_nobody_looks(run: Runner) -> None:
    script = "import sys\nfor number in range(14):\n    step(1000)\n    assert sys.getswitchinterval() > 0.004"
    found = run(script, activities="")
    assert (found.code, found.errors, found.names) == (0, "", [])


@pytest.mark.torch
@pytest.mark.parametrize(
    ("ending", "code"),
    [("sys.exit(9)", 9), ("raise RuntimeError('mine')", 1), ("os.kill(os.getpid(), 9)", -9), ("os._exit(4)", 4)],
)
def test_a_program_that_ends_in_the_window_leaves_a_whole_file_or_none(run: Runner, ending: str, code: int) -> None:
    found = run(f"for number in range(8): step()\n{ending}", window=Window(steps=100, skip=3))
    assert found.code == code
    assert "perfdoctor" not in found.errors
    assert "line_samples" not in found.errors
    if code in (9, 1):
        assert found.names == ["rank0.lines.json", "rank0.pt.trace.json"]
        assert found.lines()["stack"]
    else:
        assert "rank0.lines.json" not in found.names


@pytest.mark.torch
def test_sigterm_in_the_window_leaves_the_file_and_ends_the_program_by_that_signal(run: Runner) -> None:
    script = "for number in range(8): step()\nprint('now', flush=True)\ntime.sleep(60)"
    found = run(script, window=Window(steps=100, skip=3), send=signal.SIGTERM)
    assert (found.code, found.errors) == (-signal.SIGTERM, "")
    assert found.lines()["stack"]


@pytest.mark.torch
def test_forks_in_the_window_warn_of_nothing_and_the_looks_go_on(run: Runner) -> None:
    script = """
    for number in range(12):
        step()
        if number in (4, 5):
            child = os.fork()
            if child == 0:
                step(1000); os._exit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            forked_ns = time.time_ns()
    print(forked_ns)
    """
    found = run(script, options=("-W", "always"))
    assert (found.code, found.errors) == (0, "")
    *codes, forked_ns = found.output.split()
    assert codes == ["3", "3"]
    times_ns = found.lines()["time_ns"]
    assert times_ns[0] < int(forked_ns) < times_ns[-1]


@pytest.mark.torch
def test_workers_of_a_loader_that_are_forked_in_the_window_work_and_leave_nothing(run: Runner) -> None:
    script = """
    class Data(torch.utils.data.Dataset):
        def __len__(self): return 4
        def __getitem__(self, index): return prepare(1000) * torch.ones(1), sys.getswitchinterval()
    for epoch in range(6):
        for batch, switch in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=1):
            step(1000)
            assert switch.min() > 0.004
    print('done')
    """
    found = run(script)
    assert (found.code, found.output, found.errors) == (0, "done\n", "")
    assert found.names == ["rank0.lines.json", "rank0.pt.trace.json"]
    assert found.lines()["stack"]


@pytest.mark.torch
def test_a_compiled_model_is_compiled_once_and_seen(run: Runner) -> None:
    script = """
    compiled = torch.compile(model, backend="eager")
    def step():
        prepare(100_000)
        compiled(torch.ones(8, 32)).mean().backward(); optimizer.step(); optimizer.zero_grad()
    for number in range(14): step()
    import torch._dynamo.utils as u
    print(u.counters["stats"]["unique_graphs"], dict(u.counters["graph_break"]))
    """
    found = run(script)
    assert (found.code, found.output, found.errors) == (0, "1 {}\n", "")
    assert found.lines()["stack"]

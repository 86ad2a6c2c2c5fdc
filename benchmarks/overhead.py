"""How much slower is a training for being recorded? `make bench`, ratios in one run.

A small training on the CPU whose steps take about two milliseconds: what an agent costs a step weighs most there. One
process runs it in turns of a few steps: alone, with the agent waiting for its window, inside the window, and under plain
torch.profiler with the same options; and again in the opposite order. Printed is the median ratio of neighbouring turns, in
time on the processor, and the same ratio of turns that do not differ: what the machine's unrest alone makes of it. It is
about a hundredth; what the agent does before its window is less, and is timed by itself.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow

_PROCESSES = 3
_ROUNDS = 20
_STEPS = 20
_SKIP = 4

_TRAINING = f"""
import glob, json, os, statistics, sys, time, torch
torch.manual_seed(0); torch.set_num_threads(1)
layers = [layer for _ in range(12) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1))
batch = torch.randn(64, 64)
made = torch.optim.AdamW(model.parameters())

def turn(profile=None):
    times = []
    for number in range({_SKIP + _STEPS + 1}):
        begun = time.thread_time()
        loss = model(batch).square().mean()
        made.zero_grad()
        loss.backward()
        made.step()
        if profile is not None:
            profile.step()
        times.append(time.thread_time() - begun)
    return statistics.median(times[{_SKIP + 2}:-2])

def plain():
    from torch._C._profiler import _ExperimentalConfig
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True,
        schedule=torch.profiler.schedule(wait={_SKIP - 1}, warmup=1, active={_STEPS}, repeat=1),
        on_trace_ready=lambda profile: profile.export_chrome_trace(os.path.join(sys.argv[1], "plain.json")),
        experimental_config=_ExperimentalConfig(trace_only=True))
    profile.start()
    took = turn(profile)
    profile.stop()
    return took

def watched(skip):
    from perfdoctor_agent.agent import Agent
    settings = json.loads(os.environ["PERFDOCTOR_AGENT"])
    agent = Agent(torch, dict(settings, skip=skip))
    agent.watch()
    agent._trains()
    took = turn()
    agent.finish()
    assert (agent.report.facts["state"] == "written") == (skip == {_SKIP}), agent.report.facts
    for trace in glob.glob(os.path.join(settings["traces"], "*.json")):
        os.unlink(trace)
    return took

def notices_s():
    # What the agent does at the end of a step before its window, without the training around it.
    from perfdoctor_agent.agent import Agent
    agent = Agent(torch, dict(json.loads(os.environ["PERFDOCTOR_AGENT"]), skip=1_000_000))
    agent._trains()
    begun = time.thread_time()
    for _ in range(20_000):
        agent._optimizer_stepped(made, (), {{}})
    return (time.thread_time() - begun) / 20_000

turns = {{"alone": turn, "again": turn, "before": lambda: watched(100_000), "in": lambda: watched({_SKIP}), "plain": plain}}
turn(), plain(), watched({_SKIP})
for number in range(int(sys.argv[3])):
    kinds = list(turns)[:: 1 if number % 2 else -1]
    print(json.dumps({{"notices": notices_s(), **{{kind: turns[kind]() for kind in kinds}}}}), flush=True)
"""

#: Whose step is divided by whose, and what both are called.
_PAIRS = {
    ("again", "alone"): ("alone: the machine's unrest", "alone"),
    ("before", "again"): ("agent before its window", "alone"),
    ("in", "before"): ("agent in its window", "before it"),
    ("plain", "again"): ("plain torch.profiler", "alone"),
    ("in", "plain"): ("agent in its window", "plain torch.profiler"),
}


def _torch_python() -> str | None:
    for python in (os.environ.get("PERFDOCTOR_TORCH_PYTHON"), sys.executable):
        if python and subprocess.run([python, "-c", "import torch"], check=False, capture_output=True).returncode == 0:
            return python
    return None


def _rounds(python: str, scratch: Path, is_quick: bool) -> list[dict[str, float]]:
    """The median step of each turn, in seconds on the processor, by kind."""
    recording = PassSettings("torch", Path(tempfile.mkdtemp(dir=scratch)), "cpu")
    window = StepWindow(steps=_STEPS, skip=_SKIP)
    environment = torch_profiler.environment(dict(os.environ), recording, window, reports=scratch, nccl=None)
    environment["PYTHONPATH"] = str(torch_profiler.AGENT)
    # The training calls the agent itself, turn by turn: it must not be called at the start of the interpreter too.
    code = "import sys; sys.path.append(sys.argv[2])\n" + _TRAINING
    done = subprocess.run(
        [python, "-S", "-c", code, scratch, _packages(python), str(2 if is_quick else _ROUNDS)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        cwd=scratch,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _packages(python: str) -> str:
    code = "import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def lines(*, is_quick: bool = False) -> Iterator[str]:
    """A table of what recording costs a step; a sentence where there is no torch."""
    python = _torch_python()
    if python is None:
        yield "Not measured: there is no Python with torch here (PERFDOCTOR_TORCH_PYTHON)."
        return
    with tempfile.TemporaryDirectory() as folder:
        rounds = [
            each for _ in range(1 if is_quick else _PROCESSES) for each in _rounds(python, Path(folder), is_quick)
        ]
    step_ms = 1e3 * statistics.median(each["alone"] for each in rounds)
    notices_us = 1e6 * statistics.median(each["notices"] for each in rounds)
    yield f"| A training step of {step_ms:.1f} ms on the CPU, {len(rounds)} rounds, processor time | against | ratio |"
    yield "| --- | --- | ---: |"
    yield f"| what the agent does in it before its window: {notices_us:.1f} µs | alone | {1 + notices_us / step_ms / 1e3:.3f} |"
    for (kind, base), (what, against) in _PAIRS.items():
        quarters = statistics.quantiles([each[kind] / each[base] for each in rounds], n=4)
        yield f"| {what} | {against} | {quarters[1]:.3f} ({quarters[0]:.3f} to {quarters[2]:.3f}) |"
    yield ""
    yield "In brackets the quarters: half of the rounds lie between."


if __name__ == "__main__":
    print(*lines(), sep="\n")

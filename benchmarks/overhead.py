"""How much slower is a training for being recorded? `make bench`, ratios in one run.

The same small training on the CPU, whose steps take about two milliseconds (a tiny model: what an agent costs a step weighs
most there), is run alone, with the agent waiting for its window, inside the window, after it, and under plain
torch.profiler with the same options. Each is a process of its own, in turn, several rounds; what counts is the ratio
within a round. Each tells the first decile of its steps: what watching costs, every step pays, while on a shared machine
the median moves by half between two runs of the same program.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT / "src"))

from perfdoctor.capture import torch_profiler  # noqa: E402
from perfdoctor.capture.torch_profiler import Recording, Window  # noqa: E402

_ROUNDS = 9
_STEPS = 300

_TRAINING = f"""
import statistics, sys, time, torch
torch.manual_seed(0); torch.set_num_threads(1)
layers = [layer for _ in range(12) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(64, 64)
profile = None
if sys.argv[1] == "plain":
    from torch._C._profiler import _ExperimentalConfig
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True,
        schedule=torch.profiler.schedule(wait=49, warmup=1, active={_STEPS} - 60),
        experimental_config=_ExperimentalConfig(trace_only=True))
    profile.start()
times = []
for number in range({_STEPS}):
    begun = time.perf_counter()
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if profile is not None:
        profile.step()
    times.append(time.perf_counter() - begun)
print(statistics.quantiles(times[60:{_STEPS} - 20], n=10)[0])
"""

#: name → (what the training is told, the agent's window; None: no agent)
_CASES: dict[str, tuple[str, Window | None]] = {
    "alone": ("", None),
    "agent, before its window": ("", Window(steps=5, skip=100_000)),
    "agent, after its window": ("", Window(steps=5, skip=5)),
    "agent, in its window": ("", Window(steps=_STEPS - 60, skip=50)),
    "plain torch.profiler": ("plain", None),
}


def _torch_python() -> str | None:
    for python in (os.environ.get("PERFDOCTOR_TORCH_PYTHON"), sys.executable):
        if python and subprocess.run([python, "-c", "import torch"], check=False, capture_output=True).returncode == 0:
            return python
    return None


def _quiet_step_s(python: str, told: str, window: Window | None, scratch: Path) -> float:
    environment = dict(os.environ)
    if window is not None:
        recording = Recording("torch", Path(tempfile.mkdtemp(dir=scratch)), "cpu")
        environment = torch_profiler.environment(environment, recording, window, reports=scratch, nccl=None)
    done = subprocess.run(
        [python, "-c", _TRAINING, told], env=environment, check=True, capture_output=True, text=True, cwd=scratch
    )
    return float(done.stdout)


def main() -> None:
    python = _torch_python()
    if python is None:
        print("overhead: no Python with torch (PERFDOCTOR_TORCH_PYTHON): left out.")
        return
    with tempfile.TemporaryDirectory() as folder:
        rounds = [
            {name: _quiet_step_s(python, *case, Path(folder)) for name, case in _CASES.items()} for _ in range(_ROUNDS)
        ]
    print(f"\nA training step on the CPU, {_ROUNDS} rounds")
    for name in _CASES:
        ratios = [each[name] / each["alone"] for each in rounds]
        step_ms = 1e3 * statistics.median(each[name] for each in rounds)
        print(f"  {name:26s} {step_ms:6.2f} ms   {statistics.median(ratios):6.3f} × alone")
    against = statistics.median(each["agent, in its window"] / each["plain torch.profiler"] for each in rounds)
    print(f"  {'in its window':26s}             {against:6.3f} × plain torch.profiler")


if __name__ == "__main__":
    main()

"""How much slower are recorded steps for having their stacks sampled? Ratios in one run, against `--no-sampling`.

    python benchmarks/sampling_cost.py [--rounds 10]

Small trainings whose steps take some 20 ms are recorded by `perfdoctor run`, with and without sampling in turns: many small
ops on one core, matmuls on all cores, and workers that prepare the data. A training takes the time of each of its own steps;
printed is what those inside the window took with sampling, divided by what they took without in the same round: the median
of the rounds, and their quarters. The same for the steps before the window, in which nothing is sampled.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

_SRC = Path(__file__).parents[1] / "src"
_SKIP, _STEPS, _STEPS_AFTER = 40, 60, 10
#: The sampler is started at the beginning of the window, which waits for it once; the profiler at its end.
_EDGE = 5

_TRAINING = """
import json, sys, time, torch

class Noise(torch.utils.data.Dataset):
    def __len__(self): return 100_000
    def __getitem__(self, n):
        sum(number * number for number in range(8_000))
        return torch.full((64,), float(n % 7))

def main(kind):
    torch.manual_seed(0)
    wide, deep, rows = {"small": (64, 60, 64), "matmuls": (1024, 3, 256), "workers": (64, 20, 16)}[kind]
    layers = [layer for _ in range(deep) for layer in (torch.nn.Linear(wide, wide), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(wide, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = iter(torch.utils.data.DataLoader(Noise(), batch_size=rows, num_workers=2)) if kind == "workers" else None
    if kind == "small":
        torch.set_num_threads(1)
    batch, ends = torch.randn(rows, wide), []
    for _ in range(int(sys.argv[2])):
        data = next(loader) if loader else batch
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter_ns())
    print(json.dumps(ends), flush=True)

if __name__ == "__main__":
    main(sys.argv[1])
"""
KINDS = {"small": "many small ops, one core", "matmuls": "matmuls, all cores", "workers": "two loader workers"}


def _taken_ns(python: str, kind: str, scratch: Path, *options: str) -> Mapping[str, float]:
    """The mean step before the window, and in it."""
    program = f"import sys; sys.path.insert(0, {str(_SRC)!r}); from perfdoctor.cli.main import main; main()"
    run = scratch / f"run{len(list(scratch.iterdir()))}"
    done = subprocess.run(
        [sys.executable, "-c", program, "run", "--quiet", "--no-html", "--no-save", *options, "-o", run,
         "--skip-steps", str(_SKIP), "--steps", str(_STEPS), "--",
         python, scratch / "training.py", kind, str(_SKIP + _STEPS + _STEPS_AFTER)],
        cwd=scratch, capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    ends = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    before, inside = ends[_EDGE : _SKIP - _EDGE], ends[_SKIP + _EDGE : _SKIP + _STEPS - _EDGE]
    return {"before": (before[-1] - before[0]) / (len(before) - 1), "in": (inside[-1] - inside[0]) / (len(inside) - 1)}


def _ratios(python: str, kind: str, scratch: Path, rounds: int) -> Iterator[dict[str, float]]:
    for number in range(rounds):
        turns = {"sampled": (), "plain": ("--no-sampling",)}
        order = list(turns)[:: 1 if number % 2 else -1]
        took = {turn: _taken_ns(python, kind, scratch, *turns[turn]) for turn in order}
        yield {
            "before": took["sampled"]["before"] / took["plain"]["before"],
            "in": took["sampled"]["in"] / took["plain"]["in"],
            "ms": took["plain"]["in"] / 1e6,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="of each training (default: 10)")
    given = parser.parse_args()
    python = os.environ.get("PERFDOCTOR_TORCH_PYTHON") or sys.executable
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / "training.py").write_text(_TRAINING, "utf-8")
        print("| training | recorded step | in the window, sampled / not | before it |\n| --- | ---: | ---: | ---: |")
        for kind, name in KINDS.items():
            rounds = list(_ratios(python, kind, scratch, given.rounds))
            step_ms = statistics.median(each["ms"] for each in rounds)
            print(f"| {name} | {step_ms:.1f} ms | {_said(rounds, 'in')} | {_said(rounds, 'before')} |", flush=True)
    print(f"\n{given.rounds} rounds each: the median, and in brackets the quarters, between which half of them lie.")


def _said(rounds: list[dict[str, float]], what: str) -> str:
    low, middle, high = statistics.quantiles([each[what] for each in rounds], n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()

"""What does `perfdoctor watch` cost a step, and what does it find? Ratios and rates, each with its interval.

    python benchmarks/watch.py overhead [--rounds 10] [--steps 10000]     five programs, with and without, in turns
    python benchmarks/watch.py blocks [--steps 10000]                     the same, blocks of steps with and without
    python benchmarks/watch.py planted [--repeats 20] [--only NAME]       real programs with trouble planted in them
    python benchmarks/watch.py even [--runs 100] [--steps 1000]           real programs without: every alarm is a false one
    python benchmarks/watch.py simulated [--runs 1000]                    the judge alone, on lengths drawn at random

`overhead` prints the ratio of wall times, which a machine that others use makes uncertain, and beside it what the agent
and its thread take of a core, as a share of a step. `blocks` is for such machines: it puts the agent's hooks in and out
every twenty steps of each of the five programs; its ratio is the median of all pairs of neighbouring blocks, each by its median step,
with the interval of the sign test (order statistics), which no disturbance of some blocks moves. `simulated` draws noise that is
independent, dependent (AR(1), r = 0.7), heavy-tailed (Student's t, 3 degrees of freedom) and skewed, and quartiles of steps whose
batches are padded to a few lengths.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from watched_steps import MS

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow
from perfdoctor.watching import document
from perfdoctor.watching.level import LevelWatch
from perfdoctor.watching.windows import rows_folder

#: Steps in front that no turn counts: the import, the first batches, the search for what a step is.
_SKIPPED = 100
#: Student's t, two-sided 95 %, by degrees of freedom; beyond, the normal quantile.
_T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 14: 2.14, 19: 2.09}

TRAINING = """
import json, os, sys, time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
STEP_MS, STEPS, PLANTED, AT = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
ranks, workers = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("WORKERS", 0))
rank = int(os.environ.get("RANK", 0))
lock = torch.multiprocessing.Lock()
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
if ranks > 1:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

class Data(torch.utils.data.Dataset):
    def __len__(self): return 16 * (STEPS + 10)
    def __getitem__(self, index):
        step = index // 16
        if PLANTED == "deadlock" and step >= AT: lock.acquire()
        if PLANTED == "worker" and step >= AT: time.sleep(1.3e-3 * STEP_MS / 16 * max(workers, 1))
        return torch.ones(64)

def busy(ms):
    until = time.thread_time() + ms / 1e3
    while time.thread_time() < until: pass

held = []
def plant(number):
    beyond = number - AT
    if beyond < 0: return
    if PLANTED == "shift": busy(0.05 * STEP_MS)
    if PLANTED == "drift": busy(0.03 * STEP_MS * min(beyond / 2000, 1))
    if PLANTED == "period" and number % 50 == 0: busy(2 * STEP_MS)
    if PLANTED == "memory": held.append(torch.ones(1 << 18))
    if PLANTED == "hang" and rank == ranks - 1: time.sleep(10_000)

def main():
    begun = used = 0.0
    for number, batch in enumerate(torch.utils.data.DataLoader(Data(), batch_size=16, num_workers=workers)):
        if number == SKIPPED: begun, used = time.perf_counter(), time.process_time()
        if number == STEPS: break
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        plant(number)
        busy(STEP_MS)
        optimizer.step()
    print("TOOK", json.dumps([time.perf_counter() - begun, time.process_time() - used]), flush=True)

if __name__ == "__main__": main()
""".replace("SKIPPED", str(_SKIPPED))

#: Name, ms of work in a step, ranks, workers.
PROGRAMS = (
    ("1 ms", 0.85, 1, 0),
    ("5 ms", 4, 1, 0),
    ("10 ms, two ranks", 9, 2, 0),
    ("20 ms, workers", 19, 1, 2),
    ("50 ms", 49, 1, 0),
)


def _python() -> str:
    return os.environ.get("PERFDOCTOR_TORCH_PYTHON", sys.executable)


def _command(folder: Path, step_ms: float, steps: int, planted: str, at: int, ranks: int) -> list[str]:
    script = folder / "train.py"
    script.write_text(TRAINING, "utf-8")
    return [*_launch(ranks), str(script), str(step_ms), str(steps), planted, str(at)]


def _launch(ranks: int) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    return [_python(), *launcher]


def _of_agent(run: Path, environment: Mapping[str, str], watcher: int = 0) -> dict[str, str]:
    """The environment of a program whose agent only notes steps, into this folder."""
    for name in ("agents", "torch", "steps"):
        (run / name).mkdir()
    return torch_profiler.environment(
        environment, PassSettings("torch", run / "torch", "cpu+cuda"), StepWindow(steps=0), reports=run / "agents",
        nccl=None, watch={"rows": str(rows_folder(run)), "watcher": watcher},
    )  # fmt: skip


# --- overhead --------------------------------------------------------------------------------------------------------


def _turn(folder: Path, program: tuple[str, float, int, int], steps: int, *, watched: bool) -> tuple[float, float]:
    """Seconds, and seconds on a core, of a program's first process."""
    _, step_ms, ranks, workers = program
    environment = {**os.environ, "WORKERS": str(workers)}
    if watched:
        environment = _of_agent(Path(tempfile.mkdtemp(dir=folder)), environment, os.getpid())
    done = subprocess.run(
        _command(folder, step_ms, steps + _SKIPPED, "pure", 0, ranks), env=environment, cwd=folder, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    took = [json.loads(each) for each in re.findall(r"TOOK (\[[^\]]*\])", done.stdout)]  # two ranks may share a line
    return max(wall for wall, _ in took), statistics.fmean(cpu for _, cpu in took)


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95 % interval, by Student's t."""
    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return mean, -math.inf, math.inf
    half = _T.get(n - 1, 1.96 if n > 20 else 2.2) * statistics.stdev(values) / math.sqrt(n)
    return mean, mean - half, mean + half


def overhead(given: argparse.Namespace) -> Iterator[str]:
    yield "| program | step | rounds | ratio of wall times (95 %) | agent on a core, share of a step (95 %) |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for program in PROGRAMS:
        if given.only and given.only not in program[0]:
            continue
        steps = given.steps if not given.seconds else max(int(given.seconds * 1e3 / max(program[1] + 1, 1)), 200)
        with tempfile.TemporaryDirectory() as name:
            folder, ratios, shares, walls = Path(name), [], [], []
            for number in range(given.rounds):
                order = (True, False) if number % 2 else (False, True)
                took = {watched: _turn(folder, program, steps, watched=watched) for watched in order}
                ratios.append(math.log(took[True][0] / took[False][0]))
                shares.append((took[True][1] - took[False][1]) / took[False][0])
                walls.append(took[False][0] / steps)
        ratio, share = [math.exp(each) for each in interval(ratios)], interval(shares)
        yield (
            f"| {program[0]} | {1e3 * statistics.median(walls):.2f} ms | {given.rounds} × {steps:,} steps "
            f"| {ratio[0]:.4f} ({ratio[1]:.4f} to {ratio[2]:.4f}) "
            f"| {share[0]:+.2%} ({share[1]:+.2%} to {share[2]:+.2%}) |"
        )


# --- blocks ----------------------------------------------------------------------------------------------------------

#: Steps of a block.
_BLOCK = 20

BLOCKS = """
import json, os, statistics, sys, tempfile, time
sys.path.insert(0, sys.argv[1])
import torch
from perfdoctor_agent.watching import WatchingAgent
torch.manual_seed(0)
torch.set_num_threads(1)
STEP_MS, PAIRS, WORKERS = float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[5])
layers = [layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1))
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(16 * 400_000 // 100, 64))
folder = tempfile.mkdtemp(dir=sys.argv[4])
settings = json.loads(os.environ["PERFDOCTOR_AGENT"])

def batches():
    while True:
        yield from torch.utils.data.DataLoader(data, batch_size=16, num_workers=WORKERS)

def busy(ms):
    until = time.thread_time() + ms / 1e3
    while time.thread_time() < until: pass

source = batches()
def step():
    begun, used = time.perf_counter(), time.thread_time()
    (batch,) = next(source)
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    busy(STEP_MS)
    optimizer.step()
    return time.perf_counter() - begun, time.thread_time() - used

agent = WatchingAgent(torch, settings)
agent.watch()
for _ in range(60): step()
assert agent.is_light
from torch.optim.optimizer import register_optimizer_step_post_hook
def turn(on):
    if on:
        agent._step_hooks["optimizer"] = register_optimizer_step_post_hook(agent._optimizer_hook()).remove
        agent.light._install(__import__("threading").get_ident())
    else:
        agent._step_hooks.pop("optimizer")()
        agent.light.leave()
    steps = [step() for _ in range(BLOCK)]
    return [statistics.median(each) for each in zip(*steps)]
turn(False)
for number in range(PAIRS):
    first = number % 2 == 0
    both = {}
    for on in ((True, False) if first else (False, True)):
        if on == ("optimizer" in agent._step_hooks):
            (agent._step_hooks.pop("optimizer")(), agent.light.leave()) if on else turn(True)
        both[on] = turn(on)
    if int(os.environ.get("RANK", 0)) == 0: print(json.dumps([both[True], both[False]]))
""".replace("BLOCK)", f"{_BLOCK})")


def blocks(given: argparse.Namespace) -> Iterator[str]:
    """The ratio of neighbouring blocks, by wall time and by the training thread's time on a core."""
    yield "| program | step | pairs of blocks | ratio of wall times (95 %) | ratio of times on a core (95 %) |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for program in PROGRAMS:
        name, step_ms, ranks, workers = program
        if given.only and given.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            script, environment = Path(folder) / "blocks.py", _of_agent(Path(folder), os.environ)
            script.write_text(BLOCKS, "utf-8")
            words = [torch_profiler.AGENT, step_ms, given.steps // (2 * _BLOCK), folder, workers]
            done = subprocess.run(
                [*_launch(ranks), str(script), *map(str, words)], env={**environment, "PYTHONPATH": ""}, check=True,
                capture_output=True, text=True,
            )  # fmt: skip
        rows = np.array([json.loads(line) for line in done.stdout.splitlines()])  # pair, with or without, clock
        cells = [sign_interval(rows[:, 0, clock] / rows[:, 1, clock]) for clock in (0, 1)]
        wall, core = (f"{middle:.4f} ({low:.4f} to {high:.4f})" for middle, low, high in cells)
        yield f"| {name} | {1e3 * float(np.median(rows[:, 1, 0])):.2f} ms | {len(rows)} | {wall} | {core} |"


def sign_interval(values: np.ndarray) -> tuple[float, float, float]:
    """The median and its 95 % interval by order statistics (W. Conover, Practical Nonparametric Statistics, 3.2)."""
    ordered = np.sort(values)
    half = 1.96 * math.sqrt(ordered.size) / 2
    low, high = max(int(ordered.size / 2 - half), 0), min(math.ceil(ordered.size / 2 + half), ordered.size - 1)
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])


# --- real programs ---------------------------------------------------------------------------------------------------

#: Name: what is planted, ms of a step, ranks, workers; kinds that name it, and the cause, or what the hang says.
PLANTED: dict[str, tuple[str, float, int, int, tuple[str, ...], str]] = {
    # In steps of 10 ms the rest, 1.3 ms of Python, differs by 20 % from minute to minute where cores are shared.
    "drift": ("drift", 30, 1, 0, ("drift", "level"), "host"),
    "shift": ("shift", 10, 1, 0, ("level", "drift"), "host"),
    "slow step each 50": ("period", 10, 1, 0, ("slow-steps",), ""),
    "worker": ("worker", 10, 1, 2, ("input",), "input"),
    "hang in all-reduce": ("hang", 10, 2, 0, ("hang",), "collective"),
    "deadlocked loader": ("deadlock", 10, 1, 2, ("hang",), "loader"),
    "memory": ("memory", 10, 1, 0, ("memory",), "host"),
}
_AT = 1200
_STEPS = 4200
_HANG_S = 10


def _watched(
    folder: Path, planted: str, step_ms: float, ranks: int, workers: int, steps: int, kinds: Sequence[str] = ()
) -> document.WatchDocument:
    """What was known at the end. A program that hangs is ended when that was found, or after ten minutes, one with
    trouble of these `kinds` when a window of it is diagnosed.
    """
    words = ["-o", "run", "--first-window", "0", "--no-save", "--hang-after", str(_HANG_S), "--apart", "0", "-q"]
    words += ["--timeout", "600"]
    command = _command(folder, step_ms, steps, planted, _AT, ranks)
    with subprocess.Popen(
        [sys.executable, "-m", "perfdoctor", "watch", *words, "--", *command],
        cwd=folder, env={**os.environ, "WORKERS": str(workers)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            while process.poll() is None:
                time.sleep(1)
                with contextlib.suppress(PerfdoctorError):
                    known = document.read(folder / "run")
                    done = [each.why for each in known.windows if each.state == "diagnosed"]
                    if known.hang is not None or not set(kinds).isdisjoint(done):
                        break
        finally:
            process.terminate()  # also where this is ended itself: the program would take a core for ever
    return document.read(folder / "run")


def planted(given: argparse.Namespace) -> Iterator[str]:
    yield "| planted | found | first of all | cause named | steps until found: median (most) | window recorded | its first finding |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for name, (what, step_ms, ranks, workers, kinds, cause) in PLANTED.items():
        if given.only and given.only not in name:
            continue
        found, first, named, after, recorded, findings = 0, 0, 0, [], 0, []
        for number in range(1, given.repeats + 1):
            with tempfile.TemporaryDirectory() as folder:
                known = _watched(Path(folder), what, step_ms, ranks, workers, _STEPS, kinds)
            seen = [f"{each.kind} ({each.cause}) at {each.seen_at}" for each in known.anomalies]
            print(f"{name} {number}: {', '.join(seen)}", file=sys.stderr, flush=True)  # takes an hour and a half
            late = [each for each in known.anomalies if each.seen_at >= _AT - 25]
            hits = [each for each in late if each.kind in kinds]
            found += bool(hits)
            first += bool(hits) and late[0] is hits[0]
            hang = known.hang.what if known.hang else ""
            named += any(not cause or cause in {each.cause, hang} for each in hits) or (
                bool(hits) and hits[0].values.get("kind") == cause
            )
            after += [hits[0].seen_at - _AT] if hits else []
            done = [each for each in known.windows if each.state == "diagnosed" and each.why in kinds]
            recorded += bool(done)
            findings += [each.rule for each in done]
        n, often = given.repeats, statistics.mode(findings) if findings else "–"
        delay = f"{statistics.median(after):.0f} ({max(after)})" if after else "–"
        yield f"| {name} | {found}/{n} | {first}/{n} | {named}/{n} | {delay} | {recorded}/{n} | {often} {findings.count(often)}/{len(findings)} |"


def even(given: argparse.Namespace) -> Iterator[str]:
    """Runs without anything planted; each alarm, and what it was held to be caused by."""
    alarms: list[str] = []
    for _ in range(given.runs):
        with tempfile.TemporaryDirectory() as folder:
            known = _watched(Path(folder), "none", 10, 1, 0, given.steps)
        alarms += [f"{each.kind} ({each.cause})" for each in known.anomalies]
    yield f"{given.runs} runs of {given.steps:,} steps: {len(alarms)} alarms: {', '.join(alarms) or 'none'}"


# --- the judge alone -------------------------------------------------------------------------------------------------


def _independent(rng: np.random.Generator, n: int, spread: float) -> np.ndarray:
    return rng.normal(0, spread, n)


def _dependent(rng: np.random.Generator, n: int, spread: float) -> np.ndarray:
    shocks, found = rng.standard_t(3, n) * spread * math.sqrt(1 - 0.49) / math.sqrt(3), np.zeros(n)
    for at in range(1, n):
        found[at] = 0.7 * found[at - 1] + shocks[at]
    return found


def _tailed(rng: np.random.Generator, n: int, spread: float) -> np.ndarray:
    return rng.standard_t(3, n) * spread / math.sqrt(3)


def _skewed(rng: np.random.Generator, n: int, spread: float) -> np.ndarray:
    return rng.exponential(spread, n)


def _padded(rng: np.random.Generator, n: int, spread: float) -> np.ndarray:
    """Logarithms of the lower quartiles of 25 steps: eight sequences, padded to a multiple of 64 tokens."""
    longest = rng.lognormal(math.log(200), 0.6, (n, 25, 8)).max(axis=2).clip(max=2048)
    lengths = np.log(np.ceil(longest / 64)) + rng.normal(0, spread, longest.shape)
    return np.sort(lengths, axis=1)[:, 6]


_NOISES: dict[str, Callable[[np.random.Generator, int, float], np.ndarray]] = {
    "independent": _independent, "heavy tails": _tailed, "skewed": _skewed, "dependent": _dependent,
    "padded": _padded,
}  # fmt: skip


def _levels(values: np.ndarray, step_ms: float) -> int | None:
    """The stretch with which a change is found in logarithms of quartiles, one a stretch of 25 steps."""
    watch = LevelWatch()
    for at, value in enumerate(values):
        if watch.add(at, round(at * 25 * step_ms * MS), step_ms * MS * math.exp(value)):
            return at
    return None


def simulated(given: argparse.Namespace) -> Iterator[str]:
    """False alarms of even runs, and how late a shift and a drift are found, by the noise of a stretch's quartile."""
    rng, at = np.random.default_rng(1), 80
    yield (
        "| noise of a stretch | false alarms in 100 runs of 3,000 steps | in a run of a week | shift of 5 %: found, steps "
        "until then (95 % within) | drift of 3 % in 2,000 steps |"
    )
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name, draw in _NOISES.items():
        for spread in (0.003, 0.01, 0.02):
            short = sum(_levels(draw(rng, 120, spread), 20) is not None for _ in range(given.runs))
            # A week of 20 ms steps: a hundred stretches of each length up to ten seconds, and 60,480 of those.
            long = sum(_false_alarms(draw(rng, 61_000, spread)) for _ in range(max(given.runs // 100, 2)))
            weeks = max(given.runs // 100, 2)
            shift, drift = [], []
            for _ in range(max(given.runs // 5, 20)):
                base = draw(rng, 400, spread)
                shift.append(_found(base + np.where(np.arange(400) >= at, math.log(1.05), 0), at))
                ramp = math.log(1.03) * np.clip((np.arange(400) - at) / 80, 0, 1)
                drift.append(_found(draw(rng, 400, spread) + ramp, at))
            yield (
                f"| {name}, {spread:.1%} | {100 * short / given.runs:.2f} | {long / weeks:.2f} | {_delays(shift)} | {_delays(drift)} |"
            )


def _false_alarms(values: np.ndarray) -> int:
    watch = LevelWatch()
    return sum(watch.add(at, at * 10 * 10**9, 1e7 * math.exp(value)) is not None for at, value in enumerate(values))


def _found(values: np.ndarray, at: int) -> int | None:
    found = _levels(values, 20)
    return None if found is None or found < at else 25 * (found - at + 1)


def _delays(found: Sequence[int | None]) -> str:
    known = sorted(each for each in found if each is not None)
    if not known:
        return "not found"
    return f"{len(known) / len(found):.0%}, {statistics.median(known):.0f} ({known[int(0.95 * (len(known) - 1))]})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name in ("overhead", "blocks", "planted", "even", "simulated"):
        each = kinds.add_parser(name)
        each.add_argument("--rounds", type=int, default=10)
        each.add_argument("--steps", type=int, default=1000 if name == "even" else 10_000)
        each.add_argument("--seconds", type=float, default=0.0, help="of a turn, instead of --steps")
        each.add_argument("--repeats", type=int, default=20)
        each.add_argument("--runs", type=int, default=100 if name == "even" else 1000)
        each.add_argument("--only", default="")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    begun = time.monotonic()
    for line in globals()[given.kind](given):
        print(line, flush=True)
    print(f"\n{time.monotonic() - begun:.0f} s, {os.cpu_count()} cores", file=sys.stderr)


if __name__ == "__main__":
    main()

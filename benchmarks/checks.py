"""What does `perfdoctor check` decide at which limit, and are as many runs enough as it names?

200 generated pairs of each kind, one run of 30 steps each, as tests/comparison/simulated.py has them: how many are "no
change", and how many fail. Then sides whose runs differ by more: the runs that are named, and how often these decide.
Exits with 1 where an equal pair fails, or where clearly less than 80 % of checks with the named number of runs are right.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from comparison import simulated

from perfdoctor.comparison.check import runs_needed
from perfdoctor.comparison.records import StepChange, StepSample
from perfdoctor.comparison.statistics import USUAL_SPREAD, USUAL_SPREAD_ON_CPU, step_change

PAIRS = 200
LIMITS = (0.01, 0.02, 0.03, 0.05)
SLOWER = (0.0, 0.03, 0.05, 0.06, 0.10)
#: By how much runs differ, and the limit.
NOISY = ((0.02, 0.03), (USUAL_SPREAD_ON_CPU, 0.10), (0.01, 0.01))
#: 80 % are planned; 200 pairs give that to 6 %, of two standard errors.
LEAST = 0.74


def sides(seed: int, slower: float, runs: int, run_noise: float) -> list[list[StepSample]]:
    rng = np.random.default_rng(seed)
    noise, correlation = rng.uniform(*simulated.STEP_NOISE), rng.uniform(*simulated.CORRELATION)
    return [
        [simulated.run(rng, 30, mean, noise, correlation, run_noise) for _ in range(runs)]
        for mean in (50e6, 50e6 * (1 + slower))
    ]


def changes(slower: float, runs: int, run_noise: float, usual: float, within: float) -> Iterator[StepChange]:
    for seed in range(PAIRS):
        before, after = sides(seed, slower, runs, run_noise)
        yield step_change(before, after, usual, within=within)


def limits() -> int:
    missed = 0
    for limit in LIMITS:
        for slower in SLOWER:
            found = list(changes(slower, 1, simulated.RUN_NOISE, USUAL_SPREAD, limit))
            unchanged = sum(each.verdict == "no change" for each in found) / PAIRS
            failed = sum(each.is_longer_by(limit) for each in found) / PAIRS
            print(f"limit {limit:.0%}, {slower:.0%} slower: no change {unchanged:.1%}, fails {failed:.1%}")
            missed += not slower and failed > 0
    return missed


def planned() -> int:
    missed = 0
    for run_noise, limit in NOISY:
        named = [runs_needed(*sides(seed, 0.0, 1, run_noise), run_noise, limit) for seed in range(30)]
        runs = round(float(np.median([each for each in named if each is not None])))
        for slower, right in ((0.0, "no change"), (limit, "slower")):
            share = sum(each.verdict == right for each in changes(slower, runs, run_noise, run_noise, limit)) / PAIRS
            print(
                f"runs differ by {run_noise:.1%}, limit {limit:.0%}: {runs} runs, {slower:.0%} slower: {share:.1%} {right}"
            )
            missed += share < LEAST
    return missed


def main() -> int:
    return int(bool(limits() + planned()))


if __name__ == "__main__":
    sys.exit(main())

"""Steps of a training as a plain simulation has them: noise that depends on the step before, runs that differ, a machine
whose pace drifts.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.comparison.records import StepSample
from perfdoctor.comparison.statistics import USUAL_SPREAD_ON_CPU, paired_change, step_change

#: What good recordings of GPUs show: 0.5 to 2 % from step to step, correlated with up to a half, and runs that differ.
STEP_NOISE = (0.005, 0.02)
CORRELATION = (0.0, 0.5)
RUN_NOISE = 0.003


def run(rng, steps, mean_ns, noise, correlation, run_noise, long_steps=0.0):
    """One run; `long_steps`: the share of steps that take 1.3 times as long."""
    drawn = rng.normal(size=steps)
    around = np.empty(steps)
    around[0] = drawn[0]
    for at in range(1, steps):
        around[at] = correlation * around[at - 1] + np.sqrt(1 - correlation**2) * drawn[at]
    level = mean_ns * (1 + rng.normal() * run_noise)
    return StepSample(level * np.exp(noise * around) * np.where(rng.random(steps) < long_steps, 1.3, 1))


#: All timed steps on a processor that others use as well: steps and runs differ by more.
CPU_STEP_NOISE, CPU_CORRELATION, TIMED = (0.02, 0.2), (0.0, 0.6), 150


def _on_cpu(rng, mean_ns, *, wander, run_noise, noise, correlation, long_steps=0.0):
    """One run whose level walks `wander` far, as a share; `long_steps`: the share of steps that take ten times as long."""
    steps = run(rng, TIMED, mean_ns, noise, correlation, run_noise).steps_ns
    walk = np.cumsum(rng.normal(size=TIMED)) / np.sqrt(TIMED) * wander
    return StepSample(steps * np.exp(walk) * np.where(rng.random(TIMED) < long_steps, 10, 1))


def timed_pair(seed, *, faster=1.0, wander=0.0, run_noise=USUAL_SPREAD_ON_CPU, long_steps=0.0):
    """The change of two runs on a processor of which the second is faster by this factor."""
    rng = np.random.default_rng(seed)
    how = {"noise": rng.uniform(*CPU_STEP_NOISE), "correlation": rng.uniform(*CPU_CORRELATION)}
    how |= {"wander": wander, "run_noise": run_noise, "long_steps": long_steps}
    sides = [[_on_cpu(rng, mean, **how)] for mean in (50e6, 50e6 / faster)]
    return step_change(*sides, USUAL_SPREAD_ON_CPU, basis="timed")


def alternating(seed, *, faster=1.0, pairs=3, drift=0.2, run_noise=0.05):
    """The change of runs in turn on a machine whose pace drifts from run to run, each with seven tenths of the last."""
    rng = np.random.default_rng(seed)
    how = {"noise": rng.uniform(*CPU_STEP_NOISE), "correlation": rng.uniform(*CPU_CORRELATION), "wander": 0.05}
    sides, level = ([], []), 0.0
    for number in range(pairs):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            level = 0.7 * level + drift * np.sqrt(1 - 0.7**2) * rng.normal()
            mean = 50e6 * np.exp(level) / (faster if side else 1)
            sides[side].append(_on_cpu(rng, mean, run_noise=run_noise, **how))
    return paired_change(*sides)


def pair(seed, *, slower=0.0, runs=1, steps=30, run_noise=RUN_NOISE, long_steps=0.0):
    """The change of one pair of sides of which the second is slower by this share."""
    rng = np.random.default_rng(seed)
    noise, correlation = rng.uniform(*STEP_NOISE), rng.uniform(*CORRELATION)
    sides = [
        [run(rng, steps, mean, noise, correlation, run_noise, long_steps) for _ in range(runs)]
        for mean in (50e6, 50e6 * (1 + slower))
    ]
    return step_change(*sides)

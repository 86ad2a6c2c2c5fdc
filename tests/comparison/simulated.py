"""Steps of a training as a plain simulation has them: noise that depends on the step before, runs that differ."""

from __future__ import annotations

import numpy as np

from perfdoctor.comparison.records import StepSample
from perfdoctor.comparison.statistics import step_change

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


def pair(seed, *, slower=0.0, runs=1, steps=30, run_noise=RUN_NOISE, long_steps=0.0):
    """The change of one pair of sides of which the second is slower by this share."""
    rng = np.random.default_rng(seed)
    noise, correlation = rng.uniform(*STEP_NOISE), rng.uniform(*CORRELATION)
    sides = [
        [run(rng, steps, mean, noise, correlation, run_noise, long_steps) for _ in range(runs)]
        for mean in (50e6, 50e6 * (1 + slower))
    ]
    return step_change(*sides)

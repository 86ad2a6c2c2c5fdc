"""A level of steps that are not all alike."""

from __future__ import annotations

import numpy as np
import pytest
from watched_steps import MS

from perfdoctor.watching.level import LevelWatch


def alarms(lengths_ns: np.ndarray, stretch: int = 25) -> int:
    """How many changes are found in these steps, a stretch at a time as the agent writes them."""
    watch, ends = LevelWatch(), np.cumsum(lengths_ns)
    quartiles = [np.sort(lengths_ns[at : at + stretch])[(stretch + 1) // 4] for at in range(0, len(ends), stretch)]
    return sum(
        watch.add(at * stretch + 1, int(ends[(at + 1) * stretch - 1]), float(value)) is not None
        for at, value in enumerate(quartiles)
    )


@pytest.mark.parametrize("padded_to", [64, 128])
def test_batches_that_are_padded_to_a_few_lengths_have_one_level(padded_to: int) -> None:
    rng, found = np.random.default_rng(0), []
    for _ in range(40):
        longest = rng.lognormal(np.log(200), 0.6, (2500, 8)).max(axis=1).clip(max=2048)
        tokens = np.ceil(longest / padded_to) * padded_to
        found.append(alarms(tokens / 4 * MS * np.exp(rng.normal(0, 0.01, len(tokens)))))
    assert sum(map(bool, found)) <= 4, "of 40 trainings in which nothing changes"

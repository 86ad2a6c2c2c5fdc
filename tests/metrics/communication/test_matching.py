"""Which collectives belong together where ranks recorded unequally many: as plain loops find, and soon enough."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise

import numpy as np
import pytest

from perfdoctor.metrics.communication import matching
from perfdoctor.metrics.communication.matching import _offset


def ends_of(count: int, *, in_a_step: int, jitter: float, seed: int = 0) -> np.ndarray:
    """Ends of collectives whose distances repeat in each step, but for a share of them."""
    rng = np.random.default_rng(seed)
    apart = np.resize(rng.integers(50_000, 5_000_000, in_a_step), count) * (1 + jitter * rng.random(count))
    return np.cumsum(apart).astype(np.int64)


def by_loops(ends: list[int], reference: list[int]) -> int | None:
    scores = {}
    for offset in range(-len(reference), len(ends)):
        both = [n for n in range(len(reference)) if 0 <= n + offset < len(ends)]
        if len(both) >= max(6, len(reference) // 2):
            apart = [(ends[n + offset + 1] - ends[n + offset]) - (reference[n + 1] - reference[n]) for n in both[:-1]]
            scores[offset] = statistics.median(map(abs, apart))
    best, *others = sorted(scores, key=scores.get)
    usual = statistics.median(after - before for before, after in pairwise(reference))
    if scores[best] > 0.02 * usual or (others and scores[others[0]] <= 2 * scores[best]):
        return None
    return best


@pytest.mark.parametrize("most", [matching._MOST_DISTANCES, 0], ids=["all", "sampled"])
@pytest.mark.parametrize(
    ("in_a_step", "jitter", "found"), [(7, 0.05, 11), (1, 0.3, 11), (64, 0.01, 11), (8, 0.0, None)]
)
def test_the_offset_is_that_of_plain_loops(monkeypatch, most, in_a_step, jitter, found):
    monkeypatch.setattr(matching, "_MOST_DISTANCES", most)
    ends = ends_of(400, in_a_step=in_a_step, jitter=jitter)
    reference = ends[11:390] + np.random.default_rng(1).integers(-200, 200, 379)
    assert _offset(ends, reference) == by_loops(ends.tolist(), reference.tolist()) == found


def test_ranks_of_forty_thousand_collectives_are_put_together_soon():
    ends = ends_of(40_000, in_a_step=100, jitter=0.05)
    begun = time.process_time()
    assert _offset(ends, ends[1:] + 777) == 1
    assert time.process_time() - begun < 5

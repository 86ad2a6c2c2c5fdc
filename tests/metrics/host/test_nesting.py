"""Is the innermost row found, and is time shared out once?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import frame

from perfdoctor.metrics.host.nesting import innermost_at, own_ns
from perfdoctor.model.intervals import Intervals


def rows(*spans: tuple[int, int], thread: int = 1):
    return frame("ops", [{"start_ns": a, "end_ns": b, "name": f"{a}-{b}", "thread": thread} for a, b in spans])


def nested(seed: int):
    """A random forest of spans on one thread."""
    rng = np.random.default_rng(seed)
    spans: list[tuple[int, int]] = []

    def grow(low: int, high: int, depth: int) -> None:
        while high - low > 3 and depth < 6:
            start = low + int(rng.integers(0, (high - low) // 2 + 1))
            end = start + int(rng.integers(1, high - start + 1))
            spans.append((start, end))
            grow(start, end, depth + 1 + int(rng.integers(0, 3)))
            low = end

    grow(0, 300, 0)
    return rows(*sorted(spans))


def closest(frame_, instant: int) -> int | None:
    """The shortest row around an instant."""
    inside = [
        (end - start, -start)
        for start, end in zip(frame_.start_ns.tolist(), frame_.end_ns.tolist(), strict=True)
        if start <= instant < end
    ]
    return min(inside)[0] if inside else None


@pytest.mark.parametrize("seed", range(8))
def test_each_instant_belongs_to_the_closest_row_around_it(seed):
    drawn = nested(seed)
    instants = np.array([n for n in range(300) if n not in set(drawn.end_ns.tolist())], dtype=np.int64)
    found = innermost_at(drawn, instants, np.ones(instants.size, dtype=np.int64))
    for instant, row in zip(instants.tolist(), found.tolist(), strict=True):
        length = None if row < 0 else int(drawn.duration_ns[row])
        assert length == closest(drawn, instant)


@pytest.mark.parametrize("seed", range(8))
def test_time_is_shared_out_once(seed):
    drawn = nested(seed)
    pieces = Intervals.of([10, 90, 200], [50, 91, 280])
    by_row = own_ns(drawn, pieces)
    covered = Intervals.of(drawn.start_ns, drawn.end_ns) & pieces
    assert int(by_row.sum()) == covered.total_ns
    lengths: dict[int, int] = {}
    for instant in [n for a, b in ((10, 50), (90, 91), (200, 280)) for n in range(a, b)]:
        length = closest(drawn, instant)
        if length is not None:
            lengths[length] = lengths.get(length, 0) + 1
    mine: dict[int, int] = {}
    for length, ns in zip(drawn.duration_ns.tolist(), by_row.tolist(), strict=True):
        if ns:
            mine[length] = mine.get(length, 0) + ns
    assert mine == lengths


def test_threads_do_not_cover_each_other():
    both = frame(
        "ops",
        [{"start_ns": 0, "end_ns": 10, "name": "a"}, {"start_ns": 2, "end_ns": 5, "name": "b", "thread": 2}],
    )
    assert innermost_at(both, np.array([3]), np.array([1])).tolist() == [0]
    assert innermost_at(both, np.array([3]), np.array([2])).tolist() == [1]
    assert own_ns(both, Intervals.single(0, 10)).tolist() == [10, 3]


def test_of_nothing_comes_nothing():
    assert innermost_at(rows(), np.array([3]), np.array([1])).tolist() == [-1]
    assert own_ns(rows(), Intervals.single(0, 10)).tolist() == []

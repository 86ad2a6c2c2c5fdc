"""Which row lies around which: as the definition has it, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw, frame, timeline

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host.enclosing import lines_of, nested, ops_of
from perfdoctor.model.timeline import UNKNOWN


def forest(seed: int):
    """Random nested rows on two threads, with groups."""
    rng = np.random.default_rng(seed)
    rows = []

    def grow(low: int, high: int, thread: int, depth: int) -> None:
        while high - low > 4 and depth < 6:
            start = low + int(rng.integers(0, (high - low) // 2 + 1))
            end = start + int(rng.integers(1, high - start + 1))
            rows.append({"start_ns": start, "end_ns": end, "thread": thread, "name": str(rng.integers(0, 3))})
            grow(start, end - 1, thread, depth + 1)
            low = end + 1

    for thread in (1, 2):
        grow(0, 400, thread, 0)
    return frame("ops", rows).sorted()


def around(rows, number):
    """All rows of the same thread that hold this one, the shortest first."""
    start, end, thread = rows.start_ns, rows.end_ns, rows["thread"]
    return sorted(
        (
            other
            for other in range(len(rows))
            if other != number and thread[other] == thread[number]
            and start[other] <= start[number] and end[number] <= end[other]
            and (end[other] - start[other] > end[number] - start[number])
        ),
        key=lambda other: int(end[other] - start[other]),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_the_parent_is_the_shortest_row_around(seed):
    rows = forest(seed)
    found = nested(rows)
    for number in range(len(rows)):
        holds = around(rows, number)
        assert found.parent[number] == (holds[0] if holds else UNKNOWN)


@pytest.mark.parametrize("seed", range(6))
def test_what_lies_in_its_own_group_is_there_again(seed):
    rows = forest(seed)
    group = rows.name.codes.astype(np.int64)
    expected = [any(group[other] == group[number] for other in around(rows, number)) for number in range(len(rows))]
    assert nested(rows).again(group).tolist() == expected


@pytest.mark.parametrize("seed", range(6))
def test_own_time_is_what_no_inner_row_has(seed):
    rows = forest(seed)
    found = nested(rows)
    inner = [sum(int(rows.duration_ns[o]) for o in np.flatnonzero(found.parent == n)) for n in range(len(rows))]
    assert found.own(rows.duration_ns).tolist() == (rows.duration_ns - np.array(inner)).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_an_instant_belongs_to_the_shortest_row_around_it(seed):
    rows = forest(seed)
    instants = np.arange(0, 400, dtype=np.int64)
    for thread in (1, 2, 3):
        found = nested(rows).innermost(instants, np.full(instants.size, thread))
        for instant, row in zip(instants.tolist(), found.tolist(), strict=True):
            inside = [
                int(end - start)
                for start, end, own in zip(rows.start_ns, rows.end_ns, rows["thread"], strict=True)
                if own == thread and start <= instant <= end
            ]
            assert (UNKNOWN if row == UNKNOWN else int(rows.duration_ns[row])) == (min(inside) if inside else UNKNOWN)


def test_only_functions_of_the_users_own_are_lines():
    own, library = "train.py(10): train", "torch/nn/modules/linear.py(90): forward"
    agent = "/opt/lib/perfdoctor_agent/marks.py(77): around"
    names = (own, library, agent, "logging/__init__.py(1720): getEffectiveLevel", "<built-in method add>")
    calls = [{"start_ns": 10 * n, "end_ns": 10 * n + 5, "name": name} for n, name in enumerate(names)]
    run = prepare(timeline(functions=calls, ops=[{"start_ns": 0, "end_ns": 100, "name": "aten::add"}]))
    assert list(lines_of(run, 0).rows.name) == [own]


def test_it_is_worked_out_once():
    run = prepare(draw(kernels="####", host=["l", "o"]))
    assert ops_of(run, 0) is ops_of(run, 0)

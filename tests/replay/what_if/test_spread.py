"""How much do the steps of a replay differ?"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from builders import draw

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.replay.graph.graph import WORK
from perfdoctor.replay.graph.ranks import graphs_of
from perfdoctor.replay.graph.simulate import simulate
from perfdoctor.replay.what_if.spread import range_of_later, spread, steps_ns


def spread_of(lengths: list[int]) -> tuple[float, float]:
    """Of steps in which the device computes for so many units."""
    kernels = "".join("#+"[number % 2] * length for number, length in enumerate(lengths))
    calls, marks = ("".join(piece.ljust(length) for length in lengths) for piece in ("l", "ttt"))
    legend = {"t": ("ranges", "train_step")}
    run = prepare(draw(kernels=kernels, host=[calls, marks], mark=None, legend=legend))
    graphs = graphs_of(run)
    return spread(graphs, simulate(graphs))


def even(length: int, repeat: int) -> tuple[float, float]:
    run = prepare(draw(kernels="#" * length, host=["l" + " " * (length - 1)], repeat=repeat, unit_us=100))
    graphs = graphs_of(run)
    return spread(graphs, simulate(graphs))


def test_even_steps_do_not_differ():
    assert even(20, 10) == (pytest.approx(1), pytest.approx(1))


def test_steps_that_differ_tell_by_how_much():
    lengths = [20, 20, 30, 30, 20, 20, 20, 20, 10, 10, 20, 20, 20, 20]
    low, high = spread_of(lengths)
    # more than a tenth of the steps is longer by half, and as many are shorter
    assert 0.5 <= low < 1
    assert 1 < high <= 1.5


def test_work_that_begins_behind_the_last_step_is_no_step_by_itself():
    """Three steps of 100, and a copy of another stream 3 behind the last edge."""
    place = SimpleNamespace(
        steps=SimpleNamespace(even_bounds=np.array([0, 100, 200, 300])),
        work=SimpleNamespace(start_ns=np.array([-2, 0, 100, 200, 303])),
    )
    graph = SimpleNamespace(place=place, kind=np.full(5, WORK), work_row=np.arange(5))
    assert steps_ns(graph, np.array([1.0, 95, 190, 300, 305])).tolist() == [95, 115]


def test_of_a_few_steps_nothing_is_known():
    assert even(20, 5) == (1.0, 1.0)


def test_a_later_run_may_be_five_percent_off_even_where_steps_do_not_differ():
    run = prepare(draw(kernels="#" * 20, host=["l" + " " * 19], repeat=10, unit_us=100))
    graphs = graphs_of(run)
    assert range_of_later(graphs, simulate(graphs)) == (pytest.approx(0.95), pytest.approx(1.05))

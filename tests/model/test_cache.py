"""Is a result computed once for its place, its run and its arguments, and never shared with another?"""

from __future__ import annotations

from dataclasses import replace

from builders import draw

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.cache import once_per_place, once_per_run
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run

CALLS: list[tuple[str, int, int]] = []


@once_per_place
def scaled(place: Place, by: int = 1) -> int:
    CALLS.append(("place", place.rank, by))
    return place.window_ns * by


@once_per_run
def places(run: Run) -> int:
    CALLS.append(("run", 0, 0))
    return len(run.places)


def test_a_place_is_asked_once_for_each_argument_and_another_place_begins_empty():
    CALLS.clear()
    run = prepare(draw(kernels="####  ####"))
    (place,) = run.places
    assert scaled(place) == scaled(place) == place.window_ns
    assert scaled(place, 2) == scaled(place, by=2) == 2 * place.window_ns
    assert CALLS.count(("place", place.rank, 1)) == 1
    other = replace(place, window=place.compute)
    assert scaled(other) == other.window_ns != scaled(place)


def test_a_run_is_asked_once():
    CALLS.clear()
    run = prepare(draw(kernels="####  ####"))
    assert places(run) == places(run) == 1
    assert CALLS == [("run", 0, 0)]
    assert places(Run(run.timeline, ())) == 0

"""Is a result computed once for its place, its run and its arguments, and never shared with another?"""

from __future__ import annotations

import pickle

from builders import draw
from msgspec.structs import replace

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


def test_what_no_round_asks_for_is_dropped_and_computed_again(monkeypatch):
    CALLS.clear()
    run = prepare(draw(kernels="####  ####"))
    (place,) = run.places
    scaled(place), scaled(place, 2), places(run)
    run.several([lambda: None] * 3)
    assert scaled(place) == place.window_ns
    assert CALLS.count(("place", place.rank, 1)) == 1, "a short recording keeps all"
    monkeypatch.setattr("perfdoctor.model.run._LONG_ROWS", 0)
    CALLS.clear()

    def once() -> int:
        return scaled(place)

    run.several([lambda: scaled(place, 2), once, once, once, lambda: scaled(place, 2), lambda: places(run)])
    assert CALLS.count(("place", place.rank, 1)) == 1, "asked for by each"
    assert CALLS.count(("place", place.rank, 2)) == 2, "not asked for by two"
    run.several([lambda: places(run)])
    assert CALLS.count(("run", 0, 0)) == 2, "kept of the one before"


def test_a_result_that_came_from_elsewhere_is_never_dropped(monkeypatch):
    """A reduced place has results that its recording is no longer there for."""
    monkeypatch.setattr("perfdoctor.model.run._LONG_ROWS", 0)
    run = prepare(draw(kernels="####  ####"))
    (place,) = run.places
    place.kept[scaled.__wrapped__, ((), ())] = -1
    run.several([])
    assert scaled(place) == -1
    run.several([])
    assert scaled(place) == -1


def test_a_run_is_asked_once():
    CALLS.clear()
    run = prepare(draw(kernels="####  ####"))
    assert places(run) == places(run) == 1
    assert CALLS == [("run", 0, 0)]
    assert places(Run(run.timeline, ())) == 0


def test_what_was_given_is_sent_along_and_what_was_computed_is_computed_again():
    CALLS.clear()
    (place,) = prepare(draw(kernels="####  ####")).places
    place.kept[scaled.__wrapped__, ((), ())] = -1
    assert scaled(place, 2) == 2 * place.window_ns
    sent = pickle.loads(pickle.dumps(place))
    assert (len(place.kept), len(sent.kept)) == (2, 1)
    assert scaled(sent) == -1
    assert scaled(sent, 2) == 2 * place.window_ns
    assert CALLS.count(("place", place.rank, 2)) == 2

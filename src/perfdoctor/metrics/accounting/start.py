"""What did a program do once: before its first step, or in a recording that holds nothing but its start?

```
recording │ modules loaded │ model copied │ compiled │ step 0 │ step 1 │ step 2 │ …
          └────────────── before the first analysed step ──────────────┘          (steps 0 and 1 are warm-up)
```
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.behind_idle import Culprit, culprits, host_rows, host_rows_within
from perfdoctor.metrics.accounting.first_use import awaited_children, captures, compilations, initialisation
from perfdoctor.metrics.accounting.host_place import narrowed_to
from perfdoctor.metrics.accounting.idle_causes import ON_HOST
from perfdoctor.metrics.copies.transfers import before_work_begins, between_early_copies, exposed
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.steps import NO_STEPS
from perfdoctor.model.timeline import Frame
from perfdoctor.vocabulary.names import loaders as loader_names
from perfdoctor.vocabulary.names import python_code
from perfdoctor.vocabulary.names import torch as torch_names


class Once(Struct, frozen=True):
    """One kind of what a program does once. `what` is a clause: "code is compiled or tuned"."""

    what: str
    pieces: Callable[[Place], Intervals]


def _calls(place: Place) -> Frame:
    return host_rows(place, ("calls",))


def _os_calls(place: Place) -> Frame:
    return host_rows(place, ("os_calls",))


def _named(pattern: re.Pattern[str]) -> Callable[[Place], Intervals]:
    return lambda place: host_rows(place, ("ranges", "functions")).named(pattern).intervals & place.window


def _model(place: Place) -> Intervals:
    return exposed(place, before_work_begins(place)) | (between_early_copies(place) & place.idle_causes["compilation"])


def _cause(name: str) -> Callable[[Place], Intervals]:
    return lambda place: place.idle_causes[name]


def _compilation(part: Callable[[Place], Intervals]) -> Callable[[Place], Intervals]:
    return lambda place: part(place) & place.idle_causes["compilation"]


#: What is done once wherever it occurs. An instant belongs to the first kind that claims it.
ALWAYS_ONCE: Mapping[str, Once] = {
    "context": Once("CUDA is initialised", _compilation(lambda place: initialisation(_calls(place)))),
    "capture": Once("graphs are captured", _compilation(lambda place: captures(_calls(place)))),
    "compiling": Once(
        "code is compiled or tuned",
        _compilation(
            lambda place: _named(torch_names.COMPILATION)(place) | compilations(_os_calls(place), _calls(place))
        ),
    ),
    "model": Once("weights and data are copied to the GPU before the work begins", _model),
    "loading": Once("kernels and their modules are loaded", _cause("compilation")),
}
#: Initialising CUDA and loading kernels takes so much of the time where a recording holds the start of its program:
#: 40, 11 and 9 % of three of 1 to 4 kernels each, below 0.1 % of those that repeat.
_SHARE_OF_A_START = 0.05
#: What is, before the first step, a part of the program's start.
_BEFORE_STEPS: Mapping[str, Once] = {
    "weights": Once("weights are initialised or loaded", _named(torch_names.WEIGHTS)),
    "moves": Once("the model is moved to a device or type", _named(torch_names.MODEL_MOVES)),
    "workers": Once("the loader's workers are started", _named(loader_names.WORKERS_START)),
    "imports": Once("Python modules are imported", _named(python_code.IMPORT)),
    "allocator": Once("memory is allocated", _cause("allocator")),
    "files": Once("files are read or written", _cause("storage")),
    "batch": Once("the first batch is awaited", _cause("input_wait")),
    "ranks": Once("other ranks are awaited", _cause("peer_wait")),
    "children": Once(
        "other processes are started and awaited",
        lambda place: awaited_children(_os_calls(place), _calls(place)) & place.idle,
    ),
}
#: What else passes there; of warm-up steps, it is what comes in each step.
_REST: Mapping[str, Once] = {
    "work": Once("kernels, other copies and ops run", lambda place: place.window - place.idle),
    "host": Once("other host code runs", lambda place: place.idle),
}


def _claimed(place: Place, kinds: Mapping[str, Once]) -> dict[str, Intervals]:
    """When each of these kinds took place: disjoint."""
    found, taken = {}, Intervals.empty()
    for name, kind in kinds.items():
        found[name] = kind.pieces(place) - taken
        taken = taken | found[name]
    return found


@once_per_place
def always_once(place: Place) -> Mapping[str, Intervals]:
    """When the place did what is done once wherever it occurs, by kind."""
    return _claimed(place, ALWAYS_ONCE)


@once_per_place
def first_uses(place: Place) -> Intervals:
    """Idle time of the host that ends with the first kernel of its name, or the first copy of its direction.

    Empty where the recording does not hold the start of its program, or steps are known: then the first of its kind in
    the recording is not the first.
    """
    kinds = always_once(place)
    started_ns = kinds["context"].total_ns + kinds["loading"].total_ns
    if place.device is None or place.steps.used > 1 or place.share(started_ns) < _SHARE_OF_A_START:
        return Intervals.empty()
    starts, first = [], []
    for rows in (place.kernels, place.copies):
        order = np.argsort(rows.start_ns, kind="stable")
        _, rows_of_first = np.unique(rows.name.codes[order], return_index=True)
        is_first = np.zeros(order.size, dtype=bool)
        is_first[rows_of_first] = True
        starts.append(rows.start_ns[order])
        first.append(is_first)
    all_starts, is_first = np.concatenate(starts), np.concatenate(first)
    order = np.argsort(all_starts, kind="stable")
    by_host = Intervals.union(place.idle_causes[cause] for cause in ("host_work", "launch_bound", "unknown"))
    at = np.searchsorted(all_starts[order], place.idle.ends, side="left")
    ends_so = (at < order.size) & is_first[order][np.minimum(at, order.size - 1)]
    return by_host & Intervals(place.idle.starts[ends_so], place.idle.ends[ends_so])


#: What else comes once in a recording that holds the start of its program, and no steps.
_AT_START: Mapping[str, Once] = {"first": Once("work of a kind is asked for the first time", first_uses)}


def of_a_start(place: Place) -> Mapping[str, Intervals]:
    """When the place did what a program does once, by kind, in a recording without steps."""
    if not first_uses(place):
        return always_once(place)
    return _claimed(place, {**ALWAYS_ONCE, **_AT_START, "allocator": _BEFORE_STEPS["allocator"]})


@once_per_place
def start_kinds(place: Place) -> Mapping[str, Intervals]:
    """All of a place's window, which is a program's start, by kind: disjoint, together exactly the window."""
    return _claimed(place, {**ALWAYS_ONCE, **_BEFORE_STEPS, **_REST})


def once_kinds(place: Place) -> Mapping[str, Intervals]:
    """What of such a window comes once, warm-up steps or not: `start_kinds` without the rest."""
    return {name: pieces for name, pieces in start_kinds(place).items() if name not in _REST}


def united(kinds: Mapping[str, Intervals]) -> Intervals:
    """When any of these kinds took place."""
    return Intervals.union(kinds.values())


def what(kind: str) -> str:
    """The kind as a clause: "graphs are captured"."""
    return {**ALWAYS_ONCE, **_AT_START, **_BEFORE_STEPS, **_REST}[kind].what


def innermost(place: Place, pieces: Intervals) -> list[Culprit]:
    """What ran innermost on the host in these pieces, by name, the largest share first."""
    if not pieces:
        return []
    return culprits(pieces, host_rows_within(place, ON_HOST, int(pieces.starts[0]), int(pieces.ends[-1])))


def before_first_step(run: Run) -> Run | None:
    """The places from the first event of their rank to their first analysed step; None where there is no such time.

    Only of runs with steps of the program: what precedes the executions of a range says nothing.
    """
    if not run.whole_steps or run.selection.steps is not None:
        return None
    places = []
    for place in run.places:
        signals = (*ON_HOST, "kernels", "copies", "collectives")
        frames = (place.timeline[signal].of(rank=place.rank) for signal in signals)
        begin, end = min(int(rows.start_ns.min()) for rows in frames if len(rows)), int(place.window.starts[0])
        if begin >= end:
            return None
        places.append(narrowed_to(place, Intervals.single(begin, end), NO_STEPS))
    return Run(run.timeline, tuple(places), run.selection)

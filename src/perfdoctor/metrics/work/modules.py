"""What did each module of the model cost: forward and backward, by itself and with the modules inside it?

Work of a GPU belongs to the innermost module around its launch; on a run without a GPU the time of the training
thread's ops to the innermost module at that moment. A node of the backward pass is a row of the module that made it
(readers/kineto/modules.py). What was launched outside of modules is a row of its own, so that all sums are whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from perfdoctor.metrics import grouping
from perfdoctor.metrics.accounting.driving_threads import driving_threads
from perfdoctor.metrics.counters.kinds import measured
from perfdoctor.metrics.counters.rates import RATES
from perfdoctor.metrics.host.costs import host_window, rates_of_work
from perfdoctor.metrics.work.op_work import op_work
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.host_rows import Nested, nested_rows
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launches, launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Floats, Frame, Ints, Mask
from perfdoctor.records.work_done import ModuleCost

_QUANTITIES = ("calls", "forward_ns", "backward_ns", "model_flop", "exposed_communication_ns", "idle_ns")


def module_costs(run: Run, peak_flop_per_second: float | None) -> tuple[ModuleCost, ...]:
    """The costliest modules by themselves first, what is outside of modules last; () where no module was recorded.

    `peak_flop_per_second`: what the FLOP of a module are held against, on a GPU.
    """
    names = run.timeline["modules"].name
    if not len(names) or not run.places:
        return ()
    own = {name: _mean(run, [_of_place(place)[name] for place in run.places]) for name in _QUANTITIES}
    used = np.flatnonzero(np.sum(list(own.values()), axis=0)[:-1] > 0).tolist()
    paths = [names.values[code] for code in used]
    parents = _parents(paths)
    on_gpu = any(place.device is not None for place in run.places)
    whole = {name: values[used].astype(np.float64) for name, values in own.items()}
    # A longer path is never around a shorter one.
    for at in sorted(range(len(paths)), key=lambda at: len(paths[at]), reverse=True):
        if parents[at] != UNKNOWN:
            for values in whole.values():
                values[parents[at]] += values[at]
    classes = _classes(run.timeline["modules"])
    peak = peak_flop_per_second if on_gpu else None
    costs = []
    for at, (path, code) in enumerate(zip(paths, used, strict=True)):
        depth, around = 0, parents[at]
        while around != UNKNOWN:
            depth, around = depth + 1, parents[around]
        by_itself = {name: values[code] for name, values in own.items()}
        with_inner = {name: values[at] for name, values in whole.items()}
        costs.append(_cost(path, classes[code], depth, by_itself, with_inner, peak))
    outside = {name: values[-1] for name, values in own.items()}
    costs.sort(key=lambda cost: (-cost.own_ns, cost.path))
    return (*costs, _cost("", "", 0, outside, outside, peak))


def module_rates(run: Run, paths: Sequence[str]) -> Mapping[str, Floats]:
    """By each of RATES, what the GPU's counters saw of the kernels that each module launches by itself, weighted by
    their time, an element a path; NaN where it is not known. "" is outside of modules. {} where nothing is known.
    """
    each = [_rates(place) for place in run.places if measured(place, "name")]
    if not each:
        return {}
    of_path = {name: code for code, name in enumerate(run.timeline["modules"].name.values)}
    codes = [of_path.get(path, len(of_path)) for path in paths]
    summed = {name: np.sum([of_place[name] for of_place in each], axis=0) for name in RATES}
    return {name: grouping.ratio(*rates)[codes] for name, rates in summed.items()}


@once_per_place
def _rates(place: Place) -> dict[str, Floats]:
    """By each of RATES two rows, an element a path and one for what is outside: rate × ns, and ns where it is known."""
    modules, ns = _Modules.of(place), place.window.overlap_ns(place.work.start_ns, place.work.end_ns)
    row, found = launches(place).inside(modules.rows), {}
    for name in RATES:
        rates = rates_of_work(place, name)
        known = ~np.isnan(rates)
        weighed, whole = (modules.sums(row[known], each[known]) for each in (rates * ns, ns))
        found[name] = np.stack((weighed, whole))
    return found


def _parents(paths: Sequence[str]) -> list[int]:
    """For each path the place of the longest other path that it begins with, the module around; UNKNOWN for none."""
    places = {path: at for at, path in enumerate(paths)}
    found = []
    for path in paths:
        around = path.rpartition(".")[0]
        while around and around not in places:
            around = around.rpartition(".")[0]
        found.append(places.get(around, UNKNOWN) if around else UNKNOWN)
    return found


def _mean(run: Run, each: list[Floats]) -> Floats:
    """The mean of the places' values a step and rank; a rank's several devices are summed."""
    ranks = len({place.rank for place in run.places})
    weights = run.stands_for or (1,) * len(run.places)
    per_step = [values / place.units * weight for values, place, weight in zip(each, run.places, weights, strict=True)]
    whole = sum(weights) * ranks / len(run.places)
    mean: Floats = np.sum(per_step, axis=0) / whole
    return mean


def _cost(
    path: str, module_class: str, depth: int, own: dict[str, Any], whole: dict[str, Any], peak: float | None
) -> ModuleCost:
    ns = float(whole["forward_ns"] + whole["backward_ns"])
    known = peak and ns > 0 and whole["model_flop"] > 0
    return ModuleCost(
        path,
        module_class,
        depth,
        calls=float(own["calls"]),
        peak_share=float(whole["model_flop"]) / (peak * ns / 1e9) if peak and known else None,
        **{f"own_{name}": float(own[name]) for name in _QUANTITIES[1:]},
        **{name: float(whole[name]) for name in _QUANTITIES[1:]},
    )


def _classes(modules: Frame) -> list[str]:
    """The class of each path, by the number of its text; of several the last one."""
    classes, found = modules.text("module_class"), [""] * len(modules.name.values)
    pairs = np.unique(np.stack((modules.name.codes, classes.codes)), axis=1)
    for path, code in pairs.T.tolist():
        found[path] = classes.values[code]
    return found


# --- one place -------------------------------------------------------------------------------------------------------


class _Modules(Struct, frozen=True):
    """The modules' rows of one rank. `code`: of each row its path; one more stands for what is outside."""

    rows: Nested
    code: Ints
    in_backward: Mask
    outside: int

    @classmethod
    def of(cls, place: Place) -> _Modules:
        rows = nested_rows(place.timeline, place.rank, "modules")
        is_backward = rows.rows["is_backward"].astype(bool)
        return cls(
            rows,
            rows.rows.name.codes.astype(np.int64),
            rows.outermost_of(is_backward) != UNKNOWN,
            len(place.timeline["modules"].name.values),
        )

    def sums(self, row: Ints, values: Any) -> Floats:
        """The values by path of their rows; those of UNKNOWN rows are outside."""
        return grouping.sums(np.append(self.code, self.outside)[row], values, self.outside + 1)


@once_per_place
def _of_place(place: Place) -> dict[str, Floats]:
    """By quantity: of each path, and of what is outside, in the whole window."""
    modules = _Modules.of(place)
    frame = modules.rows.rows
    called = host_window(place).overlap_ns(frame.start_ns, frame.start_ns + 1) > 0
    calls = np.flatnonzero(called & ~modules.in_backward)
    work = op_work(place)
    counted = work.known & ~work.again
    ops = work.ops.take(counted)
    around_op = modules.rows.innermost(ops.start_ns, ops["process"], ops["thread"])
    forward, backward = _time(place, modules) if place.device is not None else _op_time(place, modules)
    return {
        "calls": modules.sums(calls, np.ones(calls.size)),
        "forward_ns": forward,
        "backward_ns": backward,
        "model_flop": modules.sums(around_op, work.model_flop[counted]),
        "exposed_communication_ns": _exposed(place, modules),
        "idle_ns": _inside(place, modules, place.idle),
    }


def _time(place: Place, modules: _Modules) -> tuple[Floats, Floats]:
    """Ns of everything that ran on the device inside the window, forward and backward; what overlaps counts in full."""
    ns = place.window.overlap_ns(place.work.start_ns, place.work.end_ns)
    row = launches(place).inside(modules.rows)
    later = np.append(modules.in_backward, False)[row]
    return modules.sums(row[~later], ns[~later]), modules.sums(row[later], ns[later])


def _op_time(place: Place, modules: _Modules) -> tuple[Floats, Floats]:
    """Ns of the training thread's ops inside the window, forward and backward."""
    ns, outside = _inside_rows(place, modules, place.compute)
    rows, later = np.arange(ns.size), modules.in_backward
    forward = modules.sums(rows[~later], ns[~later])
    forward[modules.outside] += outside
    return forward, modules.sums(rows[later], ns[later])


def _exposed(place: Place, modules: _Modules) -> Floats:
    """Exposed ns of collectives; where several run at the same time, the moment belongs to the one that began first."""
    if place.device is None:
        return _inside(place, modules, place.exposed_communication)
    rows = place.collectives
    reach = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, rows.end_ns))[:-1]
    first = np.maximum(rows.start_ns, reach)
    ns = place.exposed_communication.overlap_ns(first, np.maximum(rows.end_ns, first))
    return modules.sums(launches_of(place, "collectives").inside(modules.rows), ns)


def _inside(place: Place, modules: _Modules, pieces: Intervals) -> Floats:
    """Ns of the pieces in which each path was the innermost."""
    ns, outside = _inside_rows(place, modules, pieces)
    found = modules.sums(np.arange(ns.size), ns)
    found[modules.outside] += outside
    return found


def _inside_rows(place: Place, modules: _Modules, pieces: Intervals) -> tuple[Ints, int]:
    """How much of the pieces each row was the innermost, and how much was in none. Several threads share no moment."""
    frame, left = modules.rows.rows, pieces
    driving = driving_threads(place.timeline, place.rank)
    inside = np.zeros(len(frame), np.int64)
    for (_, thread), rows in modules.rows.threads.items():
        if thread in driving:
            inside[rows] = left.overlap_ns(frame.start_ns[rows], frame.end_ns[rows])
            left = left - Intervals.of(frame.start_ns[rows], frame.end_ns[rows])
    return modules.rows.own(inside), left.total_ns

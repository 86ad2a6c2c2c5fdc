"""What are the numbers of a run for: its steps, the executions of a range, or all that was recorded?"""

from __future__ import annotations

from msgspec.structs import replace

from perfdoctor.metrics.framework import may_be_torch
from perfdoctor.metrics.kind_of_work import kind_of_work
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.vocabulary.basis import EXECUTION, ITERATION, RECORDING, STEP, Basis


def basis_of(run: Run) -> Basis:
    """The unit by which quantities are divided, what it is called, and whether the program answers requests."""
    serves = kind_of_work(run.timeline).kind == "inference"
    unit = _unit_of(run.places[0]) if run.per_step else RECORDING
    return replace(unit, serves=serves, computes=not (serves or may_be_torch(run.timeline)))


def _unit_of(place: Place) -> Basis:
    """The unit of a place's steps. A server's iteration is called so, unless the user called it a step."""
    if place.steps.lengths_ns is not None:
        return EXECUTION
    serves = kind_of_work(place.timeline).kind == "inference"
    return ITERATION if serves and place.steps.found_by != "profiler-step" else STEP


def noun_of(place: Place) -> str:
    """What one of the place's steps is called: `step`, `iteration` or `execution`."""
    return _unit_of(place).noun

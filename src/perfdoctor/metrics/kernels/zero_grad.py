"""What does setting gradients to zero cost? What `zero_grad` launches, and the backward pass adding to the zeros."""

from __future__ import annotations

from perfdoctor.model.host_rows import named
from perfdoctor.model.launches import Launches, launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Mask
from perfdoctor.vocabulary.names import torch as torch_names


def filled_by_zero_grad(launched: Launches) -> Mask:
    """One bool a launch: was it made inside a range or function of that name?"""
    return launched.while_open(torch_names.ZERO_GRAD, "ranges", "ops", "functions")


def added_to_gradients(place: Place) -> Mask:
    """One bool a row of `place.kernels`: does it add a new gradient to the one that is stored?"""
    kernels, names = launches_of(place, "kernels"), (torch_names.STORES_GRADIENT, torch_names.ADDS_IN_PLACE)
    storing, adding = (kernels.inside_of("ops", named(place.timeline, "ops", name)) for name in names)
    rows: Mask = storing & adding
    return rows

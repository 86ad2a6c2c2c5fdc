"""What does setting gradients to zero cost? What `zero_grad` launches, and the backward pass adding to the zeros."""

from __future__ import annotations

import re

from perfdoctor.model.host_rows import named
from perfdoctor.model.launches import Launches, launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Mask

_ZERO_GRAD = re.compile(r"\bzero_grad\b", re.IGNORECASE)
#: The node that stores a parameter's gradient, and the op by which it adds to one that is there.
_STORES = re.compile(r"^(autograd::engine::evaluate_function: )?torch::autograd::AccumulateGrad$")
_ADDS = re.compile(r"^aten::add_$")


def filled_by_zero_grad(launched: Launches) -> Mask:
    """One bool a launch: was it made inside a range or function of that name?"""
    return launched.while_open(_ZERO_GRAD, "ranges", "ops", "functions")


def added_to_gradients(place: Place) -> Mask:
    """One bool a row of `place.kernels`: does it add a new gradient to the one that is stored?"""
    kernels = launches_of(place, "kernels")
    storing, adding = (kernels.inside_of("ops", named(place.timeline, "ops", names)) for names in (_STORES, _ADDS))
    rows: Mask = storing & adding
    return rows

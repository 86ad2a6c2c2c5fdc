"""In which phase of a step was work of the device launched: forward, backward, or the update of the parameters?"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.columns import Ints
from perfdoctor.model.host_rows import named
from perfdoctor.model.launches import Launches
from perfdoctor.model.place import Place
from perfdoctor.vocabulary.names import torch as torch_names

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
#: "": not known.
PHASES = ("", FORWARD, BACKWARD, OPTIMIZER)


def phase_of(place: Place, launched: Launches) -> Ints:
    """The phase of the step in which each row was launched, as a position in PHASES; 0 where none was recorded."""
    timeline = place.timeline
    backward = launched.inside_of("ops", named(timeline, "ops", torch_names.AUTOGRAD_NODE))
    updating = np.zeros(launched.rows.size, dtype=bool)
    for signal in ("ops", "ranges"):  # on the thread that launched: a loader's copies are no update
        if len(timeline[signal]):
            updating |= launched.inside_of(signal, named(timeline, signal, torch_names.OPTIMIZER_RANGE))
    backward |= launched.while_open(torch_names.BACKWARD, "ranges")
    rest = 1 if backward.any() else 0  # what is no backward pass is known only where one was seen
    phase: Ints = np.where(updating, 3, np.where(backward, 2, rest)).astype(np.int64)
    return np.where(launched.known, phase, 0)

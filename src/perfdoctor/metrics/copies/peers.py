"""How long does a GPU stand still while GPUs of its process copy from one another?"""

from __future__ import annotations

from perfdoctor.metrics.copies.transfers import copies_of, exposed_ns
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run


def stood_ns(run: Run, place: Place) -> int:
    """During its own copies to other GPUs, and while another device of its process made one, in ns of the window."""
    return exposed_ns(place, copies_of(place, "p2p")) + _waiting_for(run, place).total_ns


def _waiting_for(run: Run, place: Place) -> Intervals:
    """When this device stood still while another one of its process copied to a GPU.

    Such a copy is recorded on the device in whose stream it runs. The other one waits as well, and has no row of it.
    """
    copied = Intervals.empty()
    for other in run.places:
        if other.rank == place.rank and other.device != place.device:
            rows = copies_of(other, "p2p")
            copied = copied | Intervals.of(other.copies.start_ns[rows], other.copies.end_ns[rows])
    return copied & place.idle

"""Idle behind a loop over many tensors: the shape of findings about Python that handles tensors one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfdoctor.detectors.of_idle import Idle, of_idle
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.host.tensor_loops import TensorLoop, idle_behind, inside, spans_of
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask

Loops = Callable[[Place], list[TensorLoop]]


class IdleInLoops(Idle, frozen=True):
    """Idle because the host was going through these loops. `loops`: those of each place."""

    loops: Loops

    @property
    def of_worst(self) -> list[TensorLoop]:
        """The loops in the window of the place that loses most; at least one."""
        return inside(self.worst, self.loops(self.worst))

    @property
    def work(self) -> Mapping[tuple[int, int], Mask]:
        """The kernels that these loops launch, as a finding names them."""
        return work_of(self.run, lambda place: launches_of(place, "kernels").within(spans_of(self.loops(place))))


def of_loops(run: Run, loops: Loops, least_share: float) -> IdleInLoops | None:
    """What these loops cost in idle time that is launch-bound; None where it is less than this share of the step."""
    chosen = once_per_place(loops)
    found = of_idle(run, least_share, lambda place: idle_behind(place, chosen(place)))
    return IdleInLoops(run, found.ns, found.share, found.worst, found.pieces, chosen) if found else None

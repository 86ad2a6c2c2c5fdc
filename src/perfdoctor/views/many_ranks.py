"""How are thousands of ranks shown? By node and rail, and those alone that stand out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from perfdoctor.metrics.communication.nodes import first_ranks
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.program import basis_of
from perfdoctor.model.columns import Floats, Ints
from perfdoctor.model.run import Run
from perfdoctor.records.views import Heat
from perfdoctor.views.tables import ALIKE

#: Fewer have a row each.
FEW = 64
#: Of more so many are shown beside those that were read in full.
_MOST_STANDING_OUT = 24
#: More rows would be thinner than a pixel: then a row stands for several nodes.
_MOST_ROWS = 320


def standing_out(run: Run) -> Run:
    """The places that tables show: all of few; of many those read in full, and those whose own work differs most."""
    places = run.job.places
    if run.summaries is None and len(places) <= FEW:
        return run
    if len(places) <= FEW:
        return replace(run, places=places, stands_for=())
    own = _own_work_ns(run)
    most = np.argsort(-np.abs(own - np.median(own)), kind="stable")[:_MOST_STANDING_OUT].tolist()
    in_full = {place.rank_and_device for place in run.places}
    chosen = [number for number, place in enumerate(places) if number in most or place.rank_and_device in in_full]
    return replace(run, places=tuple(places[number] for number in chosen), stands_for=())


def by_node(run: Run) -> Iterator[Heat]:
    """Maps of the own work and the waiting time of the ranks, a row a node and a column a rail."""
    places = run.job.places
    first = first_ranks(places) if len(places) > FEW else None
    if first is None:
        return
    devices = np.array([place.device or 0 for place in places], np.int64)
    step = basis_of(run).noun or "recording"
    title = f"Own work of each rank, a {step}"
    yield _map("nodes-work", title, "Compute, copies and idle time", _own_work_ns(run), first, devices)
    if (matched := skew(run.job)) is not None:
        waits = dict(zip(matched.ranks, matched.waiting_ns.tolist(), strict=True))
        waited = np.array([waits.get(place.rank, np.nan) / place.units for place in places])
        title = f"Waiting in collectives of each rank, a {step}"
        yield _map("nodes-waits", title, "Waiting for the last rank", waited, first, devices)


def _own_work_ns(run: Run) -> Floats:
    """Step time of each place without the communication that no compute hides."""
    return np.array(
        [(place.window_ns - place.exposed_communication.total_ns) / place.units for place in run.job.places]
    )


def _map(id_: str, title: str, what: str, values: Floats, first: Ints, devices: Ints) -> Heat:
    """Draw `values`, one a rank, by node (`first`) and rail (`devices`). A row of several nodes shows the largest."""
    nodes, of_node = np.unique(first, return_inverse=True)
    cells = np.full((nodes.size, int(devices.max()) + 1), np.nan)
    cells[of_node, devices] = values
    together = -(-nodes.size // _MOST_ROWS)
    rows = np.fmax.reduceat(cells, np.arange(0, nodes.size, together), axis=0)
    of_rows = [nodes[at : at + together].tolist() for at in range(0, nodes.size, together)]
    names = tuple(
        f"node of rank {each[0]}" if len(each) == 1 else f"nodes of ranks {each[0]} to {each[-1]}" for each in of_rows
    )
    highest = int(np.nanargmax(values))
    median = float(np.nanmedian(values))
    alike = float(values[highest]) - median < ALIKE * max(median, 1.0)
    said = f"{what}: most on rank {{rank}}, {{most}}; the median is {{median}}."
    said = f"{what} hardly differs between the ranks." if alike else said
    said += f" A row is the largest of {together} nodes." if together > 1 else ""
    return Heat(
        "ranks", id_, title, said, names, tuple(f"rail {rail}" for rail in range(cells.shape[1])), rows, "ns",
        {"rank": (float(first[highest] + devices[highest]), "count"), "most": (float(values[highest]), "ns"),
         "median": (median, "ns")},
    )  # fmt: skip

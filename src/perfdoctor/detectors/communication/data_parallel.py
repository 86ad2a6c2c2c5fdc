"""One process drives several GPUs with torch.nn.DataParallel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.metrics.communication.hideable import backward_ns, last_bucket_ns, left_ns, taken
from perfdoctor.metrics.copies.transfers import stood_ns
from perfdoctor.metrics.machine.several_devices import Team, is_data_parallel, teams
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.names import torch as torch_names


class _PlaceCost(Struct, frozen=True):
    """Time that the busiest GPU loses, in ns a step.

    `sent_ns`: sending the model and adding up gradients, with nothing beside; `hidden_ns`: what of it DDP runs beside
    compute; `copies_ns`: copies of batch and outputs; `extra_ns`: compute beyond its share.
    """

    sent_ns: int
    hidden_ns: int
    copies_ns: int
    extra_ns: int


def _cost(run: Run, team: Team, at: Mapping[str, float]) -> _PlaceCost:
    """What the busiest GPU loses against DDP, where each process loads its own batch and computes its own loss.

    DDP's all-reduce is a reduction and a broadcast, takes as long as both together, and runs beside the backward pass.
    """
    place = team.busiest
    sent_ns = place.exposed_communication.total_ns
    rows = np.ones(len(place.collectives), dtype=bool)
    hidden_ns, extra_ns = 0.0, 0
    if sent_ns:
        last_ns = last_bucket_ns(place, rows, sent_ns)
        hidden_ns = sent_ns - left_ns(sent_ns, last_ns, backward_ns(place, at["backward_share"]))
    if place.share(place.compute.total_ns) >= at["min_critical_share"]:
        # Without the update, which every process does for itself.
        update_ns = _update_ns(place) - sum(map(_update_ns, team.places)) // len(team.places)
        extra_ns = max(team.extra_ns - update_ns, 0)
    sent_ns, copies_ns = place.per_step(sent_ns), place.per_step(stood_ns(run, place))
    return _PlaceCost(sent_ns, place.per_step(int(hidden_ns)), copies_ns, extra_ns)


def _update_ns(place: Place) -> int:
    launched = launches_of(place, "kernels").while_open(torch_names.OPTIMIZER_RANGE, "ranges", "ops")
    return place.per_step(int(place.kernel_ns[launched].sum()))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the cost of what DDP avoids or hides: copies of the model, gathered outputs, the loss on the first GPU."""
    marked = [team for team in teams(run, at["min_part_of_busiest"]) if is_data_parallel(run, team.rank)]
    if not marked:
        return
    team = max(marked, key=lambda each: each.extra_ns)
    cost, beside = _cost(run, team, at), taken(run)
    others_ns = cost.copies_ns + cost.extra_ns
    step_ns = team.busiest.per_step(team.busiest.window_ns)
    idle_ns = sum(place.per_step(place.idle.total_ns) for place in team.places) // len(team.places)
    are_of_peers = stood_ns(run, team.busiest) >= MOST_OF_IT * team.busiest.exposed_copies.total_ns
    yield Finding(
        rule="data-parallel",
        saving_ns_per_step=Saving(0, int(beside.won(cost.hidden_ns)) + others_ns, cost.sent_ns + others_ns),
        confidence="high",
        values={
            "devices": len(team.places),
            "idle_percent": percent(idle_ns / step_ns) if step_ns else 0.0,
            "extra_ms": ms(team.extra_ns),
            "own_extra_ms": ms(cost.extra_ns),
            "sent_ms": ms(cost.sent_ns),
            "hidden_ms": ms(cost.hidden_ns),
            "copies_ms": ms(cost.copies_ns),
            "taken_share": beside.likely,
        },
        sources={"taken_share": beside.source},
        evidence=(
            Measure("GPUs that one process drives", len(team.places), "count"),
            Measure("compute a step, on the mean of them", team.mean_ns, "ns"),
            Measure("what the busiest computes beyond that", team.extra_ns, "ns"),
            Measure("broadcasts and reductions that it waits for", cost.sent_ns, "ns"),
            Measure("copies between GPUs that it waits for", cost.copies_ns, "ns"),
            Measure("idle a step, on the mean of them", idle_ns, "ns"),
        ),
        explains=("exposed-communication", "peer-copies", *(["exposed-copies"] if are_of_peers else [])),
    )

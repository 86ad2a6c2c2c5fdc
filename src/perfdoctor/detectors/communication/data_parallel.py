"""One process drives several GPUs with torch.nn.DataParallel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.metrics.communication.hideable import Taken, backward_ns, last_bucket_ns, left_ns, taken
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
    """What the GPU that is waited for loses a step, in ns.

    The model sent out and gradients added up with nothing beside (`hidden_ns`: what of it DDP runs beside compute),
    copies of batch and outputs, and compute beyond its share.
    """

    sent_ns: int
    hidden_ns: int
    copies_ns: int
    extra_ns: int

    def saving(self, beside: Taken) -> Saving:
        others_ns = self.copies_ns + self.extra_ns
        return Saving(0, int(beside.won(self.hidden_ns)) + others_ns, self.sent_ns + others_ns)


def _cost(run: Run, team: Team, at: Mapping[str, float]) -> _PlaceCost:
    """On the busiest GPU. With a process for each nothing is scattered or gathered, and each has its share of the loss.

    DDP's all-reduce is a reduction and a broadcast, and takes as long as both together; beside the backward pass.
    """
    place = team.busiest
    sent_ns = place.exposed_communication.total_ns
    rows = np.ones(len(place.collectives), dtype=bool)
    left = (
        left_ns(sent_ns, last_bucket_ns(place, rows, sent_ns), backward_ns(place, at["backward_share"]))
        if sent_ns
        else 0
    )
    critical = place.share(place.compute.total_ns) >= at["min_critical_share"]
    return _PlaceCost(
        place.per_step(sent_ns),
        place.per_step(int(sent_ns - left)),
        place.per_step(stood_ns(run, place)),
        _own_extra_ns(team) if critical else 0,
    )


def _own_extra_ns(team: Team) -> int:
    """What the busiest computes beyond the mean, without the update, which every process does for itself."""
    return max(team.extra_ns - _update_ns(team.busiest) + sum(map(_update_ns, team.places)) // len(team.places), 0)


def _update_ns(place: Place) -> int:
    launched = launches_of(place, "kernels").while_open(torch_names.OPTIMIZER_RANGE, "ranges", "ops")
    return place.per_step(int(place.kernel_ns[launched].sum()))


def _explained(run: Run, team: Team) -> tuple[str, ...]:
    """What goes with it: its copies, and all exposed copies if most of them are between GPUs."""
    place = team.busiest
    of_peers = stood_ns(run, place) >= MOST_OF_IT * place.exposed_copies.total_ns
    return ("exposed-communication", "peer-copies", *(["exposed-copies"] if of_peers else []))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """What the model's copies, the gathered outputs and the loss on the first GPU cost, DDP does without or beside."""
    marked = [team for team in teams(run, at["min_part_of_busiest"]) if is_data_parallel(run, team.rank)]
    if not marked:
        return
    team = max(marked, key=lambda each: each.extra_ns)
    cost, beside = _cost(run, team, at), taken(run)
    step_ns = team.busiest.per_step(team.busiest.window_ns)
    idle_ns = sum(place.per_step(place.idle.total_ns) for place in team.places) // len(team.places)
    yield Finding(
        rule="data-parallel",
        saving_ns_per_step=cost.saving(beside),
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
        explains=_explained(run, team),
    )

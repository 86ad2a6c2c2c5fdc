"""Stages of a pipeline wait for each other's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.detectors.of_work import of_collectives
from perfdoctor.detectors.saved_shares import half_certain, shares
from perfdoctor.metrics.accounting.longest import longest_exposed
from perfdoctor.metrics.communication.collectives import exposed_rows_ns, proven_messages
from perfdoctor.metrics.communication.messages import messages, pipelines
from perfdoctor.metrics.communication.pipeline import schedule
from perfdoctor.metrics.units import ms, percent
from perfdoctor.metrics.work.op_work import flop_per_step
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.replay.job.late import uneven_stages
from perfdoctor.replay.job.of_run import communicating

_MOST_ROWS = 16
#: The first and the last stage send one message and receive one for each micro-batch, those between them twice as many.
_OF_A_MICRO_BATCH = 2


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find exposed sends and receives, on the mean of the recorded stages: waiting for another stage is the bubble."""
    found = of_collectives(run, proven_messages, 1.0, at["min_share_of_step"], of_job=True)
    if found is None or found.per_step < at["min_messages_per_step"]:
        return
    columns = ("rank", "compute", "exposed sends and receives")
    waits_ns = [(place, exposed_rows_ns(place, proven_messages(place))) for place in run.places[:_MOST_ROWS]]
    stages = tuple((each.rank, each.per_step(each.compute.total_ns), each.per_step(ns)) for each, ns in waits_ns)
    uneven, order = _uneven(run, at), schedule(run)
    exposed_ns = run.job.mean(lambda place: place.exposed_communication.total_ns)
    is_most = len(run.job.places) > 1 and found.ns >= MOST_OF_IT * exposed_ns
    finding = found.finding(
        rule="pipeline-bubbles",
        saving=(
            half_certain(uneven.won_ns, max(found.ns, int(uneven.more_ns)))
            if uneven
            else shares(at, "won_share").of(found.ns)
        ),
        confidence="high" if len(run.job.places) > 1 else "medium",
        values={
            "messages_per_step": found.per_step,
            **found.time_values("exposed"),
            "schedule": order.name or "in an order that so few do not show" if order else "",
            "stages": order.stages if order else 0,
            "batches": order.micro_batches if order else 0,
            "bubble_percent": percent(order.bubble_share) if order else 0.0,
            "unmatched": 0 if len(run.job.places) < 2 or messages(run.job.places) else len(run.job.places),
            **(
                {
                    "heavy_rank": uneven.heavy.rank,
                    "heavy_ms": ms(uneven.heavy_ns),
                    "light_rank": uneven.light.rank,
                    "light_ms": ms(uneven.light_ns),
                    "mean_ms": ms(uneven.mean_ns),
                    "moved_percent": percent(uneven.more_ns / uneven.heavy_ns),
                    "micro_batches": uneven.micro_batches,
                    "even_ms": ms(uneven.won_ns),
                }
                if uneven
                else {}
            ),
        },
        evidence=(
            Measure("exposed sends and receives", found.ns, "ns"),
            Rows("Waiting by stage, a step", columns, ("count", "ns", "ns"), stages),
            *longest_exposed(run, "collectives", proven_messages),
        ),
        situation="uneven" if uneven else "",
        formula="replayed" if uneven and uneven.replayed_ns is not None else "",
        explains=("exposed-communication",) if is_most else (),
    )
    yield replace(finding, by_all_ranks=uneven is not None and uneven.replayed_ns is not None)


class _Uneven(Struct, frozen=True):
    """The stages that compute longest and shortest, and the mean of all ranks, in ns a step."""

    heavy: Place
    heavy_ns: float
    light: Place
    light_ns: float
    mean_ns: float
    micro_batches: float
    #: What even stages save by a replay of all ranks; None where their messages are not known.
    replayed_ns: float | None = None

    @property
    def more_ns(self) -> float:
        return self.heavy_ns - self.mean_ns

    @property
    def won_ns(self) -> int:
        """What even stages save: a step is the first micro-batch through all stages, whose sum stays, and then all
        others at the pace of the slowest stage. A replay knows the schedule.
        """
        if self.replayed_ns is not None:
            return int(self.replayed_ns)
        return int(self.more_ns * (1 - 1 / self.micro_batches))


def _uneven(run: Run, at: Mapping[str, float]) -> _Uneven | None:
    """The uneven stages; None where evening them saves too little, or the heaviest has no more work than others."""
    places = [place for place in run.places if proven_messages(place).any()]
    if len(places) < 2 or len(places) < len(run.job.places):
        return None
    compute = np.array([place.compute.total_ns / place.units for place in places])
    count = min(np.count_nonzero(proven_messages(place)) / place.units for place in places) / _OF_A_MICRO_BATCH
    heavy, replayed_ns = _heaviest(run, places, compute)
    light = int(compute.argmin())
    found = _Uneven(
        places[heavy],
        compute[heavy],
        places[light],
        compute[light],
        float(compute.mean()),
        max(count, 1.0),
        replayed_ns,
    )
    flop = np.array([flop_per_step(place) for place in places])
    if not np.isnan(flop).any():
        more_flop = flop[heavy] / flop.mean() - 1
        if more_flop < at["uneven_work_share"] * found.more_ns / found.mean_ns:
            return None
    return found if found.won_ns >= at["min_uneven_share"] * run.step_ns else None


def _heaviest(run: Run, places: Sequence[Place], compute_ns: Floats) -> tuple[int, float | None]:
    """Which of the places computes longest in the stage whose work makes the step long, and what even stages save."""
    found = uneven_stages(run)
    if found is None or len(places) < len(communicating(run)):
        return int(compute_ns.argmax()), None
    stage = int(found.owners[found.saved_ns.argmax()])
    in_it = np.flatnonzero(pipelines(places) == stage)
    return int(in_it[compute_ns[in_it].argmax()]), found.step_ns - found.ideal_ns

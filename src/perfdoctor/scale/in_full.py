"""Which ranks of a large job are read in full? Those that findings speak of, and one that stands for all others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from perfdoctor.metrics.communication.collectives import exposed_rows_ns, proven_messages
from perfdoctor.metrics.communication.lateness import own_lateness_ns
from perfdoctor.metrics.communication.link_baseline import slow_groups
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.kernels.same_kernels import same_kernels
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Job
from perfdoctor.records.memory import MemoryUse
from perfdoctor.vocabulary.parts import IDLE_PARTS
from perfdoctor.vocabulary.rulebook import load_rules

TYPICAL = "typical"
#: A smaller part of the step is no finding (`affected-time` in vocabulary/thresholds.toml).
_NOTABLE = 0.03


def ranks_in_full(job: Job[JobPlace], memory: Sequence[MemoryUse], alone: Collection[int] = ()) -> Mapping[int, str]:
    """What each rank is that is read in full, by number: why it stands out, or TYPICAL for the one that does not.

    `alone`: ranks of which there is a summary alone. They are none of them; nobody is, where all are such.
    """
    chosen: dict[int, str] = {}
    # where all were recorded for their memory alone there are no places
    asked = (_of_collectives, _of_devices, _of_stages, _of_groups, _of_idle) if job.places else ()
    for rank, what in (*(each for of_job in asked for each in of_job(job)), *_of_memory(memory)):
        chosen.setdefault(rank, what)
    chosen = {rank: what for rank, what in chosen.items() if rank not in alone}
    if any(place.rank not in alone for place in job.places):
        chosen.setdefault(_typical(job, set(chosen), alone), TYPICAL)
    return chosen


def _of_collectives(job: Job[JobPlace]) -> list[tuple[int, str]]:
    matched = skew(job)
    if matched is None or not matched.took_ns.sum():
        return []
    places = [place for place in job.places if len(place.collectives)]
    own = own_lateness_ns(places, matched)
    latest = int(np.lexsort((matched.waiting_ns, -own))[0])
    earliest = int(np.lexsort((own, -matched.waiting_ns))[0])
    return [(matched.ranks[latest], "latest"), (matched.ranks[earliest], "waits longest")]


def _of_stages(job: Job[JobPlace]) -> list[tuple[int, str]]:
    """The stage of a pipeline that waits longest for messages of others, if that is notable."""
    waits = [(place.share(exposed_rows_ns(place, proven_messages(place))), place.rank) for place in job.places]
    longest, rank = max(waits, key=lambda each: each[0])
    return [(rank, "waits longest for messages")] if longest >= _NOTABLE else []


def _of_devices(job: Job[JobPlace]) -> list[tuple[int, str]]:
    same = same_kernels(job, 0)
    return [(same.places[int(same.slowdown.argmax())].rank, "slowest kernels")] if same else []


def _of_groups(job: Job[JobPlace]) -> list[tuple[int, str]]:
    """One rank of the group whose links are slowest."""
    at = load_rules()["slow-links"].at
    slow = slow_groups(
        job,
        at["large_message_bytes"],
        at["message_bytes_of_pairs"],
        at["fewest_other_groups"],
        at["min_share_of_others"],
    )
    return [(slow[0].own.members[0], "slowest links")] if slow else []


def _of_idle(job: Job[JobPlace]) -> list[tuple[int, str]]:
    """The rank with most idle time of each cause that takes a notable part of its step."""
    found = []
    for cause, part in IDLE_PARTS.items():
        worst = job.worst(lambda place, cause=cause: place.idle_ns(cause))  # type: ignore[misc]
        if worst.share(worst.idle_ns(cause)) >= _NOTABLE:
            found.append((worst.rank, f"most {part.label}"))
    return found


def _of_memory(memory: Sequence[MemoryUse]) -> list[tuple[int, str]]:
    fullest = max(memory, key=lambda use: use.most_reserved_bytes, default=None)
    return [(fullest.rank, "most memory")] if fullest else []


def _typical(job: Job[JobPlace], but: set[int], alone: Collection[int]) -> int:
    """The rank, not among `but` or `alone`, whose parts of the step are nearest to the medians of all ranks, in sum."""
    places = [place for place in job.places if place.rank not in but] or list(job.places)
    if all(place.rank in alone for place in places):
        places = list(job.places)
    shares = np.array([[place.share(pieces.total_ns) for pieces in place.parts.values()] for place in places])
    apart = np.abs(shares - np.median(shares, axis=0)).sum(axis=1)
    apart[[place.rank in alone for place in places]] = np.inf
    return places[int(apart.argmin())].rank

"""What are the ranks and the parts of a step called on the pages?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfdoctor.metrics.breakdown import Place
from perfdoctor.timeline.intervals import Intervals

#: Idle of a cause that takes less than this share of the time is shown together with its like: nobody would see it.
SMALL_SHARE = 0.01
REST = "rest"
#: Numbers nearer to each other than this look the same in three digits: it is said that they are alike.
ALIKE = 0.005
#: The words of `report/wording.py`, which a test holds against these: one part has one name.
LABELS: Mapping[str, str] = {
    "compute": "compute",
    "exposed_communication": "exposed communication",
    "exposed_copy": "exposed copies",
    "input_wait": "idle: waits for the next batch",
    "host_sync": "idle: a blocking call emptied the queue",
    "launch_bound": "idle: the host issues work too slowly",
    "host_work": "idle: host code that issues no work",
    "allocator": "idle: memory is allocated or freed",
    "storage": "idle: files are read or written",
    "garbage_collection": "idle: Python collects garbage",
    "compilation": "idle: code is compiled or tuned",
    "peer_wait": "idle: waits for another rank",
    "profiler": "idle: the profiler itself",
    "queue_latency": "idle: queued work has not started yet",
    "unknown": "idle: cause not proven",
    REST: "idle: small causes together",
}
#: What memory is for, in the words of `report/memory.py`, which a test holds against these.
MEMORY_KINDS: Mapping[str, str] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer_state": "the optimizer's state",
    "activations": "activations",
    "backward": "the backward pass",
    "inputs": "inputs",
    "temporaries": "temporaries",
    "optimizer_work": "the optimizer's work",
    "communication": "communication",
    "workspace": "workspaces of cuBLAS and cuDNN",
    "no_stack": "no stack, as in the backward pass",
    "before_recording": "held before the recording",
    "unknown": "unknown",
}


def place_names(places: Sequence[Place]) -> list[str]:
    """`rank 3`, and its device where a rank has several."""
    return device_names([(place.rank, -1 if place.device is None else place.device) for place in places])


def device_names(places: Sequence[tuple[int, int]]) -> list[str]:
    """The same by rank and device (-1: none)."""
    ranks = [rank for rank, _ in places]
    several = len(set(ranks)) < len(ranks)
    return [f"rank {rank}, device {device}" if several and device >= 0 else f"rank {rank}" for rank, device in places]


def parts_of(place: Place) -> Mapping[str, Intervals]:
    """When each part of the step was going on, by its key: they cover the window, and do not overlap."""
    return {
        "compute": place.compute,
        "exposed_communication": place.exposed_communication,
        "exposed_copy": place.exposed_copies,
        **place.idle_causes,
    }


def in_short(part: str) -> str:
    """The same over a narrow column, which explains it with the whole name."""
    return f"idle: {part.replace('_', ' ')}" if LABELS.get(part, "").startswith("idle") else in_words(part)


def in_words(part: str) -> str:
    """A part's key as the whole report calls it."""
    return LABELS.get(part, part.replace("_", " "))

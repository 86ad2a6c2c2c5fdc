"""What are ranks, parts of a step and uses of memory called wherever they are shown? One thing has one name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PART_LABELS: Mapping[str, str] = {
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
}

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


def place_names(places: Sequence[tuple[int, int | None]]) -> list[str]:
    """Of (rank, device) each: `rank 3`, with its device where a rank has several. Device None or below 0: none."""
    ranks = [rank for rank, _ in places]
    several = len(set(ranks)) < len(ranks)
    return [
        f"rank {rank}, device {device}" if several and device is not None and device >= 0 else f"rank {rank}"
        for rank, device in places
    ]

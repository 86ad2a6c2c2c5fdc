"""What are the parts of a step, and the uses of memory, called wherever they are shown? One part has one name."""

from __future__ import annotations

from collections.abc import Mapping

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

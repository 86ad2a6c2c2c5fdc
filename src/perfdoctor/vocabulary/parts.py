"""Which parts has the time of a step, and how is each shown? One row a part: its words, colours and characters.

A cause of idle time is a row of `IDLE_PARTS`, and its proof an entry in `metrics/accounting/idle_causes.py`: reports,
exports and replays know it from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Part:
    """`label` in full, and `short` for narrow places. `colour` is for paper and terminals, `dark` for dark pages.

    `glyph` and `ascii_glyph` stand for it in a bar without colours. `rules` own it: they explain the part, and a step
    that is longer by it is a symptom of what they find. `waits_for`: who keeps the device idle; "": nobody, or unknown.
    """

    label: str
    short: str
    colour: str
    dark: str
    glyph: str
    ascii_glyph: str
    rules: tuple[str, ...] = ()
    waits_for: Literal["", "host", "loader", "rank", "profiler", "queue"] = ""


# Okabe and Ito's palette, which stays apart for colour-blind eyes; the legend names each part all the same.
# Without colours the parts differ by their characters: work is dark, idle is light.
WORK_PARTS: Mapping[str, Part] = {
    "compute": Part("compute", "compute", "#0072b2", "#4d9fd6", "█", "#"),
    "exposed_communication": Part(
        "exposed communication", "communication", "#e69f00", "#e9ab2b", "▓", "%",
        rules=("rank-skew", "exposed-communication"),
    ),
    "exposed_copy": Part(
        "exposed copies", "copies", "#56b4e9", "#8fd0f5", "▒", "+", rules=("exposed-copies", "pageable-copies")
    ),
}  # fmt: skip
IDLE_PARTS: Mapping[str, Part] = {
    "input_wait": Part(
        "idle: waits for the next batch", "next batch", "#d55e00", "#ea7a2c", "░", "_",
        rules=("input-wait",), waits_for="loader",
    ),
    "host_sync": Part(
        "idle: a blocking call emptied the queue", "blocking calls", "#cc79a7", "#cc79a7", ":", ":",
        rules=("host-syncs",), waits_for="host",
    ),
    "launch_bound": Part(
        "idle: the host launches work too slowly", "slow launches", "#f0dc3c", "#f0dc3c", "-", "-",
        rules=("launch-bound",), waits_for="host",
    ),
    "host_work": Part(
        "idle: host code that launches no work", "host code", "#2aa983", "#2aa983", "=", "=",
        rules=("host-work",), waits_for="host",
    ),
    "allocator": Part(
        "idle: memory is allocated or freed", "allocation", "#9d86c9", "#9d86c9", "~", "~",
        rules=("allocator-churn",), waits_for="host",
    ),
    "storage": Part(
        "idle: files are read or written", "files", "#b58a3c", "#b58a3c", ".", ".",
        rules=("blocking-checkpoint",), waits_for="host",
    ),
    "garbage_collection": Part(
        "idle: Python collects garbage", "collecting garbage", "#86b545", "#86b545", "^", "^",
        rules=("garbage-collection",), waits_for="host",
    ),
    "compilation": Part(
        "idle: code is compiled or tuned", "compiling", "#9c9a3a", "#9c9a3a", "'", "'",
        rules=("recompilation",), waits_for="host",
    ),
    "peer_wait": Part(
        "idle: waits for another rank", "other ranks", "#c98a5a", "#c98a5a", '"', '"',
        rules=("peer-waits",), waits_for="rank",
    ),
    "profiler": Part(
        "idle: the profiler itself", "the profiler", "#8e979e", "#6b747c", "o", "o",
        rules=("profiler-overhead",), waits_for="profiler",
    ),
    "queue_latency": Part(
        "idle: queued work has not started yet", "start of queue", "#a9b7c6", "#7a8794", "*", "*", waits_for="queue"
    ),
    "unknown": Part(
        "idle: cause not proven", "not proven", "#cfd3d6", "#5f676e", "?", "?", rules=("idle-unknown",)
    ),
}  # fmt: skip
PARTS: Mapping[str, Part] = {**WORK_PARTS, **IDLE_PARTS}
IDLE_CAUSES = tuple(IDLE_PARTS)

#: Idle of a cause that takes less than this share of the time is shown as one with its like: nobody would see it.
SMALL_SHARE = 0.01
REST = "rest"
#: What a bar and its legend can show.
SHOWN_PARTS: Mapping[str, Part] = {
    **PARTS,
    REST: Part("idle: small causes together", "others", "#b4babf", "#7d868e", ",", ","),
}

#: What a fix acts on when the step is replayed (`action` of a rule): the part of the step that shrinks.
SHRINKS: Mapping[str, str] = {
    "host_pace": "launch_bound",
    "waits": "host_sync",
    "lateness": "exposed_communication",
    "kernels": "compute",
    "copies": "exposed_copy",
    "collectives": "exposed_communication",
    "fused": "compute",
    **{cause: cause for cause in IDLE_CAUSES},
}

"""Which parts does a step consist of, and how is each shown? One row a part: its labels, colours and characters.

A cause of idle time is a row of `IDLE_PARTS`, and its proof an entry in `metrics/accounting/idle_causes.py`: reports,
exports and replays take it from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct


class Part(Struct, frozen=True):
    """`label` in full, and `short` for narrow places. `colour` is for paper and terminals, `dark` for dark pages.

    `glyph` and `ascii_glyph` stand for it in a bar without colours. `rules` explain the part: a step that is longer by
    it is a symptom of their findings. `waits_for`: what the device waits for; "": nothing, or unknown. `on_cpu` and
    `short_on_cpu`: the labels on a run without a GPU, "" for the same.
    """

    label: str
    short: str
    colour: str
    dark: str
    glyph: str
    ascii_glyph: str
    rules: tuple[str, ...] = ()
    waits_for: Literal["", "host", "loader", "rank", "profiler", "queue"] = ""
    on_cpu: str = ""
    short_on_cpu: str = ""

    def labels(self, *, without_gpu: bool) -> tuple[str, str]:
        """Return the full and the short label, as they are for a run with or `without_gpu`."""
        if not without_gpu:
            return self.label, self.short
        return self.on_cpu or self.label, self.short_on_cpu or self.short


# Okabe and Ito's palette for colour-blind readers; the legend also names each part.
# Without colours the parts differ by their characters: work is dark, idle is light.
WORK_PARTS: Mapping[str, Part] = {
    "compute": Part("compute", "compute", "#0072b2", "#4d9fd6", "█", "#", on_cpu="ops on the CPU", short_on_cpu="ops"),
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
        "idle: waiting for data (input-bound)", "input wait", "#d55e00", "#ea7a2c", "░", "_",
        rules=("input-wait",), waits_for="loader",
    ),
    "host_sync": Part(
        "idle: after host syncs (blocking calls)", "host syncs", "#cc79a7", "#cc79a7", ":", ":",
        rules=("host-syncs",), waits_for="host",
    ),
    "launch_bound": Part(
        "idle: launch-bound (launches too slow)", "launch-bound", "#f0dc3c", "#f0dc3c", "-", "-",
        rules=("launch-bound",), waits_for="host",
    ),
    "host_work": Part(
        "idle: host code that launches no work", "host code", "#2aa983", "#2aa983", "=", "=",
        rules=("host-work",), waits_for="host", on_cpu="Python between ops", short_on_cpu="Python",
    ),
    "allocator": Part(
        "idle: memory allocation and release", "allocation", "#9d86c9", "#9d86c9", "~", "~",
        rules=("allocator-churn",), waits_for="host",
    ),
    "storage": Part(
        "idle: file I/O", "file I/O", "#b58a3c", "#b58a3c", ".", ".",
        rules=("blocking-checkpoint",), waits_for="host",
    ),
    "garbage_collection": Part(
        "idle: Python garbage collection", "garbage collection", "#86b545", "#86b545", "^", "^",
        rules=("garbage-collection",), waits_for="host",
    ),
    "compilation": Part(
        "idle: compilation and autotuning", "compilation", "#9c9a3a", "#9c9a3a", "'", "'",
        rules=("recompilation", "one-time-costs"), waits_for="host",
    ),
    "peer_wait": Part(
        "idle: waiting for another rank", "other ranks", "#c98a5a", "#c98a5a", '"', '"',
        rules=("peer-waits",), waits_for="rank",
    ),
    "profiler": Part(
        "idle: profiler overhead", "profiler", "#8e979e", "#6b747c", "o", "o",
        rules=("profiler-overhead",), waits_for="profiler",
    ),
    "queue_latency": Part(
        "idle: queue latency (work not started)", "queue latency", "#7b9cc4", "#5b7fae", "*", "*", waits_for="queue"
    ),
    "unknown": Part(
        "idle: cause unknown", "unknown", "#cfd3d6", "#5f676e", "?", "?", rules=("idle-unknown",)
    ),
}  # fmt: skip
PARTS: Mapping[str, Part] = {**WORK_PARTS, **IDLE_PARTS}
IDLE_CAUSES = tuple(IDLE_PARTS)

#: Causes of idle time below this share of the step are too small to be seen, and are shown as one part.
SMALL_SHARE = 0.01
REST = "rest"
#: What a bar and its legend can show.
SHOWN_PARTS: Mapping[str, Part] = {**PARTS, REST: Part("idle: small causes", "others", "#b4babf", "#7d868e", ",", ",")}

#: By the action that simulates a fix in the replay (`action` of a rule): the part of the step that gets shorter.
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

"""Which parts does a step consist of, and how is each shown? One table of parts.toml a part.

A cause of idle time is a table `[idle.…]` there, and its proof an entry in `metrics/accounting/idle_causes.py`:
reports, exports and replays take it from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from perfdoctor.system.toml_tables import shipped_table


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


_DECLARED = shipped_table(Path(__file__).with_suffix(".toml"))
WORK_PARTS: Mapping[str, Part] = msgspec.convert(_DECLARED["work"], dict[str, Part])
IDLE_PARTS: Mapping[str, Part] = msgspec.convert(_DECLARED["idle"], dict[str, Part])
PARTS: Mapping[str, Part] = {**WORK_PARTS, **IDLE_PARTS}
IDLE_CAUSES = tuple(IDLE_PARTS)

#: Causes of idle time below this share of the step are too small to be seen, and are shown as one part.
SMALL_SHARE = 0.01
REST = "rest"
#: What a bar and its legend can show.
SHOWN_PARTS: Mapping[str, Part] = {**PARTS, REST: msgspec.convert(_DECLARED["rest"], Part)}

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

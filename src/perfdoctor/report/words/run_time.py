"""How was the whole run divided, in one line?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfdoctor.report.words import wording
from perfdoctor.vocabulary.pauses import PAUSES

if TYPE_CHECKING:
    from perfdoctor.records.diagnosis import Diagnosis

#: A smaller part says nothing.
_LEAST_SHARE = 0.005
_TITLES = {"start": "start", "recording": "recording", "end": "after the last step", "unnoted": "steps not noted"}


def line(diagnosis: Diagnosis) -> str:
    """`Whole run, 42.0 s: steps 41 %, evaluation 38 % (every 5 steps), start 17 %`; "" where it was not noted."""
    time = diagnosis.run_time
    if time is None or not time.wall_ns:
        return ""
    parts = [(time.steps_ns, "steps", 0)]
    for kind, ns in time.between_ns.items():
        title = PAUSES[kind].title if kind in PAUSES else _TITLES.get(kind, kind)
        parts.append((ns, title, time.every_steps.get(kind, 0)))
    shown = [
        f"{title} {wording.share(ns / time.wall_ns)}" + (f" (every {every} steps)" if every else "")
        for ns, title, every in sorted(parts, key=lambda part: -part[0])
        if ns >= _LEAST_SHARE * time.wall_ns
    ]
    return f"Whole run, {wording.duration(time.wall_ns)}: {', '.join(shown)}."

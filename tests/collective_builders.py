"""Pictures of collectives whose size, group and type are recorded, and what all rules find in them."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.timeline import Text, Timeline
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000
MIB = 1 << 20


def described(drawn: Timeline, **columns) -> Timeline:
    """The same picture with these columns of all its collectives; a list gives one value a row, in order of start."""
    frame = drawn.collectives
    changed = {}
    for name, value in columns.items():
        values = value if isinstance(value, list) else [value] * len(frame)
        is_text = isinstance(frame.columns[name], Text)
        changed[name] = Text.of(values) if is_text else np.array(values, dtype=np.int64)
    return replace(drawn, frames={**drawn.frames, "collectives": frame.with_columns(**changed)})


def under(drawn: Timeline, cause: str) -> set[str]:
    """The rules whose findings are listed as symptoms of `cause`."""
    found = {advice.rule: advice for advice in diagnose(drawn, list(load_rules().values())).findings}
    return {symptom.rule for symptom in found[cause].symptoms}

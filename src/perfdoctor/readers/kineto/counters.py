"""Which samples of the GPU's counters are among a trace's events of category `gpu_pm_counter`?

Kineto writes them as any activity: `pid` is the device, and the counters are arguments (libkineto/src/output_json.cpp).
An event has all counters of a sample, or one of them, which then is its name.
"""

from __future__ import annotations

import msgspec
import numpy as np

from perfdoctor.model.timeline import Frame
from perfdoctor.readers.counter_frames import SampledCounters, counter_frames
from perfdoctor.readers.kineto.columns import EventTable

_VALUES = msgspec.json.Decoder(dict[str, object])
#: Arguments that are no counters, and those of which the counter is the event's name.
_OTHERS, _UNNAMED = frozenset(("External id", "correlation", "device", "stream")), frozenset(("value", "Value", ""))


def counters(table: EventTable, rank: int) -> dict[str, Frame]:
    """The frames `gpu_counters` and `other_gpu_counters` of all devices of a rank."""
    names, values, devices = table.texts["name"], table.texts["values"], table["process"]
    decoded = [_decoded(text) for text in values.values]
    sampled = []
    for device in np.unique(devices).tolist():
        rows = np.flatnonzero(devices == device)
        starts, sample = np.unique(table["start_ns"][rows], return_inverse=True)
        found: dict[str, np.ndarray] = {}
        for row, at in zip(rows.tolist(), sample.tolist(), strict=True):
            for key, value in decoded[int(values.codes[row])].items():
                name = names[row] if key in _UNNAMED else key
                if name not in found:
                    found[name] = np.full(starts.size, np.nan)
                found[name][at] = value
        if found:
            sampled.append((SampledCounters(device, list(found), starts, np.stack(list(found.values()))), rank))
    return counter_frames(sampled, "kineto")


def _decoded(text: str) -> dict[str, float]:
    """The counters of an event; {} where its arguments are none."""
    try:
        given = _VALUES.decode(text)
    except (msgspec.MsgspecError, ValueError):
        return {}
    return {
        key: number for key, value in given.items() if key not in _OTHERS and (number := _number(value)) is not None
    }


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except ValueError:
        return None

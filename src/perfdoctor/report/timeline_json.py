"""How is the timeline embedded in the page? As columns of integers: starts as differences, default columns omitted.

```
{"length": ns, "typical": [start, end], "whole": [[start, end], …], "names": […], "pieces_in_all": n,
 "groups": [{"title", "rank", "device"}],
 "tracks": [{"group", "kind", "title", "rows": how many,
             "start": [the first, then differences], "duration": […], "name": [places in names],
             omitted where all have the default: "row" (0), "count" (1), "busy" (the duration), "launch_track" (-1),
             "launch" (start - launch_ns, 0 where unknown), "detail" (-1);
             of a counter: "values", "unit"}]}
```
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfdoctor.model.columns import Floats, Ints
from perfdoctor.records.views import TimelineView, Track
from perfdoctor.report.words.foreign_text import clean, clean_name, shorten

#: Shapes of many tensors are long, and the panel has room for a few lines.
_DETAIL_LIMIT = 240
#: Names stay whole so that they can be searched for; only generated templates are longer than this.
_NAME_LIMIT = 1_000


def document(view: TimelineView) -> dict[str, Any]:
    """The view as lists for JSON; times are ns since the window's first event."""
    return {
        "length": view.length_ns,
        "typical": list(view.typical),
        "whole": [list(span) for span in view.whole],
        "names": _names(view),
        "pieces_in_all": view.pieces_in_all,
        "groups": [{"title": clean(group.title), "rank": group.rank, "device": group.device} for group in view.groups],
        "tracks": [_track(track) for track in view.tracks],
    }


def _names(view: TimelineView) -> list[str]:
    """The texts of the view, safe to print: names whole, details shortened."""
    is_name = np.zeros(len(view.names), dtype=bool)
    for track in view.tracks:
        is_name[track.name[track.name >= 0]] = True
    return [
        clean_name(text, _NAME_LIMIT) if name else shorten(clean_name(text, _DETAIL_LIMIT), _DETAIL_LIMIT)
        for text, name in zip(view.names, is_name.tolist(), strict=True)
    ]


def _track(track: Track) -> dict[str, Any]:
    columns: dict[str, tuple[Ints, Ints | int]] = {
        "row": (track.row, 0),
        "count": (track.count, 1),
        "busy": (track.busy_ns, track.duration_ns),
        "launch_track": (track.launch_track, -1),
        "launch": (np.where(track.launch_track >= 0, track.start_ns - track.launch_ns, 0), 0),
        "detail": (track.detail, -1),
    }
    start = np.diff(track.start_ns, prepend=0)
    found: dict[str, Any] = {
        "group": track.group,
        "kind": track.kind,
        "title": clean(track.title),
        "rows": int(track.row.max(initial=0)) + 1,
        "start": start.tolist(),
        "duration": track.duration_ns.tolist(),
        "name": track.name.tolist(),
        **{key: values.tolist() for key, (values, default) in columns.items() if (values != default).any()},
    }
    return {**found, "values": _numbers(track.values), "unit": track.unit} if track.kind == "counter" else found


def _numbers(values: Floats) -> list[float]:
    """The values as a list, as integers where all are whole: half as many characters."""
    is_whole = np.isfinite(values).all() and (values == np.round(values)).all() and (np.abs(values) < 2**53).all()
    numbers: list[float] = (values.astype(np.int64) if is_whole else values).tolist()
    return numbers

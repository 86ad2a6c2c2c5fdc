"""Which samples of the GPU's counters are in GENERIC_EVENTS, where exports of before 2023 have them: JSON a sample?

An event is `{"SM Active": "97", "Tensor Active": "0", …}`. Its type lists the fields and, in its low byte, the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from perfdoctor.model.columns import Floats, Ints
from perfdoctor.readers.nsys.tables import Database
from perfdoctor.vocabulary.gpu_counters import counter

_EVENTS, _TYPES = "GENERIC_EVENTS", "GENERIC_EVENT_TYPES"
_FIELDS = msgspec.json.Decoder(dict[str, object])
_VALUES = msgspec.json.Decoder(dict[str, str | float | None])


def generic_samples(database: Database) -> Iterator[tuple[int, Sequence[str], Ints, Floats]]:
    """For each type of events with a known counter: the type, the names, when each sample began, and a row of values a
    name, NaN where one lacks. Events that are no JSON object are left out.
    """
    time = "coalesce(timestamp, rawTimestamp)" if "timestamp" in database.columns_of(_EVENTS) else "rawTimestamp"
    for kind, data in database.rows(_TYPES, "typeId, data"):
        names = _names(str(data))
        if not isinstance(kind, int) or not any(map(counter, names)):
            continue
        place = {name: row for row, name in enumerate(names)}
        starts, rows = [], []
        for at, text in database.rows(_EVENTS, f"{time}, data", f"typeId = {kind} AND {time} IS NOT NULL"):
            try:
                rows.append(_row(_VALUES.decode(str(text)), place))
            except (msgspec.MsgspecError, ValueError):
                continue
            starts.append(int(str(at)))
        begun, first = np.unique(np.array(starts, np.int64), return_index=True)
        yield kind, names, begun, np.array(rows, np.float64).reshape(-1, len(names))[first].T


def _names(data: str) -> list[str]:
    """The fields of a type of events: `{"Name": "", "Fields": [{"Name": "SM Active"}, …]}`."""
    try:
        fields = _FIELDS.decode(data).get("Fields")
    except msgspec.MsgspecError:
        return []
    listed = fields if isinstance(fields, list) else []
    return [str(field["Name"]) for field in listed if isinstance(field, dict) and "Name" in field]


def _row(values: Mapping[str, str | float | None], place: Mapping[str, int]) -> Floats:
    row = np.full(len(place), np.nan)
    for name, value in values.items():
        if name in place and value is not None:
            row[place[name]] = float(value)
    return row

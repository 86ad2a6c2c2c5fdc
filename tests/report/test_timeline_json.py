"""Can the timeline be read back from the page's JSON, with control characters removed?"""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np
import pytest
from builders import draw
from folders import FIXTURES
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.readers.open import read
from perfdoctor.records.views import TimelineView, Track, TrackGroup
from perfdoctor.report import embedded, timeline_json
from perfdoctor.views.pages.timeline import view

POISON = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e\ud800"


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def view_of(path: Path) -> TimelineView:
    run = prepare(read([path]))
    (found,) = view(run, examine(run, []).diagnosis)
    return found


def plain(found: TimelineView) -> dict:
    return json.loads(msgspec.json.encode(timeline_json.document(found)))


def small(**columns) -> TimelineView:
    """Two pieces and one counter."""
    size = 2
    defaults = {
        "start_ns": ints(5, 25), "duration_ns": ints(10, 4), "name": ints(0, 1), "row": ints(0, 0),
        "count": ints(1, 1), "busy_ns": ints(10, 4), "launch_track": ints(-1, -1), "launch_ns": ints(0, 0), "detail": ints(-1, -1),
    }  # fmt: skip
    track = Track(group=0, kind="kernels", title="stream 7", **{**defaults, **columns})
    counter = Track(
        group=0, kind="counter", title="power", **{**defaults, "name": ints(*[0] * size)},
        values=np.array([1.5, 2.0]), unit="watt",
    )  # fmt: skip
    return TimelineView(
        40, (5, 25), ((0, 30),), ("a", "b", "c"), (TrackGroup("rank 0 · GPU 0", 0, 0),), (track, counter), 9
    )


def test_starts_are_differences_and_defaults_are_omitted():
    document = plain(small())
    assert {key: document[key] for key in ("length", "typical", "whole", "names", "pieces_in_all", "groups")} == {
        "length": 40, "typical": [5, 25], "whole": [[0, 30]], "names": ["a", "b", "c"], "pieces_in_all": 9,
        "groups": [{"title": "rank 0 · GPU 0", "rank": 0, "device": 0}],
    }  # fmt: skip
    assert document["tracks"][0] == {
        "group": 0, "kind": "kernels", "title": "stream 7", "rows": 1,
        "start": [5, 20], "duration": [10, 4], "name": [0, 1],
    }  # fmt: skip
    assert document["tracks"][1]["values"] == [1.5, 2.0]
    assert document["tracks"][1]["unit"] == "watt"


def test_other_than_default_values_are_written():
    document = plain(
        small(
            row=ints(0, 2),
            count=ints(1, 3),
            busy_ns=ints(10, 3),
            launch_track=ints(-1, 1),
            launch_ns=ints(0, 7),
            detail=ints(2, -1),
        )
    )
    track = document["tracks"][0]
    assert {key: track[key] for key in ("rows", "row", "count", "busy", "launch_track", "launch", "detail")} == {
        "rows": 3, "row": [0, 2], "count": [1, 3], "busy": [10, 3], "launch_track": [-1, 1], "launch": [0, 18],
        "detail": [2, -1],
    }  # fmt: skip


@pytest.mark.parametrize("path", ["healthy/torch", "straggler/nsys", "cuda-graphs/nsys", "cpu-slow-input/torch"])
def test_the_view_can_be_read_back(path):
    found = view_of(FIXTURES / path)
    document = plain(found)
    for track, read_back in zip(found.tracks, document["tracks"], strict=True):
        size = len(read_back["start"])
        start = list(accumulate(read_back["start"]))
        assert start == track.start_ns.tolist()
        assert min(read_back["start"][1:], default=0) >= 0
        assert read_back["duration"] == track.duration_ns.tolist()
        assert read_back["name"] == track.name.tolist()
        assert read_back.get("row", [0] * size) == track.row.tolist()
        assert read_back["rows"] == max(track.row.tolist()) + 1
        assert read_back.get("count", [1] * size) == track.count.tolist()
        assert read_back.get("busy", read_back["duration"]) == track.busy_ns.tolist()
        assert read_back.get("detail", [-1] * size) == track.detail.tolist()
        launched = read_back.get("launch_track", [-1] * size)
        assert launched == track.launch_track.tolist()
        ago = read_back.get("launch", [0] * size)
        assert [at - before for at, before, by in zip(start, ago, launched, strict=True) if by >= 0] == track.launch_ns[
            track.launch_track >= 0
        ].tolist()
        assert not any(before for before, by in zip(ago, launched, strict=True) if by < 0)
    places = [place for track in document["tracks"] for key in ("name", "detail") for place in track.get(key, [])]
    assert max(places) == len(document["names"]) - 1


def test_control_characters_of_a_trace_are_removed():
    drawn = draw(kernels="## ", host="l  ", repeat=4, kernel_names={"#": POISON})
    run = prepare(drawn)
    (found,) = view(run, examine(run, []).diagnosis)
    text = msgspec.json.encode(timeline_json.document(found)).decode()
    assert "<img" in text  # it is packed, and only ever becomes text
    for steering in ("\x1b", "\u202e", "\ud800"):
        assert steering not in json.loads(text)["names"]
        assert steering not in text
    assert "<" not in embedded.packed_timeline(found)


def test_long_texts_are_cut_details_more_than_names():
    names = ("n" * 5_000, "d" * 5_000, "c")
    document = plain(replace(small(name=ints(0, 0), detail=ints(1, 1)), names=names))
    assert [len(name) for name in document["names"]] == [1_000, 240, 1]

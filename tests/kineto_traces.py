"""Kineto traces at random: what writers write, what nobody should, and damage; and what is read of them, in plain values."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import strategies as st

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.columns import Text
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.kineto import trace as kineto

CATEGORIES = (
    "cpu_op", "user_annotation", "kernel", "cuda_runtime", "cuda_driver", "gpu_memcpy", "gpu_memset", "python_function",
    "cpu_instant_event", "overhead", "cuda_sync", "ac2g", "Trace", "Kernel", "xpu_sync", "never_seen_runtime", "other",
)  # fmt: skip
#: Microseconds as writers write them, and as nobody should.
TIMES = st.one_of(
    st.integers(0, 10**6), st.integers(0, 10**9).map(lambda ns: ns / 1000), st.sampled_from([True, None, "7.125", "x"])
)
ODD = st.sampled_from([None, True, 7.0, 7.5, "stream 7", "24", "", [1], {"a": 1}, 2**63, -(2**70), 10**30])
NUMBERS = st.one_of(st.integers(0, 40), st.integers(0, 2**40))
NAMES = st.one_of(
    st.sampled_from(
        [
            "aten::mm",
            "aten::convolution",
            "ncclKernel_AllReduce_RING",
            "[memory]",
            "Stream Wait Event",
            "record_param_comms",
        ]
    ),
    st.text(max_size=8),
    st.sampled_from(['}, {"name": 1', '"}]}', "\\", "},\n  {", '{"ph":"X"}', "\u2028\ud7ff🙂", "a\x00b"]),
)
ARGS = {
    "correlation": NUMBERS, "device": NUMBERS, "stream": NUMBERS, "wait_on_stream": NUMBERS, "bytes": NUMBERS,
    "External id": NUMBERS, "Total Allocated": NUMBERS, "Total Reserved": NUMBERS, "Device Type": st.integers(0, 1),
    "Device Id": st.integers(0, 2), "grid": st.just([4, 2, 1]), "block": st.just([32, 1, 1]), "kind": NAMES,
    "Input Dims": st.lists(st.lists(NUMBERS, max_size=2), max_size=2), "Input type": st.lists(NAMES, max_size=2),
    "Concrete Inputs": st.lists(NAMES, max_size=2), "Collective name": NAMES, "In msg nelems": NUMBERS,
    "Group size": st.integers(1, 8), "Process Group Ranks": st.just("[0, 1]"), "dtype": st.just("Float"),
    "Dst Rank": st.integers(0, 7), "Src Rank": st.integers(0, 7),
    "parts": st.just([{"name": "a"}, {"name": "b", "ph": "X"}]),
}  # fmt: skip


@st.composite
def events(draw, odd: float = 0.1) -> dict[str, object]:
    """One event; `odd`: the share of values that are of another type than writers give them."""

    def value(usual):
        return draw(ODD) if draw(st.floats(0, 1)) < odd else draw(usual)

    chosen = draw(st.lists(st.sampled_from(sorted(ARGS)), max_size=6, unique=True))
    event = {
        "ph": "X", "cat": draw(st.sampled_from(CATEGORIES)), "name": draw(NAMES), "pid": value(NUMBERS),
        "tid": value(NUMBERS), "ts": value(TIMES), "dur": value(TIMES), "args": {name: value(ARGS[name]) for name in chosen},
    }  # fmt: skip
    for missing in draw(st.lists(st.sampled_from(["dur", "args", "pid", "ts", "cat"]), max_size=1)):
        del event[missing]
    return event


def outcome(text: bytes) -> object:
    """All of the timeline in plain values, or the refusal."""
    try:
        return plain(read_text(text))
    except PerfdoctorError as error:
        return error.what


def read_text(text: bytes, name: str = "trace.json") -> Timeline:
    """The Timeline of a file with this content."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(text)
        return kineto.read(file)


def plain(timeline: Timeline) -> object:
    frames = {
        signal: {
            name: (column.codes.tolist(), list(column.values)) if isinstance(column, Text) else column.tolist()
            for name, column in frame.columns.items()
        }
        for signal, frame in timeline.frames.items()
        if len(frame)
    }
    assert all(np.diff(frame.start_ns).min(initial=0) >= 0 for frame in timeline.frames.values())
    return frames, timeline.recorded, timeline.notes, timeline.thread_names, timeline.sources


@st.composite
def damaged(draw, text: bytes) -> bytes:
    """The text with a few bytes of it gone or wrong, or cut off, or none of that."""
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(text)))
        wrong = draw(st.sampled_from([b"", b'"', b"\xff", b"}", b"]", b"{", b"\\", b",", b"NaN", b"\x01"]))
        text = text[:place] + wrong + text[place + draw(st.integers(0, 2)) :]
    return text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 9)) == 0 else text


def trace(rows: list[dict[str, object]], decimals: bool = False) -> bytes:
    text = json.dumps({"schemaVersion": 1, "traceEvents": rows}, indent=1)
    return (text.replace('"ts": ', '"ts": 1712195495') if decimals else text).encode()

"""What ran between two moments, in order of begin?"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from perfdoctor.assistant.arguments import TimelineSlice
from perfdoctor.assistant.bounded import Answer, name, page
from perfdoctor.assistant.desk import Desk
from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.columns import UNKNOWN, Ints, Text
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Frame
from perfdoctor.report.words import wording
from perfdoctor.vocabulary.signals import SIGNALS

#: Events in the text.
_SHOWN = 10
#: What is said of each event, where its signal has it. Times, name and signal are said of all.
_COLUMNS = ("rank", "device", "stream", "thread", "correlation", "bytes", "direction", "kind")


def answer(asked: TimelineSlice, desk: Desk) -> Answer:
    run = desk.examined(asked.path).run
    start_ns, end_ns = _moments(asked, run)
    recorded = [signal for signal in asked.signals if signal in run.timeline.recorded]
    frames = [run.timeline[signal] for signal in recorded]
    chosen = [_rows(frame, asked, start_ns, end_ns) for frame in frames]
    counts = {signal: int(rows.size) for signal, rows in zip(recorded, chosen, strict=True)}
    frame_of = np.repeat(np.arange(len(frames)), list(counts.values()))
    row_of = np.concatenate([*chosen, np.empty(0, np.int64)])
    starts = np.concatenate(
        [*(frame.start_ns[rows] for frame, rows in zip(frames, chosen, strict=True)), np.empty(0, np.int64)]
    )
    order = np.argsort(starts, kind="stable")
    rows, pages = page(
        range(order.size), asked,
        lambda at: _event(recorded[frame_of[order[at]]], frames[frame_of[order[at]]], int(row_of[order[at]])),
    )  # fmt: skip
    said = ", ".join(f"{number:,} {SIGNALS[signal].label}" for signal, number in counts.items())
    heading = f"In {wording.duration(end_ns - start_ns)}: {said or 'nothing recorded'}."
    return Answer(
        "\n".join([heading, *map(_said, rows[:_SHOWN])]),
        {
            "start_ns": start_ns, "end_ns": end_ns, "counts": counts,
            "not_recorded": [signal for signal in asked.signals if signal not in recorded], "events": rows, **pages,
        },
    )  # fmt: skip


def _said(event: dict[str, Any]) -> str:
    where = "".join(f", {each} {event[each]}" for each in ("rank", "stream") if event.get(each) is not None)
    called = f" {json.dumps(event['name'], ensure_ascii=False)}" if event.get("name") else ""
    return f"{event['start_ns']} ns, {wording.duration(event['duration_ns'])}: {event['signal']}{called}{where}"


def _moments(asked: TimelineSlice, run: Run) -> tuple[int, int]:
    """Begin and end in ns; by default those of the first analysed step, and without an end as long as that step."""
    first, last = _first_step(run, asked.rank)
    if first == last and asked.start_ns is None:
        what = "the recording has no timeline" if asked.rank is None else f"of rank {asked.rank} there is no timeline"
        raise PerfdoctorError(what, do="analyze says what was recorded.")
    start_ns = first if asked.start_ns is None else asked.start_ns
    end_ns = start_ns + max(last - first, 1) if asked.end_ns is None else asked.end_ns
    if end_ns <= start_ns:
        raise PerfdoctorError(
            f"end_ns {end_ns} is not after start_ns {start_ns}", do="Give moments of the recording's clock, in ns."
        )
    return start_ns, end_ns


def _first_step(run: Run, rank: int | None) -> tuple[int, int]:
    """Begin and end of the first step of the first place asked for, or of its window if no steps were found."""
    place = next((each for each in run.places if rank in (None, each.rank)), None)
    if place is None or not place.window:
        return 0, 0
    begin = int(place.window.starts[0])
    return begin, begin + place.per_step(place.window_ns)


def _rows(frame: Frame, asked: TimelineSlice, start_ns: int, end_ns: int) -> Ints:
    """The rows that touch that time and are asked for."""
    fits = (frame.start_ns < end_ns) & (frame.end_ns > start_ns)
    fits &= frame.duration_ns >= asked.min_duration_ns
    if asked.rank is not None:
        fits &= frame["rank"] == asked.rank
    if asked.name_contains is not None and "name" in frame.columns:
        wanted = asked.name_contains
        fits &= frame.name.has(lambda text: wanted in text, True)
    return np.flatnonzero(fits)


def _event(signal: str, frame: Frame, row: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "signal": signal, "start_ns": int(frame.start_ns[row]), "duration_ns": int(frame.duration_ns[row]),
    }  # fmt: skip
    for column in ("name", *_COLUMNS):
        if column not in frame.columns:
            continue
        values = frame.columns[column]
        if isinstance(values, Text):
            found[column] = name(values.values[values.codes[row]])
        else:
            value = int(values[row])
            found[column] = None if value == UNKNOWN else value
    return found

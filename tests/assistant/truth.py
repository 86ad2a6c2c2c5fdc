"""What is in a recording? Read again by plain Python and SQL, which know nothing of perfdoctor."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

Span = tuple[int, int]


# --- torch.profiler --------------------------------------------------------------------------------------------------


class Kineto:
    """Complete events by category, as (start_ns, end_ns, event), in order of begin."""

    def __init__(self, file: Path) -> None:
        document = json.loads(gzip.decompress(file.read_bytes()), parse_float=Decimal)
        self._zero = int(document.get("baseTimeNanoseconds", 0))
        self._events = [each for each in document["traceEvents"] if each.get("ph") == "X"]

    def events(self, *categories: str) -> list[tuple[int, int, dict[str, Any]]]:
        found = []
        for each in self._events:
            if str(each.get("cat")).lower() in categories:  # old versions write `Kernel`
                start = self._zero + int(Decimal(each["ts"]) * 1000)
                found.append((start, start + int(Decimal(each["dur"]) * 1000), each))
        return sorted(found, key=lambda each: each[0])

    def spans(self, *categories: str, name: str = "") -> list[Span]:
        return [(start, end) for start, end, each in self.events(*categories) if name in each["name"]]

    @property
    def steps(self) -> list[Span]:
        return sorted(set(self.spans("user_annotation", name="ProfilerStep#")))

    def window(self, used: int) -> Span:
        """From the first device work that the first step launched to the first of the step behind the last one used."""
        device = {e["args"]["correlation"]: start for start, _, e in self.events("kernel", "gpu_memcpy", "gpu_memset")}
        calls = [(start, e["args"]["correlation"]) for start, _, e in self.events("cuda_runtime", "cuda_driver")]
        firsts = [
            min(device[number] for at, number in calls if begin <= at < end and number in device)
            for begin, end in self.steps
        ]
        return firsts[0], firsts[used]


@cache
def kineto(file: Path) -> Kineto:
    return Kineto(file)


# --- Nsight Systems --------------------------------------------------------------------------------------------------


def sql(file: Path, question: str, *values: object) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        return connection.execute(question, values).fetchall()
    finally:
        connection.close()


# --- intervals -------------------------------------------------------------------------------------------------------


def union(spans: Iterable[Span], window: Span) -> list[Span]:
    """Disjoint pieces inside the window."""
    found: list[Span] = []
    for start, end in sorted((max(a, window[0]), min(b, window[1])) for a, b in spans):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def length(pieces: Sequence[Span]) -> int:
    return sum(end - start for start, end in pieces)


def without(pieces: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What of disjoint pieces no other one covers."""
    left = list(pieces)
    for begin, end in others:
        left = [part for a, b in left for part in ((a, min(b, begin)), (max(a, end), b)) if part[0] < part[1]]
    return left


def inside(spans: Iterable[Span], window: Span) -> int:
    """The sum of their lengths within the window, where those that overlap count twice."""
    return sum(max(min(end, window[1]) - max(start, window[0]), 0) for start, end in spans)


def touching(spans: Iterable[Span], window: Span) -> int:
    return sum(start < window[1] and end > window[0] for start, end in spans)

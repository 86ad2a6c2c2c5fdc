"""Which Python stacks did py-spy sample, by its own files: speedscope, a Chrome trace, or collapsed stacks?

What each says of time (py-spy 0.4, src/speedscope.rs, chrometrace.rs and flamegraph.rs): a Chrome trace has µs since
py-spy began, and says nothing where a stack stays; a speedscope file has a weight of a period each sample and no gaps,
so its times are true only if no sample was missed; collapsed stacks have counts alone.

With --subprocesses the outermost frames are `process PID:"COMMAND"`, with --threads the next one is `thread (TID)`. The
command line is never kept: it holds arguments.
"""

from __future__ import annotations

import json
import math
import os.path
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import UNKNOWN, Frame
from perfdoctor.patterns import regex
from perfdoctor.readers import text_rows
from perfdoctor.readers.kineto.inflate import whole_text
from perfdoctor.readers.sampled_stacks import own_line, own_line_of_worker
from perfdoctor.vocabulary.names import python_code

_SPEEDSCOPE = regex(rb'"\$schema"\s*:\s*"[^"]*speedscope|"shared"\s*:\s*\{\s*"frames"\s*:')
_CHROME = regex(rb'\A\s*\[\s*\{[^{}]*(\{[^{}]*\}[^{}]*)?"cat"\s*:\s*"py-spy"')
#: The last frame alone is asked for: a command line may stand before it.
_COLLAPSED = regex(rb"\A[^\n]*\([^;()\n]+:\d+\) \d+$", re.MULTILINE)
_COLLAPSED_FRAME = regex(r"^(.+) \((.+):(\d+)\)$")
_PROCESS, _PROCESSES = regex(r'^process (\d+):"'), regex(r'(?:^|";)process (\d+):"')
_THREAD = regex(r"^thread \((\w+)\)(?:: (.*))?$", 16)  # DOTALL: a thread may have any name
_PROFILE = regex(r'^(?:Process (\d+) )?Thread (\w+)(?: "(.*)")?$', 16)
_SECONDS = {"seconds": 1e9, "milliseconds": 1e6, "microseconds": 1e3, "nanoseconds": 1.0}
#: A day of 200 samples a second; each costs memory when it is put on the clock.
_MOST_SAMPLES = 17_280_000
#: Nobody reads a longer name, or a deeper stack.
_LONGEST_NAME, _DEEPEST = 400, 300
_LONGEST_S = 1e7
_DAMAGED = (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError,
            OverflowError)  # fmt: skip

Stack = tuple[str, ...]


class StackFile(Struct, frozen=True):
    """`rows`: of the signal `stack_samples`, of no rank yet, with times since the sampler began; all 0 without times.

    `period_ns`: between two samples, 0 if unknown.
    """

    name: str
    rows: Frame
    has_times: bool
    period_ns: int


class StackRow(Struct, frozen=True):
    """Successive samples of one stack: (function, file, line) each, outermost first."""

    process: int
    thread: int
    thread_name: str
    stack: tuple[tuple[str, str, int], ...]
    samples: int
    start_ns: int = 0
    end_ns: int = 0


def looks_like(head: bytes) -> bool:
    """Do these first bytes, decompressed, belong to such a file? Of speedscope's, those of other samplers do, too."""
    if not text_rows.is_json(head):
        return _COLLAPSED.search(head) is not None
    is_likely = any(word in head for word in (b"speedscope", b'"shared"', b'"py-spy"'))  # quicker than a pattern
    return is_likely and any(mark.search(head) is not None for mark in (_SPEEDSCOPE, _CHROME))


def read(file: Path) -> StackFile:
    """The stacks in a file. Raises PerfdoctorError where it is damaged, or holds no stacks of Python."""
    try:
        rows, has_times, period_ns = _content(file)
        samples = stack_samples(rows)
        if samples["samples"][samples["is_main"]].sum(dtype=float) > _MOST_SAMPLES:
            raise ValueError("it says that there are more samples than a day has")
    except _DAMAGED as error:
        raise PerfdoctorError(
            f"the stacks in {file.name} cannot be read: {error}", do="Sample again: py-spy record --idle."
        ) from error
    if not len(samples):
        raise PerfdoctorError(
            f"{file.name} holds no stacks of Python", do="Sample the training with: py-spy record --idle."
        )
    return StackFile(file.name, samples, has_times, period_ns)


def _content(file: Path) -> tuple[list[StackRow], bool, int]:
    data = whole_text(file.read_bytes())
    if not text_rows.is_json(data[:65_536]):
        return list(_collapsed(data.decode("utf-8", "replace"))), False, 0
    document = json.loads(data)
    rows, period_ns = _chrome(document) if isinstance(document, list) else _speedscope(document)
    return rows, True, period_ns


# --- formats ---


def _collapsed(text: str) -> Iterator[StackRow]:
    for line in text.splitlines():
        # A command line may hold semicolons, too: it ends with the last `";`.
        processes, _, stack = line.rpartition('";')
        numbers = _PROCESSES.findall(processes)
        written, _, count = stack.rpartition(" ")
        if int(count) < 0:
            raise ValueError("a stack has a count below 0")
        # Paths are cut at any folder of sys.path: whose a file is that is imported cannot be seen.
        outermost, *_ = frames = written.partition(" (<frozen importlib")[0].split(";")[:_DEEPEST]
        found = [place for each in frames if (place := _COLLAPSED_FRAME.match(each))]
        yield StackRow(
            int(numbers[-1]) if numbers else UNKNOWN, *_thread(_THREAD.match(outermost)),
            tuple(_frame({"name": place[1], "file": place[2], "line": int(place[3])}) for place in found), int(count),
        )  # fmt: skip


def _speedscope(document: Mapping[str, Any]) -> tuple[list[StackRow], int]:
    frames = [_frame(each) for each in document["shared"]["frames"]]
    rows: list[StackRow] = []
    periods: Counter[int] = Counter()
    for profile in document["profiles"]:
        if profile.get("type") != "sampled":
            continue
        unit = _SECONDS.get(profile["unit"])
        if unit is None:
            raise ValueError("its weights are no times")
        weights = [_nanoseconds(each, unit) for each in profile["weights"]]
        periods.update(weights)
        place = _PROFILE.match(str(profile["name"]))
        process = int(place[1]) if place and place[1] else UNKNOWN
        now = _nanoseconds(profile.get("startValue", 0), unit)
        for sample, weight in zip(profile["samples"], weights, strict=True):
            stack = [frames[number] for number in sample[:_DEEPEST] if number >= 0]
            rows.append(StackRow(*_placed(process, *_thread(place, 2), stack), 1, now, now + weight))
            now += weight
    period_ns = max(periods, key=lambda each: periods[each], default=0)
    return list(_joined(rows)), period_ns


def _joined(rows: Iterable[StackRow]) -> Iterator[StackRow]:
    """Successive samples of one stack as one row."""
    last: StackRow | None = None
    for row in rows:
        same = last and (last.process, last.thread, last.stack, last.end_ns) == (
            row.process, row.thread, row.stack, row.start_ns)  # fmt: skip
        if last and not same:
            yield last
        last = msgspec.structs.replace(row, samples=last.samples + 1, start_ns=last.start_ns) if last and same else row
    if last:
        yield last


def _chrome(events: Sequence[Mapping[str, Any]]) -> tuple[list[StackRow], int]:
    rows: list[StackRow] = []
    stacks: dict[tuple[int, int], list[tuple[str, str, int]]] = {}
    since: dict[tuple[int, int], int] = {}
    for event in events:
        if event.get("cat") != "py-spy":
            continue
        key, now = (int(event["pid"]), int(event["tid"])), _nanoseconds(event["ts"], 1e3)
        stack = stacks.setdefault(key, [])
        if stack and now > since[key]:
            rows.append(StackRow(*_placed(key[0], key[1], "", stack[:_DEEPEST]), 1, since[key], now))
        since[key] = now
        if event["ph"] == "B":
            place = event.get("args")
            known = place if isinstance(place, dict) else {}
            stack.append(
                _frame({"name": event["name"], "file": known.get("filename", ""), "line": known.get("line", 0)})
            )
        elif stack:
            stack.pop()
    # One of the shortest times that a thread's stack stayed the same, with some jitter: most change soon.
    times = sorted(row.end_ns - row.start_ns for row in rows)
    period_ns = times[len(times) // 5] if times else 1
    return [
        msgspec.structs.replace(row, samples=max(1, round((row.end_ns - row.start_ns) / period_ns))) for row in rows
    ], period_ns


def _nanoseconds(value: Any, unit: float) -> int:
    seconds = float(value) * unit / 1e9
    if not 0 <= seconds < _LONGEST_S or not math.isfinite(seconds):
        raise ValueError("a time is below 0, or longer than a recording can be")
    return round(seconds * 1e9)


def _frame(frame: Mapping[str, Any]) -> tuple[str, str, int]:
    """Function, file and line; of a process only its number, for its command line is never kept."""
    line, name = frame.get("line") or 0, str(frame["name"])
    process = _PROCESS.match(name)
    return (
        f'process {process[1]}:"' if process else name[:_LONGEST_NAME],
        str(frame.get("file") or "")[:_LONGEST_NAME],
        int(line) if 0 <= int(line) < 1 << 31 else 0,
    )


def _placed(
    process: int, thread: int, thread_name: str, stack: Sequence[tuple[str, str, int]]
) -> tuple[int, int, str, tuple[tuple[str, str, int], ...]]:
    """Process, thread and its name as the outermost frames say, and the stack without these frames."""
    kept = []
    for frame in stack:
        if not frame[1] and (found := _PROCESS.match(frame[0])):
            process = int(found[1])
        elif not frame[1] and (found := _THREAD.match(frame[0])):
            thread, thread_name = _thread(found)
        else:
            kept.append(frame)
    return process, thread, thread_name, tuple(kept)


def _thread(found: re.Match[str] | None, group: int = 1) -> tuple[int, str]:
    if found is None:
        return UNKNOWN, ""
    number = found[group]
    return int(number) if number.isdecimal() else UNKNOWN, found[group + 1] or ""


# --- rows ---


def stack_samples(rows: Sequence[StackRow]) -> Frame:
    """The rows as those of the signal `stack_samples`, of no rank and on no clock yet."""
    return text_rows.frame("stack_samples", _as_rows(rows))


def _as_rows(rows: Sequence[StackRow]) -> Iterator[dict[str, object]]:
    project = _project({file for row in rows for _, file, _ in row.stack})
    names: dict[tuple[str, str, int], str] = {}
    stacks: dict[tuple[tuple[str, str, int], ...], Stack] = {}
    for row in rows:
        if row.stack and row.stack not in stacks:
            stacks[row.stack] = tuple(names.setdefault(frame, _named(frame, project)) for frame in row.stack)
    workers = {row.process for row in rows if any(map(python_code.WORKER.search, stacks.get(row.stack, ())))}
    trainings = [number for number in dict.fromkeys(row.process for row in rows) if number not in workers]
    for row in rows:
        if row.stack and row.samples:
            stack, is_worker = stacks[row.stack], row.process in workers
            yield {
                "process": row.process, "thread": row.thread, "is_main": _is_main(row, stack[0]),
                "start_ns": row.start_ns, "end_ns": row.end_ns,
                "name": own_line_of_worker(stack) if is_worker else own_line(stack), "stack": "\n".join(stack),
                # Which of several trainings a worker belongs to is not known.
                "training": row.process if not is_worker else trainings[0] if len(trainings) == 1 else UNKNOWN,
                "is_worker": is_worker, "is_on_clock": False, "samples": row.samples,
            }  # fmt: skip


def _is_main(row: StackRow, outermost: str) -> bool:
    """Is it the main thread, by number or name where the file says them? Other threads begin in `threading`."""
    if row.process != UNKNOWN and row.thread == row.process:
        return True
    return row.thread_name == "MainThread" or (not row.thread_name and not python_code.THREAD_BEGIN.search(outermost))


def _named(frame: tuple[str, str, int], project: str) -> str:
    function, file, line = frame
    found = python_code.IN_PACKAGES.match(file)
    path = (found[1] or found[2]) if found else os.path.relpath(file, project) if file.startswith(project) else file
    return f"{path}({line}): {function}"


def _project(files: set[str]) -> str:
    """The folder in which all own files lie that have a whole path."""
    own = [file for file in files if file.startswith("/") and not python_code.IN_PACKAGES.match(file)]
    return os.path.commonpath([str(Path(file).parent) for file in own]).rstrip("/") + "/" if own else "\0"

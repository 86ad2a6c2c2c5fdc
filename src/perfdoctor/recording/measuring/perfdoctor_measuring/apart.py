"""How is something measured so that its crash or hang costs nothing else? In a forked process that sends rows."""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

Row = Dict[str, Any]
Emit = Callable[[Row], None]
_LONGEST_ERROR = 300


def rows_of(works: Sequence[Callable[[Emit], None]], limit_s: float) -> List[Row]:
    """The rows of all `works`, which run at once in a process each; a row with `error` for one that died.

    When one fails or runs longer than `limit_s`, the others are ended: they may wait for each other.
    """
    running: Dict[int, int] = {}
    received: Dict[int, bytes] = {}
    try:
        for work in works:
            pid, stream = _forked(work)
            running[stream], received[stream] = pid, b""
        return _collected(running, received, time.monotonic() + limit_s)
    finally:
        for pid in running.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for stream in received:
            os.close(stream)


def tried(emit: Emit, labels: Row, part: Callable[[], Row]) -> Row:
    """Send and return the row of one part, which holds its `error` if it failed; the others go on."""
    try:
        row = {**labels, **part()}
    except Exception as error:
        row = {**labels, "error": message(error)}
    emit(row)
    return row


def message(error: BaseException) -> str:
    """The error's type and first line."""
    lines = str(error).strip().splitlines()
    return "{}: {}".format(type(error).__name__, lines[0] if lines else "")[:_LONGEST_ERROR]


# --- in the process that measures ---


def _forked(work: Callable[[Emit], None]) -> Tuple[int, int]:
    """Fork a process that does the work; (its id, the descriptor where its rows arrive)."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.close(reading)
        os.dup2(2, 1)  # NCCL may print: the document alone goes to standard output
        _work(work, writing)
    finally:
        os._exit(0)


def _work(work: Callable[[Emit], None], writing: int) -> None:
    def emit(row: Row) -> None:
        data = json.dumps(row).encode() + b"\n"
        while data:
            data = data[os.write(writing, data) :]

    try:
        work(emit)
    except BaseException as error:
        emit({"what": "all", "error": message(error)})


# --- in the process that waits for it ---


def _collected(running: Dict[int, int], received: Dict[int, bytes], deadline: float) -> List[Row]:
    """Rows in the order of the processes. Processes that ended are taken out of `running`."""
    failed: List[Row] = []
    while running and not failed:
        ready = _readable(list(running), deadline - time.monotonic())
        if not ready:
            failed.append({"what": "all", "error": "it took too long, and was ended"})
        for stream in ready:
            piece = os.read(stream, 1 << 16)
            received[stream] += piece
            if not piece:
                _, status = os.waitpid(running.pop(stream), 0)
                if os.WIFSIGNALED(status):
                    failed.append({"what": "all", "error": "it was ended by signal {}".format(os.WTERMSIG(status))})
                elif any(row.get("what") == "all" for row in _rows(received[stream])):
                    failed.append({})
    return [row for data in received.values() for row in _rows(data)] + [row for row in failed if row]


def _readable(streams: Sequence[int], limit_s: float) -> List[int]:
    """Those with data or an end, waited for at most `limit_s`. Not by select(): it refuses numbers above 1023."""
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        return [key.fd for key, _ in selector.select(max(limit_s, 0))]


def _rows(data: bytes) -> List[Row]:
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]

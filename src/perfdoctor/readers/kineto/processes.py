"""How do several processes read one trace, with the rows, repairs and order of one?

Each process reads pieces of the text; their rows are joined in the order of the text. Where a piece does not begin
where the one before has ended, or cannot be read by itself, all that follows is read by one process.

The processes are forked children, or, where nothing can be forked, Pythons of their own that only import this reader.
They end with us however we end.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from perfdoctor.readers.kineto.events import TracePart
from perfdoctor.readers.kineto.pieces import OfFile, OfStream, PartReader, PieceJob
from perfdoctor.system import forked, own_process, spawned
from perfdoctor.system.processors import worker_count
from perfdoctor.system.spawned import receive, send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perfdoctor.readers.kineto.events import Columns, Known

_READY = b"ready"
#: Each process has a thread here, which takes what it has read and asks for more: some three turns a piece. While this
#: process reads one itself, a thread waits so long for its turn; Python's 5 ms would sum up to what a piece takes.
_SWITCH_S = 0.0005
_decoder = msgspec.msgpack.Decoder(TracePart)


# --- in a worker -----------------------------------------------------------------------------------------------------


def main() -> None:
    with contextlib.suppress(OSError):  # who started us is gone
        serve(sys.stdin.buffer, sys.stdout.buffer)


def serve(jobs: BinaryIO, results: BinaryIO) -> None:
    """Read the pieces that `jobs` asks for into `results`, until nobody asks any more."""
    reader = PartReader()
    decoder = msgspec.msgpack.Decoder(PieceJob)
    send(results, _READY)
    with contextlib.closing(reader):
        while (asked := receive(jobs)) is not None:
            send(results, msgspec.msgpack.encode(reader.read(decoder.decode(asked))))


# --- in the process that wants the rows ------------------------------------------------------------------------------


class ForkedReader(forked.Child):
    """A child of this process. OSError where none can be forked."""

    #: A text of 31 MB is read by two processes in the time of one, one of 50 MB in 0.88 of it. Each further process
    #: should have two pieces at least.
    WORTH, WORTH_EACH = 32 << 20, 8 << 20

    def __init__(self) -> None:
        super().__init__(serve)


class SpawnedReader(spawned.Spawned):
    """A Python of its own."""

    #: To start one takes as long as to read 60 to 100 MB.
    WORTH, WORTH_EACH = 96 << 20, 16 << 20

    def __init__(self) -> None:
        super().__init__(__name__, quiet=True)


#: A process that reads the pieces that it is asked for, one behind the other.
PieceWorker = ForkedReader | SpawnedReader


class Shared:
    """Which pieces are there to be read, and which have been: asked and answered by several threads.

    Who is given pieces gets them in the order of the text, and so are their texts numbered.
    """

    def __init__(self, pieces: OfFile | OfStream, workers: int) -> None:
        self._pieces = pieces
        self._most_ahead = pieces.AHEAD * workers
        self._news = threading.Condition()
        self._making = threading.Lock()
        self._found: dict[int, tuple[TracePart, Known]] = {}
        self._given = self._joined = 0
        self._has_ended = False

    def job(self, *, wait: bool = True) -> tuple[int, PieceJob] | None:
        """The next piece to read and its number; None if there is none (any more)."""
        with self._news:
            self._news.wait_for(lambda: not wait or self._may_give())
            if not self._may_give() or self._has_ended:
                return None
        with self._making:  # may inflate the piece
            job = None if self._has_ended else self._pieces.next()
            with self._news:
                if job is None:
                    self._has_ended = True
                    self._news.notify_all()
                    return None
                self._given += 1
                return self._given - 1, job

    def _may_give(self) -> bool:
        return self._has_ended or self._given - self._joined < self._most_ahead

    def put(self, number: int, part: TracePart, known: Known) -> None:
        with self._news:
            self._found[number] = part, known
            self._news.notify_all()

    def next_part(self) -> tuple[TracePart, Known] | None:
        """The next part in the order of the text, and its numbers of texts; None if it has not been read yet."""
        with self._news:
            return self._found.pop(self._joined, None)

    def joined(self) -> None:
        with self._making:
            self._pieces.forget()
        with self._news:
            self._joined += 1
            self._news.notify_all()

    def wait(self) -> bool:
        """Wait for the next part; False if no piece is being read."""
        with self._news:
            if self._given == self._joined:
                return False
            self._news.wait_for(lambda: self._joined in self._found)
            return True

    def stop(self) -> None:
        """Make no further piece."""
        with self._making, self._news:
            self._has_ended = True
            self._news.notify_all()


def feed(worker: PieceWorker, shared: Shared) -> None:
    """Give pieces to a worker, and take what it has read, until there is none. In a thread of its own."""
    known: Known = {}
    out: deque[tuple[int, PieceJob]] = deque()
    try:
        if receive(worker.answers) != _READY:
            return
        while True:
            # The next piece is made while the worker is busy; a text is only sent to who waits for it.
            if len(out) < 2 and (job := shared.job(wait=not out)):
                if out and job[1].text is not None:
                    _take(worker, out, shared, known)
                out.append(job)
                send(worker.questions, msgspec.msgpack.encode(job[1]))
            elif out:
                _take(worker, out, shared, known)
            else:
                return
    except (OSError, ValueError):  # it died, or was ended
        return
    finally:
        for number, _ in out:
            shared.put(number, TracePart(), known)


def _take(worker: PieceWorker, out: deque[tuple[int, PieceJob]], shared: Shared, known: Known) -> None:
    answer = receive(worker.answers)
    if answer is None:
        raise BrokenPipeError
    shared.put(out.popleft()[0], _decoder.decode(answer), known)


@contextlib.contextmanager
def started(length: int) -> Iterator[list[PieceWorker]]:
    """As many workers as such a length of text is worth, or as can be started. None is left behind."""
    workers: list[PieceWorker] = []
    try:
        for kind in KINDS:
            with contextlib.suppress(OSError):
                count = min(worker_count() - 1, length // kind.WORTH_EACH) if length >= kind.WORTH else 0
                for _ in range(count - len(workers)):
                    workers.append(kind())  # noqa: PERF401 those that are started count
        yield workers
    finally:
        for worker in workers:
            worker.end()


#: The first that can be started.
KINDS: tuple[type[ForkedReader | SpawnedReader], ...] = (ForkedReader, SpawnedReader)


def read(
    pieces: OfFile | OfStream,
    workers: Sequence[PieceWorker],
    columns: Columns,
    position: int,
    done: Callable[[int], None],
) -> TracePart:
    """Read pieces, of which the first must begin at `position`, into the columns, as far as they are sound.

    `done` is called with the position behind each. Returns where they end, and the sums of what was counted in them.
    """
    shared = Shared(pieces, len(workers) + 1)
    threads = [threading.Thread(target=feed, args=(worker, shared), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        with own_process.switching_every(_SWITCH_S):
            return _joined(shared, columns, position, done)
    finally:
        shared.stop()
        for worker in workers:
            worker.end()
        for thread in threads:
            thread.join()


def _joined(shared: Shared, columns: Columns, position: int, done: Callable[[int], None]) -> TracePart:
    """Join the sound pieces in the order of the text; this process reads those that no other has taken."""
    known: Known = {}
    total = TracePart(stop=position)
    with contextlib.closing(PartReader()) as own:
        while True:
            if found := shared.next_part():
                part, numbers = found
                if not part.is_sound or part.start != total.stop:
                    return total
                columns.join(part, numbers)
                total.stop = part.stop
                total.count, total.repaired = total.count + part.count, total.repaired + part.repaired
                total.skipped += part.skipped
                shared.joined()
                done(total.stop)
            elif job := shared.job(wait=False):
                shared.put(job[0], own.read(job[1]), known)
            elif not shared.wait():
                return total

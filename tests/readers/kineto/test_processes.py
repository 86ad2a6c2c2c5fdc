"""Several processes read the rows, repairs and notes of one, in its order; and none of them stays."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from unittest import mock

import kineto_traces
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_traces import damaged, events, outcome, plain, trace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.kineto import pieces, processes, repair, window
from perfdoctor.readers.kineto import trace as kineto
from perfdoctor.system import processors


class Thread:
    """As a worker process, but a thread of this one: a hundred of them start in no time."""

    WORTH, WORTH_EACH = 0, 1

    def __init__(self) -> None:
        theirs, mine = os.pipe()
        from_them, to_me = os.pipe()
        self.questions, self.answers = os.fdopen(mine, "wb"), os.fdopen(from_them, "rb")
        self._thread = threading.Thread(target=self._serve, args=(os.fdopen(theirs, "rb"), os.fdopen(to_me, "wb")))
        self._thread.start()

    def _serve(self, jobs, results) -> None:
        with contextlib.suppress(OSError), jobs, results:
            processes.serve(jobs, results)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.questions.close()
        self._thread.join()
        self.answers.close()


def read(path: Path) -> object:
    try:
        return plain(kineto.read(path))
    except PerfdoctorError as error:
        return error.what


@contextlib.contextmanager
def pieces_of(batch: int, batches: int, workers: int, kind: type = Thread):
    """Files are cut into pieces of so many batches of so many bytes, and read by so many workers beside this one."""
    with (
        mock.patch.object(repair, "BATCH_BYTES", batch),
        mock.patch.object(pieces, "PIECE_BATCHES", batches),
        mock.patch.object(repair, "SPARE_BYTES", 64),
        mock.patch.object(kind, "WORTH", 0),
        mock.patch.object(kind, "WORTH_EACH", 1),
        mock.patch.object(processes, "KINDS", (kind,)),
        mock.patch.dict(os.environ, {processors.JOBS: str(workers + 1)}),
    ):
        yield


@settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
@given(st.data(), st.lists(events(odd=0.02), min_size=1, max_size=25), st.sampled_from([60, 250, 1000]))
def test_however_a_text_is_cut_the_rows_and_notes_are_those_of_one_process(tmp_path_factory, data, rows, batch):
    text = data.draw(damaged(trace(rows))) if data.draw(st.booleans()) else trace(rows)
    batches, workers = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([1, 2, 5]))
    path = tmp_path_factory.mktemp("cut") / "trace.json"
    with pieces_of(batch, batches, 0):
        alone = outcome(text)
    with pieces_of(batch, batches, workers):
        for content in (text, gzip.compress(text)):
            path.write_bytes(content)
            assert read(path) == alone
    path.unlink()


def many(count: int = 400) -> list[dict[str, object]]:
    """Events with names that are new throughout, and some that hold what looks like the end of an event."""
    names = ["aten::mm", '}, {"name": 1', 'a{}"],x', "conv é"]
    where = {"pid": 1, "tid": 2, "cat": "cpu_op", "ph": "X", "dur": 3}
    shapes = ({"Input Dims": [[n % 7, n]], "External id": n} for n in range(count))
    return [
        {**where, "name": f"{names[n % 4]}{n // 9}", "ts": 5 * n, "args": args, "more": "x" * (n % 50)}
        for n, args in enumerate(shapes)
    ]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_it_says_how_much_of_the_file_has_been_read(tmp_path, packed, workers):
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(trace(many()), 1) if packed else trace(many()))
    said: list[int] = []
    with pieces_of(100, 1, workers), mock.patch.object(window, "BYTES", 256):
        kineto.read(path, done=said.append)
    assert said == sorted(said)
    assert said[-1] == path.stat().st_size
    assert packed or len(said) > 10


@pytest.mark.parametrize("batch", [100, 777, 4096])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_text_can_be_cut_into_any_number_of_pieces(tmp_path, packed, batch):
    text = trace(many())
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    with pieces_of(batch, 1, 0):
        alone = outcome(text)
    read_by_others = []
    for batches in range(1, len(text) // batch, 1 + len(text) // batch // 25):
        with pieces_of(batch, batches, 2), mock.patch.object(processes, "read", wraps=processes.read) as asked:
            assert read(path) == alone
        read_by_others.append(asked.called)
    assert any(read_by_others)


READ_BY_OTHERS = """
    import os, sys, threading, time
    from pathlib import Path
    from perfdoctor.system import own_process
    own_process.take()  # numpy has one thread, so that this process can be forked
    from perfdoctor.readers.kineto import pieces, processes, repair, trace as kineto
    sys.path[:0] = sys.argv[3:]
    from kineto_traces import plain

    path, kind = Path(sys.argv[1]), getattr(processes, sys.argv[2])
    alone = plain(kineto.read(path))
    given, asked, counts = processes.Shared.job, processes.read, []

    def job(shared, *, wait=True):  # no piece for this process: all is read by the others
        if threading.current_thread() is not threading.main_thread():
            return given(shared, wait=wait)
        while shared._given == shared._joined and not shared._has_ended:
            time.sleep(0.01)

    def counted(*args):
        counts.append(asked(*args))
        return counts[-1]

    processes.Shared.job, processes.read = job, counted
    pieces.PIECE_BATCHES, kind.WORTH, kind.WORTH_EACH, processes.KINDS = 1, 0, 1, (kind,)
    os.environ["PERFDOCTOR_JOBS"] = "3"
    assert plain(kineto.read(path)) == alone
    (part,) = counts
    print(part.count)
"""


@pytest.mark.parametrize("kind", [kind.__name__ for kind in processes.KINDS])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_processes_read_what_one_reads(tmp_path, packed, kind):
    """In a process of its own: this one may have several threads, and is not forked then."""
    text = trace(many(25_000))
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(READ_BY_OTHERS), path, kind, Path(kineto_traces.__file__).parent],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10_000


class Dying(Thread):
    """A worker that ends when it has been given a piece."""

    def _serve(self, jobs, results) -> None:
        with contextlib.suppress(OSError), jobs, results:
            processes.send(results, processes._READY)
            processes.receive(jobs)


class Never(Thread):
    """A worker that cannot be started."""

    def __init__(self) -> None:
        raise OSError("no more processes")


@pytest.mark.parametrize("kind", [Dying, Never])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_worker_that_dies_or_cannot_start_costs_no_row(tmp_path, packed, kind):
    text = trace(many())
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    with pieces_of(500, 2, 2, kind):
        assert read(path) == outcome(text)


def started(self) -> None:
    raise AssertionError("started")


def test_a_small_file_and_a_worker_of_others_start_no_process(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(trace(many()))
    with (
        mock.patch.object(processes.ForkedReader, "__init__", started),
        mock.patch.object(processes.SpawnedReader, "__init__", started),
    ):
        alone = read(path)
        with (
            mock.patch.object(processes.SpawnedReader, "WORTH", 0),
            mock.patch.dict(os.environ, {processors.JOBS: "1"}),
        ):
            assert read(path) == alone


READING = """
    import os, sys, time
    from perfdoctor.system import own_process
    own_process.take()  # numpy has one thread, so that this process can be forked
    from pathlib import Path
    from perfdoctor.readers.kineto import trace as kineto, processes
    kind = getattr(processes, sys.argv[2])
    kind.WORTH, kind.WORTH_EACH, processes.KINDS = 0, 1, (kind,)
    os.environ["PERFDOCTOR_JOBS"] = "4"
    def stuck(pieces, workers, *_):
        for worker in workers:
            processes.receive(worker.answers)
        print(*(worker.pid for worker in workers), flush=True)
        while True:  # a signal that comes just before a system call does not interrupt it
            time.sleep(0.1)
    processes.read = stuck
    kineto.read(Path(sys.argv[1]))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("kind", [kind.__name__ for kind in processes.KINDS])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_who_started_it(tmp_path, end, kind):
    path = tmp_path / "trace.json"
    path.write_bytes(json.dumps({"traceEvents": many(60_000)}).encode())
    started = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(READING), path, kind],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.stdout
    pids = [int(pid) for pid in started.stdout.readline().split()]
    assert len(pids) == 3
    started.send_signal(end)
    started.communicate(timeout=60)
    deadline = time.monotonic() + 60
    while any(map(is_there, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_there, pids))


def is_there(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False

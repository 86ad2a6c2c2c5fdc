"""Where a training hangs, by the stacks of its ranks."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from perfdoctor.recording.tools.py_spy import PySpy
from perfdoctor.report.words import watched
from perfdoctor.watching import hangs
from perfdoctor.watching.hangs import Place, place_of, verdict

_TORCH = "/opt/venv/lib/python3.11/site-packages/torch/"
MAIN = ("main", "/home/me/train.py", 40)


def stack(*frames: tuple[str, str, int], pid: int = 7) -> tuple[hangs._Thread, ...]:
    given = [{"name": name, "filename": file, "line": line} for name, file, line in frames]
    other = {"os_thread_id": 8, "frames": [{"name": "wait", "filename": "/usr/lib/python3.11/threading.py", "line": 1}]}
    threads = [other, {"os_thread_id": pid, "frames": given}]
    return msgspec.convert(threads, tuple[hangs._Thread, ...])


ALL_REDUCE = stack(
    ("all_reduce", _TORCH + "distributed/distributed_c10d.py", 3000),
    ("wrapper", _TORCH + "distributed/c10d_logger.py", 83), ("sync", "/home/me/train.py", 12), MAIN,
)  # fmt: skip
BACKWARD = stack(
    ("_engine_run_backward", _TORCH + "autograd/graph.py", 979), ("backward", _TORCH + "_tensor.py", 1), MAIN
)
LOADER = stack(
    ("wait", "/usr/lib/python3.11/selectors.py", 415), ("poll", "/usr/lib/python3.11/multiprocessing/connection.py", 1),
    ("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
    ("_try_get_data", _TORCH + "utils/data/dataloader.py", 1275),
    ("__next__", "/x/perfdoctor_agent/light.py", 114), MAIN,
)  # fmt: skip


@pytest.mark.parametrize(("threads", "waits", "what", "line"), [
    (ALL_REDUCE, "collective", "all_reduce", "train.py:12 in sync"),
    (BACKWARD, "backward", "backward", "train.py:40 in main"),
    (LOADER, "loader", "_try_get_data", "train.py:40 in main"),
    (stack(MAIN), "", "main", "train.py:40 in main"),
    (stack(("synchronize", _TORCH + "cuda/__init__.py", 1), MAIN), "device", "synchronize", "train.py:40 in main"),
    ((), "", "", ""),
])  # fmt: skip
def test_a_stack_says_what_a_rank_waits_for(threads: tuple, waits: str, what: str, line: str) -> None:
    assert place_of(threads, 7) == Place(waits, what, line)


def test_the_rank_that_is_not_in_the_collective_is_missing() -> None:
    places = {0: place_of(ALL_REDUCE, 7), 1: place_of(stack(MAIN), 7), 2: place_of(ALL_REDUCE, 7)}
    found = verdict(places, {}, {0: 10, 1: 10, 2: 10})
    assert (found.what, found.call, found.waiting, found.missing) == ("collective", "all_reduce", (0, 2), (1,))
    assert watched.hang(found) == "ranks 0, 2 wait in all_reduce; rank 1 is missing, in train.py:40 in main"


def test_the_only_rank_of_this_machine_waits_for_others() -> None:
    found = verdict({3: place_of(ALL_REDUCE, 7)}, {}, {3: 10})
    assert (found.waiting, found.missing) == ((3,), ())
    assert watched.hang(found).startswith("rank 3 waits in all_reduce, in train.py:")


def test_where_all_are_in_one_the_rank_with_fewer_steps_is_missing() -> None:
    places = {rank: place_of(ALL_REDUCE, 7) for rank in range(3)}
    assert verdict(places, {}, {0: 10, 1: 10, 2: 9}).missing == (2,)
    assert verdict(places, {}, {0: 10, 1: 10, 2: 10}).missing == ()


def test_a_rank_that_has_ended_is_the_one_that_the_others_wait_for() -> None:
    places = {rank: place_of(ALL_REDUCE, 7) for rank in (0, 2)}
    for steps in ({0: 10, 1: 10, 2: 10}, {0: 10, 1: 9, 2: 10}):
        found = verdict(places, {}, steps, [1])
        assert (found.waiting, found.missing) == ((0, 2), (1,))
        assert watched.hang(found) == "ranks 0, 2 wait in all_reduce, in train.py:12 in sync; rank 1 has ended"
    places[0] = place_of(stack(MAIN), 7)
    assert verdict(places, {}, {0: 10, 1: 10, 2: 10}, [1]).missing == (0,), "that one computes"
    assert verdict({0: place_of(BACKWARD, 7)}, {}, {0: 10, 1: 10}, [1]).missing == (1,)


def test_a_loaders_worker_is_named_by_its_line() -> None:
    worker = place_of(
        stack(("acquire", "/usr/lib/python3.11/multiprocessing/synchronize.py", 1), ("get", "/home/me/data.py", 6)), 7
    )
    found = verdict({0: place_of(LOADER, 7)}, {0: [Place(), worker]}, {0: 3})
    assert watched.hang(found) == "rank 0 waits for a worker of its DataLoader, which is in data.py:6 in get"


def test_flight_recorders_are_asked_by_their_pipes(tmp_path: Path) -> None:
    given = hangs.flight_recorder({}, tmp_path)
    pipe = Path(f"{given['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}0.pipe")
    os.mkfifo(pipe)
    assert hangs.ask_flight_recorders(tmp_path) == [], "nobody reads it"
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    Path(f"{given['TORCH_NCCL_DEBUG_INFO_TEMP_FILE']}0").write_bytes(b"dump")
    assert hangs.ask_flight_recorders(tmp_path) == ["flight-0"]
    assert os.read(reading, 10) == b"1"
    os.close(reading)
    assert hangs.flight_recorder({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/own"}, tmp_path) == {}


def test_where_a_folder_takes_no_pipes_torch_is_not_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hangs.flight_recorder({}, tmp_path)
    assert list(tmp_path.iterdir()) == []

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "mkfifo", refused)
    assert hangs.flight_recorder({}, tmp_path) == {}


def test_before_the_first_step_neither_launchers_nor_spawned_workers_are_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun (1) has started a rank (7), whose loader has started multiprocessing's tracker (3) and a worker (4)."""
    tracker = stack(
        ("main", "/usr/lib/python3.11/multiprocessing/resource_tracker.py", 1), ("<module>", "<string>", 1), pid=3
    )
    stacks = {1: stack(MAIN, pid=1), 7: LOADER, 3: tracker, 4: stack(("get", "/home/me/data.py", 6), pid=4)}
    below = {1: [3, 4, 7], 7: [3, 4]}
    monkeypatch.setattr(hangs.processes, "descendants", lambda pid: below.get(pid, []))
    monkeypatch.setattr(hangs.processes, "is_alive", lambda _: True)
    monkeypatch.setattr(hangs, "_dumped", lambda _, pid: stacks[pid])
    found = hangs.find_before_steps(PySpy("py-spy"), {1, 4, 7})
    assert watched.hang(found) == "rank 0 waits for a worker of its DataLoader, which is in data.py:6 in get"

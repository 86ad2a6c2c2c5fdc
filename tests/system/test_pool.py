"""One function, many items, several processes: every item gets its outcome, and no process stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import worker_functions as functions

from perfdoctor.errors import UsageError
from perfdoctor.system.pool import WorkerDiedError, each
from perfdoctor.system.processors import JOBS

TESTS = Path(__file__).parents[1]


def by_index(function, items, workers: int = 2) -> list:
    return sorted(each(function, items, workers=workers), key=lambda outcome: outcome.index)


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_every_item_gets_its_own_result(workers: int) -> None:
    outcomes = by_index(functions.squared, range(9), workers)
    assert [(outcome.index, outcome.value()) for outcome in outcomes] == [(n, n * n) for n in range(9)]


def test_results_are_there_as_soon_as_they_are_ready() -> None:
    outcomes = list(each(functions.slower_first, range(4), workers=2))
    assert sorted(outcome.index for outcome in outcomes) == [0, 1, 2, 3]
    assert outcomes[0].index != 0


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_is_the_outcome_of_its_item_alone(workers: int) -> None:
    _, failed, other = by_index(functions.refused, range(3), workers)
    assert other.value() == 2
    with pytest.raises(UsageError) as caught:
        failed.value()
    assert (caught.value.what, caught.value.do) == ("no ones", "Take a two.")


def test_a_bug_keeps_the_place_where_it_was_raised() -> None:
    _, bug, odd, fine = by_index(functions.broken, range(4))
    assert isinstance(bug.error, ZeroDivisionError)
    assert "worker_functions.py" in str(bug.error.__cause__)
    assert "_OddError" in str(odd.error)
    assert "worker_functions.py" in str(odd.error.__cause__)
    assert fine.value() == 3


def test_a_result_that_cannot_be_sent_is_an_error() -> None:
    _, failed, fine = by_index(functions.not_to_be_sent, range(3))
    assert "cannot be sent" in str(failed.error)
    assert fine.value() == 2


def test_an_item_whose_worker_is_killed_is_tried_once_more(tmp_path: Path) -> None:
    markers = ["", str(tmp_path / "killed"), ""]
    assert [outcome.value() for outcome in by_index(functions.dies_once, markers)] == markers
    assert (tmp_path / "killed").exists()


def test_an_item_that_ends_every_worker_is_an_error_and_the_others_are_done() -> None:
    outcomes = by_index(functions.dies_always, range(6))
    assert isinstance(outcomes[1].error, WorkerDiedError)
    assert "exit code 7" in str(outcomes[1].error)
    assert [outcome.result for outcome in outcomes] == [0, None, 2, 3, 4, 5]


def test_results_larger_than_a_pipe_arrive() -> None:
    assert [len(outcome.value()) for outcome in by_index(functions.large, [5_000_000, 3, 6_000_000])] == [
        5_000_000, 3, 6_000_000,
    ]  # fmt: skip


def test_a_worker_has_one_processor_and_imports_no_main_module() -> None:
    assert {outcome.value() for outcome in by_index(functions.environment, [JOBS, JOBS])} == {("1", False)}


def test_no_worker_stays_where_nobody_wants_the_rest(tmp_path: Path) -> None:
    folders = [str(tmp_path / "missing"), *[str(tmp_path)] * 5]
    outcomes = each(functions.starts, folders, workers=2)
    assert next(outcomes).error is not None
    outcomes.close()
    assert not _alive(tmp_path)


@pytest.mark.parametrize("ended_by", ["SIGINT", "SIGKILL"])
def test_no_worker_stays_where_the_program_is_ended(tmp_path: Path, ended_by: str) -> None:
    """Ctrl-C reaches all processes of the terminal; a kill reaches the first one alone."""
    program = (
        "import worker_functions; from perfdoctor.system.pool import each\n"
        f"list(each(worker_functions.starts, [{str(tmp_path)!r}] * 4, workers=3))"
    )
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    _until(lambda: len(list(tmp_path.iterdir())) == 3)
    if ended_by == "SIGINT":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.kill()
    _, errors = process.communicate(timeout=60)
    _until(lambda: not _alive(tmp_path))
    assert errors.count("Traceback") == (ended_by == "SIGINT")  # the workers say nothing


def _alive(folder: Path) -> list[int]:
    return [int(file.name) for file in folder.iterdir() if _runs(int(file.name))]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(holds) -> None:
    for _ in range(3000):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come true within a minute")

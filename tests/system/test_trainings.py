"""Which processes of a command are ranks of one job, and which train each for itself?"""

from __future__ import annotations

import json
from pathlib import Path

from perfdoctor.system.run_folder import Manifest, RunFolder
from perfdoctor.system.trainings import longest, trainings

SECOND = 10**9


def grouped(tmp_path: Path, *processes: dict[str, object]) -> list[list[int]]:
    """The pids of each training. Processes begin a second after each other, and have pids from 1."""
    return [[report.pid for report in each.reports] for each in trainings(reports(tmp_path, *processes))]


def reports(tmp_path: Path, *processes: dict[str, object]) -> list:
    folder = RunFolder.create(tmp_path / "run", Manifest(perfdoctor="0"))
    for number, given in enumerate(processes, 1):
        begun = {"started_unix_ns": number * SECOND, "unix_ns": (number + 5) * SECOND}
        document = {"pass": "torch", "pid": number, "steps_seen": 9, "rank": 0, "world_size": 1, **begun, **given}
        (folder.path / "agents" / f"torch-{number}.json").write_text(json.dumps(document))
    return folder.reports("torch")


def rank(number: int, of: int = 2, job: str = "port 29500") -> dict[str, object]:
    return {"rank": number, "world_size": of, "job": job}


def test_processes_without_a_job_of_several_ranks_train_each_for_itself(tmp_path: Path) -> None:
    assert grouped(tmp_path, {}, {"rank": None, "world_size": None}, {"steps_seen": 0}, {}) == [[1], [2], [4]]


def test_processes_that_began_within_a_tick_of_the_clock_are_in_order_of_their_ids(tmp_path: Path) -> None:
    begins = (1_000_000_000, 990_100_000, 995_000_000)  # read with a jitter, on both sides of a tick's edge
    together = [{"started_unix_ns": begin} for begin in begins]
    assert grouped(tmp_path, *together, {"started_unix_ns": 500_000_000}) == [[4], [1], [2], [3]]


def test_ranks_that_occur_once_are_one_job_whoever_started_them(tmp_path: Path) -> None:
    assert grouped(tmp_path, rank(1, job="parent 7"), rank(0, job="parent 8"), {}) == [[2, 1], [3]]


def test_two_jobs_at_a_time_are_told_apart_by_their_ports(tmp_path: Path) -> None:
    jobs = [rank(0), rank(0, job="port 29501"), rank(1, job="port 29501"), rank(1)]
    assert grouped(tmp_path, *jobs) == [[1, 4], [2, 3]]


def test_jobs_one_after_another_on_the_same_port_are_told_apart_by_their_order(tmp_path: Path) -> None:
    assert grouped(tmp_path, rank(0), rank(1), rank(1), rank(0)) == [[1, 2], [4, 3]]


def test_ranks_of_an_older_agent_are_one_job(tmp_path: Path) -> None:
    old = {"started_unix_ns": 0, "unix_ns": 0}
    assert grouped(tmp_path, rank(1, job="") | old, rank(0, job="") | old) == [[2, 1]]
    assert trainings(RunFolder(tmp_path / "run", Manifest()).reports("torch"))[0].length_ns == 0


def test_first_is_the_one_that_updates_then_the_one_with_most_recorded_steps_then_the_longest(tmp_path: Path) -> None:
    found = trainings(
        reports(
            tmp_path,
            {"steps_recorded": 10, "step_found_by": "forward"},
            {"steps_recorded": 4, "step_found_by": "optimizer"},
            {"steps_recorded": 9, "step_found_by": "optimizer"},
            {"steps_recorded": 9, "step_found_by": "optimizer", "unix_ns": 60 * SECOND},
            {"steps_seen": 900, "step_found_by": "optimizer"},
        )
    )
    assert longest(found).number == 4
    assert longest(found[:3]).number == 3
    assert longest([found[0], found[4]]).number == 1  # of the other one nothing was recorded
    assert found[3].length_ns == 56 * SECOND

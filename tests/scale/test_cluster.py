"""The same on a Dask cluster: two real workers in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import worker_functions as functions
from folders import FIXTURES
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.diagnosis.engine import examine
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.report import json_report
from perfdoctor.scale import cluster
from perfdoctor.scale.read import read_run
from perfdoctor.system.pool import WorkerDiedError
from perfdoctor.system.processors import JOBS
from perfdoctor.system.progress import silent
from perfdoctor.vocabulary.rulebook import load_rules


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as started:
        yield started.scheduler_address


def by_index(function, items, address: str) -> list:
    return sorted(cluster.each(function, items, address), key=lambda outcome: outcome.index)


def test_every_item_gets_its_own_result_or_error(address: str) -> None:
    outcomes = list(cluster.each(functions.refused, range(20), address))
    assert {outcome.index: outcome.result for outcome in outcomes} == {n: n if n != 1 else None for n in range(20)}
    (refused,) = (outcome.error for outcome in outcomes if outcome.error)
    assert isinstance(refused, UsageError)
    assert refused.do == "Take a two."


def test_a_bug_keeps_the_place_where_it_was_raised(address: str) -> None:
    _, bug, odd, fine = by_index(functions.broken, range(4), address)
    assert isinstance(bug.error, ZeroDivisionError)
    assert "worker_functions.py" in str(bug.error.__cause__)
    assert "_OddError" in str(odd.error)
    assert fine.value() == 3


def test_an_item_whose_worker_is_killed_is_tried_once_more(address: str, tmp_path: Path) -> None:
    markers = ["", str(tmp_path / "killed"), ""]
    assert [outcome.value() for outcome in by_index(functions.dies_once, markers, address)] == markers
    assert (tmp_path / "killed").exists()


def test_one_process_several_and_a_cluster_give_the_same_bytes(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def diagnosis(**how) -> str:
        run = read_run([FIXTURES / "straggler" / "torch"], silent, most_in_full=0, **how)
        return json_report.render(examine(run, list(load_rules().values())).diagnosis)

    monkeypatch.setenv(JOBS, "1")
    expected = diagnosis()
    assert "rank-skew" in expected
    monkeypatch.setenv(JOBS, "3")
    assert diagnosis() == expected
    assert diagnosis(cluster=address) == expected


def test_what_nodes_left_is_read_here_and_asks_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, ["summarize", str(FIXTURES / "straggler" / "torch"), "-o", str(tmp_path)])
    assert done.exit_code == 0, done.stderr
    here = json_report.render(examine(read_run([tmp_path], silent), list(load_rules().values())).diagnosis)
    monkeypatch.setattr(cluster, "each", lambda *_: pytest.fail("a cluster was asked"))
    asked = read_run([tmp_path], silent, cluster="tcp://127.0.0.1:1")
    assert json_report.render(examine(asked, list(load_rules().values())).diagnosis) == here


def test_workers_of_this_machine_are_started_and_one_that_always_dies_is_an_error() -> None:
    pytest.importorskip("distributed")
    outcomes = by_index(functions.dies_always, range(4), "local[2]")
    assert isinstance(outcomes[1].error, WorkerDiedError)
    assert [outcome.result for outcome in outcomes] == [0, None, 2, 3]


def test_a_worker_with_another_version_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "__version__", "99.0")
    with pytest.raises(PerfdoctorError, match=r"a worker of the cluster has perfdoctor .*, and this is 99\.0"):
        by_index(functions.squared, range(2), address)


@pytest.mark.parametrize("named", ["local[0]", "local[]", "localhost", "127.0.0.1:8786", "http://h:1", "tcp://", ""])
def test_what_names_no_cluster_is_refused_before_any_work(named: str) -> None:
    with pytest.raises(UsageError, match="names no Dask cluster"):
        cluster.checked(named)


@pytest.mark.parametrize("named", ["local[4]", "local", "tcp://10.0.0.1:8786", "tls://head:8786"])
def test_what_names_a_cluster_is_taken(named: str) -> None:
    assert cluster.checked(named) == named


def test_without_workers_it_says_that_it_waits_and_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "_WORKERS_S", 0.5)
    said: list[str] = []
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as empty,
        pytest.raises(PerfdoctorError, match="has had no worker for") as error,
    ):
        list(cluster.each(functions.refused, range(3), empty.scheduler_address, said.append))
    assert "dask worker tcp://" in error.value.do
    assert len(said) == 1
    assert said[0].startswith("Waiting for workers of the cluster")


def test_without_a_scheduler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "_TIMEOUT_S", 1)
    with pytest.raises(PerfdoctorError, match="no Dask scheduler answers at tcp://127.0.0.1:1"):
        by_index(functions.squared, range(2), "tcp://127.0.0.1:1")


def test_without_dask_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(PerfdoctorError, match="--cluster needs Dask") as caught:
        by_index(functions.squared, range(2), "local[2]")
    assert "pip install 'perfdoctor[cluster]'" in caught.value.do


def test_ctrl_c_ends_the_workers_of_this_machine_without_a_word(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    program = (
        "import worker_functions; from perfdoctor.scale.cluster import each\n"
        f"list(each(worker_functions.starts, [{str(tmp_path)!r}] * 4, 'local[2]'))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors.strip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1
    for file in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.name), 0)

"""Runs with a fault in each: the program is what it would be alone. `make faults` draws many, here are a few of them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import faulty_runs
import pytest
from faulty_runs import FAULTS, PROGRAMS, Case, Ran

from perfdoctor.recording.tools import ncu


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case("exits", "script", "torch", "none", tmp_path, Random(1))


@pytest.mark.parametrize(
    ("program", "way", "fault"),
    [
        ("exits", "-I", "none"),
        ("multiprocessing-forkserver", "script", "kill other"),
        ("raises", "-c", "limit NOFILE=24"),
    ],
)
def test_a_program_is_what_it_would_be_alone(tmp_path: Path, program: str, way: str, fault: str) -> None:
    assert faulty_runs.tried(Case(program, way, "torch", fault, tmp_path, Random(1))) == []


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(60))
def test_many_programs_are_what_they_would_be_alone(tmp_path: Path, number: int) -> None:
    case = faulty_runs.drawn(number, 11, tmp_path)
    assert not faulty_runs.tried(case), str(case)


def test_every_program_and_every_fault_is_drawn(tmp_path: Path) -> None:
    drawn = [faulty_runs.drawn(number, 0, tmp_path) for number in range(3_000)]
    possible = {fault for fault in FAULTS if faulty_runs.is_possible(fault, "nsys")}
    assert {case.fault for case in drawn} == possible
    assert set(PROGRAMS) <= {case.program for case in drawn}


@pytest.mark.parametrize(
    ("ran", "wrong"),
    [
        (Ran(0, b"line 1\n", b""), "exit code 0, alone 7"),
        (Ran(7, b"line 1\nline 2\n", b""), "output of 14 bytes, alone 7"),
        (Ran(7, b"", b""), "output of 0 bytes"),
        (Ran(7, b"line 1\n", b"Traceback (most recent call last):\n  x"), "a traceback"),
        (Ran(7, b"line 1\n", b"perfdoctor: the torch pass failed. This is a bug of perfdoctor"), "a frame of ours"),
    ],
)
def test_what_differs_from_the_program_alone_is_seen(case: Case, ran: Ran, wrong: str) -> None:
    (case.folder / "recorded" / "run").mkdir(parents=True)
    (case.folder / "recorded" / "run" / "run.json").write_text('{"passes": []}')
    alone = Ran(7, b"line 1\n", b"")
    assert list(faulty_runs.wrong(case, alone, alone, set())) == []
    (found,) = faulty_runs.wrong(case, alone, ran, set())
    assert found.startswith(wrong)


def test_files_that_are_left_and_files_that_are_gone_are_seen(case: Case) -> None:
    run = case.folder / "recorded" / "run"
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"passes": [{"name": "torch", "state": "done", "files": ["gone"], "notes": []}]}')
    (run / ".run.json.1.tmp").write_text("")
    (case.folder / "tmpdir").mkdir()
    (case.folder / "tmpdir" / "left").write_text("")
    alone = Ran(7, b"", b"")
    assert list(faulty_runs.wrong(case, alone, alone, set())) == [
        "files are left: ['tmpdir/left']",
        "drafts are left: ['.run.json.1.tmp']",
        "the pass torch names files that are not there: ['gone']",
    ]


def test_the_ncu_that_stands_in_has_the_options_without_which_there_is_no_pass(tmp_path: Path) -> None:
    stand_in = tmp_path / "ncu"
    stand_in.write_text(faulty_runs.NCU)
    stand_in.chmod(0o755)
    assert set(ncu._REQUIRED) <= ncu.options(str(stand_in))

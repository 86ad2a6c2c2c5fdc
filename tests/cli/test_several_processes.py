"""One analysis by several processes: the same bytes as by one, whatever becomes of the others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "fixtures" / "launch-bound" / "torch" / "rank0.pt.trace.json.gz"

#: Small recordings are worth processes here, and what is forked is counted.
PROGRAM = """
import gzip, os, signal, sys
from perfdoctor.system import own_process
own_process.take()
from perfdoctor.model import run as runs
from perfdoctor.readers.kineto import processes, repair
runs._WORTH_CHILDREN = processes.ForkedReader.WORTH = 0
processes.ForkedReader.WORTH_EACH = 1
processes.KINDS = (processes.ForkedReader,)
repair.BATCH_BYTES = 1 << 13
how, forked, fork = os.environ["HOW"], [], os.fork
def forking():
    if how == "forbidden":
        raise OSError("no")
    child = fork()
    if not child and how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    forked.append(child)
    return child
os.fork = forking
from perfdoctor.cli.main import main
sys.argv = ["perfdoctor", "analyze", *sys.argv[1:]]
try:
    main()
finally:
    print(len(forked), file=sys.stderr)
"""


def analysed(into: Path, jobs: int, how: str = "") -> tuple[tuple[bytes, bytes], int]:
    """The diagnosis as JSON and as a page, and how many processes were forked for it."""
    page = into / "page.html"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, TRACE, "--json", "-", "--html", page],
        env={**os.environ, "PERFDOCTOR_JOBS": str(jobs), "HOW": how},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return (done.stdout, page.read_bytes()), int(done.stderr.splitlines()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
def test_the_diagnosis_is_the_same_by_any_number_of_processes(tmp_path: Path) -> None:
    alone, forked = analysed(tmp_path, 1)
    assert not forked
    for jobs in (2, 3):
        assert analysed(tmp_path, jobs) == (alone, 3 * (jobs - 1))  # to read, for the rules, for the pages
    assert analysed(tmp_path, 2, "forbidden") == (alone, 0)
    assert analysed(tmp_path, 3, "killed") == (alone, 6)

"""How many processes answer questions about a run?"""

from __future__ import annotations

import os

import pytest
from builders import draw

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model import run as runs


@pytest.mark.parametrize(("rows_that_fit", "processes"), [(0.5, 1), (1, 2), (3.5, 4), (1000, 4)])
def test_the_longer_a_run_the_fewer_processes_hold_what_they_work_out(rows_that_fit, processes, monkeypatch):
    run = prepare(draw(kernels="####  ####"))
    monkeypatch.setattr(runs, "_WORTH_CHILDREN", 1)
    monkeypatch.setattr(runs, "_CHILDREN_BYTES", int(rows_that_fit * run.rows * runs._CHILD_BYTES_A_ROW))
    monkeypatch.setattr("perfdoctor.system.forked.extra_processes", lambda: 3)
    assert min(run._children(), 3) == processes - 1
    pids = run.several([os.getpid] * 50)
    assert len(set(pids)) <= processes

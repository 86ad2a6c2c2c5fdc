"""How many processes look at a run?"""

from __future__ import annotations

import os

import pytest
from builders import draw

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model import by_several


@pytest.mark.parametrize(("rows_that_fit", "processes"), [(0.5, 1), (1, 2), (3.5, 4), (1000, 4)])
def test_the_longer_a_run_the_fewer_processes_hold_what_they_work_out(rows_that_fit, processes, monkeypatch):
    run = prepare(draw(kernels="####  ####"))
    rows = sum(map(len, run.timeline.frames.values()))
    monkeypatch.setattr(by_several, "_WORTH_PROCESSES", 1)
    monkeypatch.setattr(by_several, "_OWN_BYTES", int(rows_that_fit * rows * by_several._OWN_BYTES_A_ROW))
    monkeypatch.setattr("perfdoctor.system.beside.extra_processes", lambda: 3)
    assert by_several._extra_processes(run) == processes - 1
    assert by_several.is_worth_processes(run) == (processes > 1)
    pids = by_several.each([os.getpid] * 50, run)
    assert len(set(pids)) <= processes

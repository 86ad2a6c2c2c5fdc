"""cpu-threads-unused: cores are idle while few threads compute long ops."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding
from machine_builders import on_cores

#: Steps of 40 ms, 30 of them in one op; 16 cores, one thread, fifteen cores idle.
LONG = draw(host=["o" * 30 + " " * 10], repeat=6, unit_us=1000)
ALONE = {"allowed_cores": 16, "busy_cores": 1, "program_cores": 1, "idle_cores": 15.0, "torch_threads": 1}


def on_sixteen(drawn, **more):
    return on_cores(drawn, process_cores=16, **{**ALONE, **more})


def test_one_thread_on_sixteen_cores_is_found():
    finding = only_finding("cpu-threads-unused", on_sixteen(LONG))
    assert (finding.values["torch_threads"], finding.values["cores"]) == (1, 16)
    assert finding.values["long_ms"] == pytest.approx(30)
    saving = finding.saving_ns_per_step
    assert saving.low == 0
    assert saving.likely == pytest.approx(0.5 * 30e6 * 15 / 16)
    assert saving.high == pytest.approx(30e6 * 15 / 16)


def test_it_stays_silent_where_half_of_the_cores_compute():
    """Two of them may be one of the processor's."""
    assert findings("cpu-threads-unused", on_sixteen(LONG, torch_threads=8)) == []
    assert findings("cpu-threads-unused", on_sixteen(LONG, torch_threads=4, processes=2)) == []


def test_it_stays_silent_where_others_use_the_cores():
    assert findings("cpu-threads-unused", on_sixteen(LONG, idle_cores=11.0)) == []


def test_it_stays_silent_where_ops_are_short():
    short = draw(host=["ou" * 20], repeat=6, unit_us=100)
    assert findings("cpu-threads-unused", on_sixteen(short)) == []


def test_it_stays_silent_where_most_of_the_step_is_no_op():
    idle = draw(host=["o" * 7 + " " * 33], repeat=6, unit_us=1000)
    assert findings("cpu-threads-unused", on_sixteen(idle)) == []


def test_it_stays_silent_on_a_gpu():
    on_gpu = draw(kernels="#" * 40, host=["l" + "o" * 39], repeat=6, unit_us=1000)
    assert findings("cpu-threads-unused", on_sixteen(on_gpu)) == []

"""worker-restarts: the DataLoader's workers are started anew in the middle of the training."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary
from msgspec.structs import replace

LEGEND = {
    "B": ("functions", "torch/utils/data/dataloader.py(440): _get_iterator"),
    "p": ("functions", "multiprocessing/process.py(110): start"),
}


def step(wait: int, start: str = "p", *, of: int = 40, begin: str = "B", **more):
    """Each step ends with a new iterator, for `wait` ms, in which processes are started."""
    host = ["l" + " " * (of - 1), " " * (of - wait - 1) + begin * (wait + 1), " " * (of - wait) + start * wait]
    return draw(
        kernels="#" * (of - wait) + " " * wait, host=host, repeat=6, unit_us=1000, legend=LEGEND, **more
    )  # fmt: skip


def test_it_fires_where_each_step_starts_workers():
    finding = only_finding("worker-restarts", step(10), recoverable_share_low=0.5, recoverable_share_likely=0.9)
    assert (finding.values["lost_ms"], finding.values["step_ms"], finding.values["lost_percent"]) == (10.0, 40.0, 25.0)
    assert finding.values["restarts"] == pytest.approx(finding.values["steps_seen"], abs=1)
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (5_000_000, 9_000_000)
    assert "Restarts of workers" in summary(finding)


def test_the_end_of_the_workers_counts_as_well():
    """5 ms until they have ended, then 10 ms until new ones are there, of 40."""
    ending = {"e": ("functions", "torch/utils/data/dataloader.py(1606): _shutdown_workers")}
    host = ["l" + " " * 39, " " * 24 + "n" * 5 + "B" * 11, " " * 24 + "e" * 5 + " p" + "p" * 9]
    drawn = draw(kernels="#" * 24 + " " * 16, host=host, repeat=6, unit_us=1000, legend=LEGEND | NEXT | ending)
    finding = only_finding("worker-restarts", drawn)
    assert (finding.values["lost_ms"], finding.explains) == (16.0, ("input-wait",))


def test_it_stays_silent_just_below_the_threshold():
    assert findings("worker-restarts", step(1, of=40)) == []  # 2.5 %
    assert len(findings("worker-restarts", step(1, of=33))) == 1  # 3.03 %


def test_it_stays_silent_where_the_iterator_has_no_workers():
    assert findings("worker-restarts", step(10, " ")) == []


def test_it_stays_silent_where_another_process_is_started():
    assert findings("worker-restarts", step(10, begin="f")) == []


def test_it_stays_silent_where_the_device_is_busy_meanwhile():
    host = ["l" + " " * 39, "  " + "B" * 36, "   " + "p" * 30]
    drawn = draw(kernels="#" * 40, host=host, host_ahead=45, repeat=6, unit_us=1000, legend=LEGEND)
    assert findings("worker-restarts", drawn) == []


def test_the_number_is_what_the_picture_says():
    """7 of 50 ms in each step, drawn so."""
    assert only_finding("worker-restarts", step(7, of=50)).values["lost_percent"] == pytest.approx(100 * 7 / 50)


NEXT = {"n": ("ranges", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")}


def waited(first: str):
    """Steps of three batches, 40 ms each: 1 ms of waiting is usual; for the last, workers start in 4 ms, then `first`."""
    usual = " " * 38 + "n" + " "
    end = 40 - len(first) - 4
    last = " " * (end + 4) + first
    host = [
        ("l" + " " * 39) * 3,
        (" " * 80) + " " * end + "B" * 4 + " " * len(first),
        (" " * 80) + " " * end + "p" * 4 + " " * len(first),
        usual * 2 + last,
    ]  # fmt: skip
    kernels = ("#" * 38 + "  ") * 2 + "#" * end + " " * (4 + len(first))
    return draw(kernels=kernels, host=host, repeat=6, unit_us=1000, legend={**LEGEND, **NEXT})


def test_the_wait_for_the_first_batch_is_the_restart_s_as_far_as_it_is_longer_than_usual():
    """4 ms of start, and 6 ms of waiting where 1 ms is usual: 9 ms in 120, which is 7.5 %."""
    finding = only_finding("worker-restarts", waited("nnnnnn"))
    assert finding.values["lost_percent"] == pytest.approx(100 * (4 + 6 - 1) / 120)


def test_a_first_batch_as_quick_as_the_others_is_none_of_it():
    finding = only_finding("worker-restarts", waited("n"))
    assert finding.values["lost_percent"] == pytest.approx(100 * 4 / 120)


def test_waits_without_a_restart_are_none_of_it():
    drawn = waited("nnnnnn")
    rows = drawn["functions"]
    frames = {**drawn.frames, "functions": rows.take(~rows.name.equals("multiprocessing/process.py(110): start"))}
    assert findings("worker-restarts", replace(drawn, frames=frames)) == []

"""blocking-checkpoint: the training's own thread writes or reads files while the device has nothing to do."""

from __future__ import annotations

import pytest
from builders import draw, findings, full_queue, only_finding, summary, timeline

from perfdoctor.model.timeline import merge

MS = 1_000_000
TORCH_SAVE = {"k": ("ranges", "torch.save")}


def step(saving: int, char: str = "k", *, of: int = 40, repeat: int = 6, unit_us: float = 1000, **more):
    """A step of `of` units, busy but for the last `saving`, in which the thread that launches has file work to do."""
    kernels = "#" * (of - saving) + " " * saving
    host = ["l" + " " * (of - 1), " " * (of - saving) + char * saving]
    return draw(kernels=kernels, host=host, repeat=repeat, unit_us=unit_us, **more)


def on_the_host(saving: int, char: str = "k", *, of: int = 40, **more):
    """The same without a GPU: ops, then file work."""
    return draw(host=["o" * (of - saving) + char * saving], repeat=6, unit_us=1000, **more)


def every_second(busy: int, saving: int, *, pairs: int = 4):
    """Pairs of steps of `busy` units, of which the second saves."""
    rows, work, calls = [], [], []
    at = 10 * MS
    for number in range(2 * pairs + 1):
        calls.append({"start_ns": at, "end_ns": at + 1000, "name": "cudaLaunchKernel", "correlation": number + 1})
        work.append({"start_ns": at, "end_ns": at + busy * MS, "name": "some_kernel", "correlation": number + 1})
        rows.append({"start_ns": at, "end_ns": at + busy * MS, "name": f"ProfilerStep#{number}"})
        at += busy * MS
        if number % 2:
            rows[-1]["end_ns"] = at + saving * MS
            rows.append({"start_ns": at, "end_ns": at + saving * MS, "name": "torch.save"})
            at += saving * MS
    return timeline(kernels=work, copies=[], collectives=[], calls=calls, ranges=rows)


def test_it_fires_where_the_loop_saves_in_every_step():
    finding = only_finding("blocking-checkpoint", step(10), recoverable_share_low=0.5, recoverable_share_likely=0.8)
    # 10 of 40 ms
    assert (finding.values["storage_ms"], finding.values["step_ms"]) == (10.0, 40.0)
    assert finding.values["storage_percent"] == 25.0
    assert finding.values["steps_hit"] == finding.values["steps_seen"]
    assert finding.values["longest_ms"] == 10.0
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (5 * MS, 8 * MS)
    assert finding.saving_ns_per_step.high == 10 * MS
    assert (finding.confidence, finding.situation) == ("high", "")
    assert "10.0 ms of a 40.0 ms step (25 %)" in summary(finding)


def test_it_fires_on_a_run_without_a_gpu():
    finding = only_finding("blocking-checkpoint", on_the_host(10, legend=TORCH_SAVE))
    assert (finding.values["storage_ms"], finding.values["step_ms"]) == (10.0, 40.0)
    assert finding.evidence[-1].rows == (("torch.save", 6, 60 * MS),)


@pytest.mark.parametrize(
    ("signal", "name"),
    [("functions", "torch/serialization.py(944): save"), ("ops", "torch.save"), ("os_calls", "fsync")],
)
def test_it_fires_whatever_tells_of_the_file(signal, name):
    finding = only_finding("blocking-checkpoint", step(10, "z", legend={"z": (signal, name)}))
    assert [row[0] for row in finding.evidence[-1].rows] == [name]


def test_it_tells_how_often_it_happens_and_how_long_the_longest_takes():
    finding = only_finding("blocking-checkpoint", every_second(20, 30))
    # 20 ms, then 20 ms + 30 ms of saving: a mean of 35 ms, 15 ms of it saving
    assert (finding.values["storage_ms"], finding.values["step_ms"]) == (15.0, 35.0)
    assert (finding.values["steps_hit"], finding.values["steps_seen"]) == (4, 8)
    assert finding.values["longest_ms"] == 30.0
    assert "in 4 of 8 recorded steps and takes up to 30 ms" in summary(finding)


def test_of_a_single_checkpoint_it_says_that_its_rate_is_not_known():
    finding = only_finding("blocking-checkpoint", every_second(20, 30, pairs=1))
    assert (finding.situation, finding.confidence) == ("once", "medium")
    assert (finding.values["steps_hit"], finding.values["steps_seen"]) == (1, 3)
    assert "depends on how often" in summary(finding)


def test_without_steps_numbers_are_for_the_window():
    picture = draw(kernels="####        ++++", host=["l          l    ", "    kkkkkkk     "], unit_us=1000)
    finding = only_finding("blocking-checkpoint", picture)
    assert (finding.situation, finding.confidence) == ("window", "medium")
    assert (finding.values["storage_ms"], finding.values["step_ms"]) == (7.0, 16.0)
    assert [type(evidence).__name__ for evidence in finding.evidence] == ["Measure", "Rows"]


def test_the_rank_that_writes_tells_what_the_job_loses():
    """The other rank waits for it, in a collective."""
    waiting = draw(
        kernels="#" * 30 + " " * 10, nccl=" " * 30 + "=" * 10, host=["l" + " " * 28 + "l" + " " * 10],
        rank=1, repeat=6, unit_us=1000,
    )  # fmt: skip
    finding = only_finding("blocking-checkpoint", merge([step(10, rank=0), waiting]))
    assert finding.values["storage_ms"] == 10.0
    assert "rank 0" in finding.evidence[0].label


def test_it_stays_silent_just_below_the_threshold():
    assert findings("blocking-checkpoint", step(1, of=40)) == []  # 2.5 %
    assert len(findings("blocking-checkpoint", step(1, of=33))) == 1  # 3.03 %
    assert findings("blocking-checkpoint", on_the_host(1, of=40)) == []
    assert len(findings("blocking-checkpoint", on_the_host(1, of=33))) == 1


def test_it_stays_silent_where_the_device_is_busy_while_the_host_saves():
    """The queue is full: the host saves, and the device never notices."""
    assert findings("blocking-checkpoint", full_queue("k" * 30)) == []


def test_it_stays_silent_where_a_thread_beside_the_training_writes():
    """The device is idle, and a file is being written; but the thread that launches is busy with something else."""
    picture = draw(
        kernels="#" * 30 + " " * 10,
        host={1: ["l" + " " * 39, "o" * 40], 2: [" " * 10 + "k" * 30], 3: [" " * 30 + "R" * 10]},
        repeat=6,
        unit_us=1000,
    )
    assert findings("blocking-checkpoint", picture) == []


def test_it_stays_silent_where_the_loader_reads_the_files():
    """Reading inside the loader's `__next__` is a wait for the batch, and input-wait's to tell."""
    picture = draw(
        kernels="#" * 30 + " " * 10,
        host=["l" + " " * 39, " " * 29 + "I" * 11, " " * 31 + "R" * 8],
        repeat=6,
        unit_us=1000,
    )
    assert findings("blocking-checkpoint", picture) == []
    assert len(findings("input-wait", picture)) == 1

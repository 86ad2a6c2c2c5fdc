"""memory-growth: memory that rises with every step."""

from __future__ import annotations

import pytest
from builders import BASE_NS, findings, only_finding, summary, timeline
from snapshots import Recording

from perfdoctor.model.timeline import Device, Timeline
from perfdoctor.readers.torch_memory import snapshot as memory_snapshot
from perfdoctor.records.findings import Rows
from perfdoctor.records.savings import Saving

MB = 1_000_000
STEP_NS = 10_000_000


def held(*allocated: float, kind: str = "cuda", device: int = 0, rank: int = 0, ops: int = 0, **more) -> Timeline:
    """What a process held at the end of each step, in MB, and `ops` recorded ops in each step."""
    moments = [BASE_NS + number * STEP_NS for number in range(len(allocated))]
    where = {"rank": rank, "process": 100 + rank, "device": device}
    memory = [
        {**where, "start_ns": at, "end_ns": at, "allocated_bytes": round(each * MB), "reserved_bytes": 0, "name": kind}
        for at, each in zip(moments, allocated, strict=True)
    ]
    rows = [
        {"rank": rank, "start_ns": at + number * 10, "end_ns": at + number * 10 + 5, "name": "aten::add"}
        for at in moments[:-1]
        for number in range(ops)
    ]
    return timeline(memory=memory, ops=rows, **more)


def rising(by: float, *, steps: int = 9, start: float = 500, **more) -> Timeline:
    return held(*(start + by * number for number in range(steps + 1)), **more)


def heap(by: float, **more) -> Timeline:
    return rising(by, kind="heap", device=-1, **more)


def test_it_fires_where_each_step_holds_more_than_the_one_before():
    card = Device(0, 0, "NVIDIA H100 80GB HBM3", memory_bytes=2_000 * MB)
    finding = only_finding("memory-growth", rising(4, devices=[card]))
    assert finding.values == {
        "growth_mib": pytest.approx(4 * MB / 2**20),
        "held_mib": pytest.approx(536 * MB / 2**20),
        "steps_left": pytest.approx((2_000 - 536) / 4),
    }
    assert (finding.confidence, finding.situation) == ("high", "")
    assert "grows by 3.8 MiB a step, to 511 MiB allocated" in summary(finding)
    assert "full after at most 366 more steps" in summary(finding)


def test_it_saves_no_time():
    assert only_finding("memory-growth", rising(4)).saving_ns_per_step == Saving(0, 0, 0)


def test_on_a_gpu_of_unknown_size_no_end_is_foretold():
    assert summary(only_finding("memory-growth", rising(4))) == (
        "GPU memory grows by 3.8 MiB a step, to 511 MiB allocated after the recorded steps."
    )


def test_it_fires_on_the_heap_of_a_run_without_a_gpu():
    finding = only_finding("memory-growth", heap(4))
    assert (finding.confidence, finding.situation) == ("medium", "host")
    assert summary(finding).startswith("The program's host memory grows by 3.8 MiB a step")


def test_it_stays_silent_just_below_the_threshold():
    assert findings("memory-growth", rising(0.0999)) == []
    assert len(findings("memory-growth", rising(0.1001))) == 1
    assert findings("memory-growth", heap(0.499)) == []
    assert len(findings("memory-growth", heap(0.501))) == 1


def test_it_stays_silent_where_nothing_changes_or_memory_falls():
    assert findings("memory-growth", rising(0)) == []
    assert findings("memory-growth", rising(-4)) == []


def test_it_stays_silent_where_the_heap_holds_what_the_recorder_keeps():
    """A step of ten thousand ops makes torch.profiler keep some 5 MB more."""
    assert findings("memory-growth", heap(5, ops=10_000)) == []
    assert len(findings("memory-growth", heap(9, ops=10_000))) == 1
    assert len(findings("memory-growth", rising(5, ops=10_000))) == 1  # not on the GPU


def test_it_stays_silent_where_memory_rose_in_one_step_only():
    assert findings("memory-growth", held(*[500] * 5, *[900] * 5)) == []


def test_it_stays_silent_where_what_rises_is_given_back():
    assert findings("memory-growth", held(*[500, 504, 508, 512, 516] * 2)) == []


def test_it_rises_in_nearly_all_steps():
    nine_of_ten = [500 + 4 * number for number in range(11)]
    nine_of_ten[5] = nine_of_ten[4]
    eight_of_ten = list(nine_of_ten)
    eight_of_ten[8] = eight_of_ten[7]
    assert len(findings("memory-growth", held(*nine_of_ten))) == 1
    assert findings("memory-growth", held(*eight_of_ten)) == []


def test_of_several_ranks_the_one_that_grows_most_is_reported():
    both = timeline(
        memory=[
            {"rank": rank, "process": 100 + rank, "start_ns": at, "end_ns": at, "allocated_bytes": at * (rank + 1) * MB,
             "reserved_bytes": 0, "name": "cuda"}
            for rank in (0, 1) for at in range(8)
        ]
    )  # fmt: skip
    finding = only_finding("memory-growth", both)
    assert finding.values["growth_mib"] == pytest.approx(2 * MB / 2**20)
    assert finding.evidence[0].label == "growth a step on rank 1"


def test_it_stays_silent_where_one_moment_is_all():
    assert findings("memory-growth", held(500)) == []


# ---- from a snapshot


def training(tmp_path, *, leak: int, steps: int = 8) -> Timeline:
    """Each step makes activations of 20 MB and frees them, and keeps `leak` bytes."""
    made = Recording()
    made.alloc(50 * MB, "work/model.py:1 build")
    made.begin()
    for _ in range(steps):
        activation = made.alloc(20 * MB, "work/model.py:4 forward")
        if leak:
            made.alloc(leak, "work/train.py:7 keep", "work/train.py:30 main")
        made.free(activation)
        made.mark()
    return memory_snapshot.read(made.write(tmp_path / "run.pickle"))


def test_a_snapshot_names_who_holds_what_grows(tmp_path):
    finding = only_finding("memory-growth", training(tmp_path, leak=2 * MB))
    (table,) = [each for each in finding.evidence if isinstance(each, Rows)]
    # The allocator hands out whole 512 bytes; what the first step made lies before the first end of a step.
    rounded = -(-2 * MB // 512) * 512
    assert table.rows == (("work/train.py:7 keep < work/train.py:30 main", 7 * rounded, 7),)
    assert finding.values["growth_mib"] == rounded / 2**20


def test_a_snapshot_of_a_steady_training_is_no_growth(tmp_path):
    assert findings("memory-growth", training(tmp_path, leak=0)) == []


def test_a_snapshot_just_below_the_threshold_is_none(tmp_path):
    assert findings("memory-growth", training(tmp_path, leak=99_000)) == []
    assert len(findings("memory-growth", training(tmp_path, leak=100_000))) == 1


def test_a_forward_pass_that_is_cut_off_is_no_growth(tmp_path):
    made = Recording()
    for _ in range(10):
        gathered = made.alloc(10 * MB)
        made.alloc(8 * MB, "work/model.py:4 forward")
        made.free(gathered)
    assert findings("memory-growth", memory_snapshot.read(made.write(tmp_path / "run.pickle"))) == []

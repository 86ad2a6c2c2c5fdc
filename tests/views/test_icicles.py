"""Does the icicle of sampled stacks hold each sample once, own lines by themselves and libraries folded?"""

from __future__ import annotations

from builders import timeline

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.views.icicles import stacks

MS = 1_000_000
TORCH = "lib/python3.11/site-packages/torch/"
FORWARD = [
    "train.py(9): main",
    TORCH + "nn/module.py(3): Module.__call__",
    TORCH + "nn/module.py(5): inner",
    "model.py(4): forward",
]
STACKS = [
    (FORWARD, 6),
    ([*FORWARD, TORCH + "relu.py(1): relu"], 2),
    (["train.py(9): main"], 1),
    (["train.py(11): main"], 3),
]


def sampled(**changed):
    """12 samples of a step of 12 ms."""
    rows, at = [], 0
    for stack, count in STACKS:
        ns = {"start_ns": at * MS, "end_ns": (at + count) * MS}
        rows.append({"rank": 0, "process": 7, "thread": 7, "is_main": True, "is_worker": False, "is_on_clock": True,
                     "name": "x.py(1): x", "training": 7, "stack": "\n".join(stack), "samples": count, **ns, **changed})  # fmt: skip
        at += count
    ops = [{"rank": 0, "process": 7, "thread": 7, "name": "aten::mm", "start_ns": 0, "end_ns": 12 * MS}]
    return prepare(timeline(ops=ops, stack_samples=rows))


def shape(node):
    return (node.name, round(node.value), node.is_muted, [shape(each) for each in node.children])


def expected(each):
    relu = ("torch: relu", 2 * each, True, [])
    forward = ("forward model.py:4", 8 * each, False, [relu])
    first = ("main train.py:9", 9 * each, False, [("torch: Module.__call__", 8 * each, True, [forward])])
    return ("all samples", 12 * each, False, [first, ("main train.py:11", 3 * each, False, [])])


def test_parts_are_as_wide_as_their_time_a_step_and_libraries_are_one_part():
    (picture,) = stacks(sampled())
    assert (picture.id, picture.unit) == ("stacks", "ns")
    assert shape(picture.root) == expected(MS)


def test_samples_without_a_clock_are_counted():
    (picture,) = stacks(sampled(is_on_clock=False))
    assert (picture.id, picture.unit) == ("profile-stacks", "count")
    assert shape(picture.root) == expected(1)


def test_of_workers_only_what_they_fetch_with_is_shown():
    loop, fetch = TORCH + "utils/data/_utils/worker.py(3): _worker_loop", TORCH + "utils/data/_utils/fetch.py(5): fetch"
    stack = f"train.py(9): main\n{loop}\n{fetch}\ndata.py(4): __getitem__"
    (picture,) = stacks(sampled(is_worker=True, stack=stack))
    assert shape(picture.root)[3] == [("torch: fetch", 12, True, [("__getitem__ data.py:4", 12, False, [])])]


def test_without_samples_there_is_no_picture():
    assert not list(stacks(prepare(timeline(ops=[{"start_ns": 0, "end_ns": 5, "name": "aten::mm"}]))))

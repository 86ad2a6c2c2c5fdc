"""Modules of a Kineto trace: paths, and the nodes of the backward pass by the numbers that autograd gave them."""

from __future__ import annotations

import json

from kineto_traces import read_text

from perfdoctor.model.timeline import Timeline


def event(name, ts, dur, tid=11, category="cpu_op", **args) -> dict:
    return {"ph": "X", "cat": category, "name": name, "pid": 10, "tid": tid, "ts": ts, "dur": dur, "args": args}


def forward(name, ts, sequence, tid=11) -> dict:
    return event(name, ts, 1, tid, **{"Sequence number": sequence, "Fwd thread id": 0})


def node(name, ts, sequence, thread=1, tid=12) -> dict:
    return event(
        f"autograd::engine::evaluate_function: {name}", ts, 1, tid,
        **{"Sequence number": sequence, "Fwd thread id": thread},
    )  # fmt: skip


def read(*events: dict) -> Timeline:
    return read_text(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode())


def rows(timeline: Timeline) -> list[tuple]:
    frame = timeline["modules"]
    columns = (frame.start_ns.tolist(), frame.name, frame.text("module_class"), frame["is_backward"].tolist())
    return list(zip(*columns, strict=True))


def mark(name, ts, dur, tid=11) -> dict:
    return event(f"nn.Module: {name}", ts, dur, tid)


def test_a_node_belongs_to_the_module_in_which_the_last_op_with_its_number_ran() -> None:
    timeline = read(
        mark("Net Net", 0, 40), mark("Linear Net.a", 2, 10), mark("Linear Net.b", 20, 10),
        forward("aten::sum", 0.5, 7),  # makes no node: the number is given to the next op that does
        forward("aten::linear", 3, 7), forward("aten::addmm", 5, 7), forward("aten::linear", 22, 8),
        forward("aten::mul", 35, 9), forward("aten::add", 50, 10),
        node("AddBackward0", 60, 10), node("MulBackward0", 62, 9), node("AddmmBackward0", 64, 8),
        node("AddmmBackward0", 66, 7), node("torch::autograd::AccumulateGrad", 68, 4),
    )  # fmt: skip
    assert [(name, kind) for start, name, kind, is_backward in rows(timeline) if is_backward] == [
        ("Net", "Net"), ("Net.b", "Linear"), ("Net.a", "Linear"),
    ]  # fmt: skip
    assert not any("nn.Module" in name for name in [*timeline.ops.name, *timeline.ranges.name])
    assert "modules" in timeline.recorded


def test_numbers_of_another_thread_are_not_mixed_up() -> None:
    """Each thread counts for itself: 5 and 6 are nodes of either. The recomputation on 12 is within a module there."""
    timeline = read(
        mark("A A", 0, 10), mark("B B", 30, 10, tid=12),
        *(forward("aten::mul", 1 + number, number) for number in range(2, 7)),
        forward("aten::mul", 31, 5, tid=12), forward("aten::mul", 33, 6, tid=12),
        *(node("MulBackward0", 60 - number, number) for number in range(2, 7)),
        node("MulBackward0", 71, 6, thread=2), node("MulBackward0", 73, 5, thread=2),
    )  # fmt: skip
    found = [(start, name) for start, name, _, is_backward in rows(timeline) if is_backward]
    assert found == [*((1000 * at, "A") for at in range(54, 59)), (71_000, "B"), (73_000, "B")]


def test_recorded_stacks_give_modules_numbered_by_class_inside_each_other() -> None:
    def function(name, ts, dur) -> dict:
        return event(name, ts, dur, category="python_function")

    timeline = read(
        function("nn.Module: Net_0", 0, 40), function("model.py(3): forward", 1, 30),
        function("nn.Module: My_Linear_12", 2, 10), forward("aten::linear", 3, 1), node("MmBackward0", 50, 1),
    )  # fmt: skip
    assert rows(timeline) == [
        (0, "Net_0", "Net", False),
        (2000, "Net_0.My_Linear_12", "My_Linear", False),
        (50_000, "Net_0.My_Linear_12", "My_Linear", True),
    ]
    assert len(timeline["functions"]) == 3


def test_a_node_whose_row_of_the_engine_has_no_number_has_that_rows_time() -> None:
    numbers = {"Sequence number": 7, "Fwd thread id": 1}
    timeline = read(
        mark("Net Net", 0, 10), forward("aten::mul", 1, 7),
        event("autograd::engine::evaluate_function: MulBackward0", 20, 10, 12), event("hook", 21, 2, 12),
        event("MulBackward0", 24, 5, 12, **numbers), event("OtherBackward0", 40, 5, 12, **numbers),
    )  # fmt: skip
    assert [row for row in rows(timeline) if row[3]] == [(20_000, "Net", "Net", True), (40_000, "Net", "Net", True)]


def test_a_trace_without_modules_has_none_recorded() -> None:
    timeline = read(forward("aten::mul", 1, 2), node("MulBackward0", 5, 2))
    assert len(timeline["modules"]) == 0
    assert "modules" not in timeline.recorded

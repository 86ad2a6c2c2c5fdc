"""The page of ops and own code: the numbers that plain loops over the recording find."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import pytest
from builders import BASE_NS, draw, timeline
from counters_builder import sampled
from folders import ROOT
from recorded import of_recordings, recording
from view_tables import GPU_RECORDINGS, inside_ns, on_device, plain_rows, tables_of, window_of

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host.costs import host_window, range_costs
from perfdoctor.metrics.kernels.costs import short_types
from perfdoctor.model.timeline import merge
from perfdoctor.views.pages import ops

US = 100_000
CPU = [ROOT / "fixtures" / name / "torch" for name in ("cpu-slow-input", "cpu-slow-input-fixed")]


def tables(run):
    return tables_of(ops.view(run, SimpleNamespace(modules=())))


def parents(rows):
    """By the row's id the row around it: a stack of what is open, thread by thread."""
    found, stack = {}, []
    for row in sorted(rows, key=lambda each: (each.thread, each.start_ns, -each.end_ns)):
        while stack and (stack[-1].thread != row.thread or stack[-1].end_ns <= row.start_ns):
            stack.pop()
        found[id(row)] = stack[-1] if stack else None
        stack.append(row)
    return found


def outwards(row, around):
    while row is not None:
        yield row
        row = around[id(row)]


def key_of(op):
    return op.name, op.input_shapes, short_types(op.input_types)


def costs_of_rank(run, place, rows):
    """(calls, host ns, own host ns, own device ns) by op, of the whole window."""
    count, host, own, device = (defaultdict(int) for _ in range(4))
    around = parents(rows)
    ((begin, end),) = host_window(place)
    for op in rows:
        if begin <= op.start_ns < end:
            length = op.end_ns - op.start_ns
            count[key_of(op)] += 1
            own[key_of(op)] += length
            outer = around[id(op)]
            if outer is not None:
                own[key_of(outer)] -= length if begin <= outer.start_ns else 0
            if all(key_of(each) != key_of(op) for each in outwards(outer, around)):
                host[key_of(op)] += length
    calls = [call for call in plain_rows(run.timeline.calls) if call.rank == place.rank and call.correlation >= 0]
    launch = {call.correlation: call for call in reversed(calls)}
    by_thread = defaultdict(list)
    for op in rows:
        by_thread[op.thread].append(op)
    for work in on_device(run, place, "kernels", "collectives", "copies") if place.device is not None else ():
        call = launch.get(work.correlation)
        open_ = [op for op in by_thread[call.thread] if op.start_ns <= call.start_ns < op.end_ns] if call else []
        if open_:
            device[key_of(max(open_, key=lambda op: (op.start_ns, -op.end_ns)))] += inside_ns(work, window_of(place))
    return count, host, own, device


@of_recordings([*GPU_RECORDINGS, *CPU])
def test_each_op_costs_what_plain_loops_find(path):
    run = recording(path).run
    places = {place.rank: place for place in reversed(run.places)}
    ops_ = plain_rows(run.timeline.ops)
    found = [
        (place.units, costs_of_rank(run, place, [op for op in ops_ if op.rank == rank]))
        for rank, place in places.items()
    ]
    shown = {(row["op"], row.get("input shapes", ""), row.get("input types", "")): row for row in tables(run)["ops"]}
    assert len(shown) == len(tables(run)["ops"])
    assert shown.keys() == {key for _, each in found for key in (*each[0], *each[3])}
    step, whole = (" a step", "of the step") if run.per_step else ("", "of the recording")
    has_device = any(each[3] for _, each in found)
    for key, row in shown.items():
        host, own, device = (sum(each[n][key] / units for units, each in found) / len(found) for n in (1, 2, 3))
        assert row["total calls"] == sum(each[0][key] for _, each in found)
        assert row[f"host time{step}"] == pytest.approx(host)
        assert row[f"self host time{step}"] == pytest.approx(own)
        assert row.get(f"self GPU time{step}", 0) == pytest.approx(device)
        assert row[whole] == pytest.approx((device if has_device else own) / run.step_ns)


def stacks(**changed):
    """Two steps of 1 ms: `train` calls `forward` (400 µs), which calls a library; a sync of 200 µs, then backward."""
    functions, work, calls = [], [], []
    for number in range(2):
        at = number * 1_000_000
        functions += [
            {"start_ns": at + 100_000, "end_ns": at + 500_000, "name": "model.py(9): forward"},
            {"start_ns": at + 150_000, "end_ns": at + 450_000, "name": "torch/nn/modules/linear.py(130): forward"},
        ]
        calls += [
            {
                "start_ns": at + 160_000,
                "end_ns": at + 161_000,
                "name": "cudaLaunchKernel",
                "correlation": 3 * number + 1,
            },
            {
                "start_ns": at + 600_000,
                "end_ns": at + 601_000,
                "name": "cudaLaunchKernel",
                "correlation": 3 * number + 2,
                "thread": 2,
            },
        ]
        work += [
            {"start_ns": at + 200_000, "end_ns": at + 500_000, "name": "gemm", "correlation": 3 * number + 1},
            {"start_ns": at + 650_000, "end_ns": at + 750_000, "name": "dgrad", "correlation": 3 * number + 2},
        ]
    functions.append({"start_ns": 0, "end_ns": 2_000_000, "name": "train.py(3): train"})
    return timeline(
        functions=functions,
        calls=calls,
        kernels=work,
        ops=[{"start_ns": 0, "end_ns": 1, "name": "aten::zeros"}],
        **changed,
    )


def test_libraries_count_for_the_line_that_called_them_and_backward_for_the_one_that_waits():
    run = prepare(stacks())
    rows = {row["function"]: row for row in tables(run)["lines"]}
    assert set(rows) == {"model.py(9): forward", "train.py(3): train"}
    assert rows["model.py(9): forward"]["self GPU time"] == 600_000
    assert rows["train.py(3): train"]["self GPU time"] == 200_000
    assert rows["train.py(3): train"]["GPU time"] == 800_000
    ((begin, end),) = host_window(run.places[0])
    assert rows["train.py(3): train"]["host time"] == end - begin
    forward = sum(max(min(end, at + 500_000) - max(begin, at + 100_000), 0) for at in (0, 1_000_000))
    assert rows["model.py(9): forward"]["self host time"] == forward
    assert rows["train.py(3): train"]["self host time"] == end - begin - forward
    assert tables(run)["lines"][0]["function"] == "model.py(9): forward"


def test_gpu_idle_counts_for_the_line_whose_call_blocked():
    drawn = draw(kernels="####    ####", host=["l      l    ", " ssss       ", "ffffffffffff"], repeat=4)
    run = prepare(drawn)
    ((row),) = tables(run)["lines"]
    (place,) = run.places
    assert place.idle_ns("host_sync") > 0
    assert row["GPU idle after it a step"] == pytest.approx(place.idle_ns("host_sync") / place.units)


def test_without_blocking_calls_there_is_no_column_for_them():
    (row,) = tables(prepare(draw(kernels="####", host=["l", "ffff"])))["lines"]
    assert "GPU idle after it" not in row


def test_recursion_is_counted_once():
    functions = [
        {"start_ns": BASE_NS + 10 * depth, "end_ns": BASE_NS + 1000 - 10 * depth, "name": "tree.py(4): walk"}
        for depth in range(4)
    ]
    run = prepare(
        timeline(functions=functions, ops=[{"start_ns": BASE_NS, "end_ns": BASE_NS + 1000, "name": "aten::mm"}])
    )
    (row,) = tables(run)["lines"]
    assert (row["calls"], row["host time"], row["self host time"]) == (4, 1000, 1000)


def test_numbers_that_count_up_make_one_range_and_layers_stay_apart():
    ranges = [
        {"start_ns": BASE_NS + 100 * step + 10 * layer, "end_ns": BASE_NS + 100 * step + 10 * layer + 8, "name": name}
        for step in range(6)
        for layer, name in enumerate(("layer 1", "layer 2", f"op_id = {17 * step}"))
    ]
    marks = [
        {"start_ns": BASE_NS + 100 * n, "end_ns": BASE_NS + 100 * n + 90, "name": f"ProfilerStep#{n}"} for n in range(6)
    ]
    ops_ = [{"start_ns": BASE_NS + 100 * n + 1, "end_ns": BASE_NS + 100 * n + 5, "name": "aten::mm"} for n in range(6)]
    run = prepare(timeline(ranges=ranges + marks, ops=ops_))
    rows = {row["range"]: row for row in tables(run)["ranges"]}
    assert set(rows) == {"layer 1", "layer 2", "op_id = #"}
    assert rows["op_id = #"]["calls a step"] == 1
    assert rows["layer 1"]["host time a step"] == 8


def test_a_range_around_the_window_counts_with_what_lies_in_it():
    run = prepare(draw(kernels="####", host=["l", "rrrrrrrrr"]))
    costs = range_costs(run)
    ((begin, end),) = host_window(run.places[0])
    assert costs.host_ns.tolist() == [end - begin]
    assert costs.count.tolist() == [1]


def test_calls_have_the_work_they_launched():
    run = prepare(
        merge([draw(kernels="## ##", copies="     d", host=["l  l c"], repeat=4, rank=rank) for rank in (0, 1)])
    )
    rows = {row["call"]: row for row in tables(run)["calls"]}
    assert (rows["cudaLaunchKernel"]["calls a step"], rows["cudaLaunchKernel"]["GPU time a step"]) == (2, 4 * US)
    assert rows["cudaMemcpyAsync"]["self GPU time a step"] == US
    assert rows["cudaLaunchKernel"]["total calls"] == 2 * 2 * run.places[0].units


def test_no_table_of_what_was_not_recorded():
    assert tables(prepare(draw(kernels="####"))) == {}


def test_what_counters_saw_of_a_range_is_that_of_all_kernels_inside_it():
    """`outer` launches a product of 3 ms by itself, and `inner` in it another kernel of 1 ms; an op has its own alone."""
    names = {"O": ("ranges", "outer"), "I": ("ranges", "inner")}
    drawn = draw(
        kernels="  GGGe   ",
        host=["OOOOOOOO ", "    II   "],
        legend=names,
        launched_us_before=50,
        repeat=40,
        unit_us=1000,
    )
    counted = sampled(drawn, {"gemm": {"tensor_active_share": 0.6}})
    found = {row["range"]: row["tensor cores active"] for row in tables(prepare(counted))["ranges"]}
    assert found == {"outer": pytest.approx(0.45, abs=0.01), "inner": pytest.approx(0, abs=0.01)}

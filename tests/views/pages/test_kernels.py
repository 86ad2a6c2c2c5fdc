"""The page of kernels: the numbers that plain loops over the recording find."""

from __future__ import annotations

import sqlite3
import statistics
from collections import defaultdict
from contextlib import closing

import pytest
from builders import ELEMENTWISE, FOREACH_ADAM, GEMM, SGEMM, draw, timeline
from folders import public
from recorded import of_recordings, recording
from view_tables import (
    GPU_RECORDINGS,
    inside_ns,
    on_device,
    plain_rows,
    rows_of,
    tables_of,
    window_of,
)

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.kernels.costs import first_type, kernel_costs, short_types
from perfdoctor.model.timeline import merge
from perfdoctor.views.pages import kernels

US = 100_000


def tables(run):
    return tables_of(kernels.view(run, None))


@of_recordings(GPU_RECORDINGS)
def test_each_kernel_costs_what_plain_loops_find(path):
    run = recording(path).run
    took, inside, a_step = defaultdict(list), defaultdict(int), defaultdict(float)
    for place in run.places:
        for row in on_device(run, place, "kernels", "collectives"):
            took[row.name].append(row.end_ns - row.start_ns)
            inside[row.name] += inside_ns(row, window_of(place))
            a_step[row.name] += inside_ns(row, window_of(place)) / place.units / len(run.places)
    shown = {row["kernel"]: row for row in tables(run)["kernels"]}
    assert shown.keys() == {name.removeprefix("void ") for name in took}
    for name, each in took.items():
        row = shown[name.removeprefix("void ")]
        assert row["total count"] == len(each)
        assert row["total time"] == inside[name]
        step, whole = (" a step", "of the step") if run.per_step else ("", "of the recording")
        assert row[f"time{step}"] == pytest.approx(a_step[name])
        assert row[whole] == pytest.approx(a_step[name] / run.step_ns)
        assert row["mean"] == pytest.approx(statistics.fmean(each))
        assert row["median"] == pytest.approx(statistics.median(each))
        assert (row["shortest"], row["longest"]) == (min(each), max(each))
    assert [row["total time"] for row in tables(run)["kernels"]] == sorted(inside.values(), reverse=True)


@of_recordings(GPU_RECORDINGS)
def test_the_op_is_the_one_around_most_of_the_launches(path):
    run = recording(path).run
    ops, calls = plain_rows(run.timeline.ops), plain_rows(run.timeline.calls)
    by_correlation = {(call.process, call.correlation): call for call in reversed(calls) if call.correlation >= 0}
    weight = defaultdict(lambda: defaultdict(int))
    for place in run.places:
        for row in on_device(run, place, "kernels"):
            call = by_correlation.get((row.process, row.correlation))
            around = [
                op for op in ops
                if call and (op.rank, op.thread) == (row.rank, call.thread) and op.start_ns <= call.start_ns < op.end_ns
            ]  # fmt: skip
            if around:
                innermost = min(around, key=lambda op: op.end_ns - op.start_ns)
                weight[row.name][innermost.name] += inside_ns(row, window_of(place))
    shown = {row["kernel"]: row.get("launched by", "") for row in tables(run)["kernels"]}
    assert weight
    for name, of_ops in weight.items():
        assert of_ops[shown[name.removeprefix("void ")]] == max(of_ops.values())


def test_families_are_sums_of_their_kernels():
    run = prepare(draw(kernels="GGGG SS e M", launched_us_before=50, repeat=4))
    found = tables(run)
    by_family = {row["family"]: row for row in found["kernel-families"]}
    assert {name: row["time a step"] for name, row in by_family.items()} == {
        "gemm": 6 * US, "elementwise": US, "optimizer": US,
    }  # fmt: skip
    assert by_family["gemm"]["on tensor cores"] == pytest.approx(4 / 6)
    assert by_family["gemm"]["different kernels"] == 2
    assert by_family["elementwise"]["on tensor cores"] is None
    assert sum(row["of all kernels"] for row in by_family.values()) == pytest.approx(1)
    shown = {row["kernel"]: row for row in found["kernels"]}
    assert (shown[GEMM]["math path"], shown[GEMM]["data type"]) == ("tensor cores", "bf16")
    assert (shown[SGEMM]["math path"], shown[SGEMM]["data type"]) == ("no tensor cores", "fp32")
    assert shown[ELEMENTWISE.removeprefix("void ")]["family"] == "elementwise"
    assert shown[FOREACH_ADAM.removeprefix("void ")]["count a step"] == 1


def test_the_slowest_rank_is_named_for_kernels_of_several_ranks():
    run = prepare(merge([
        draw(kernels="####  ++", launched_us_before=50, repeat=4, rank=rank, kernel_names={"#": "same", "+": f"only {rank}"})
        for rank in (0, 1)
    ]))  # fmt: skip
    shown = {row["kernel"]: row for row in tables(run)["kernels"]}
    assert shown["same"]["slower by"] == 0
    assert (shown["only 0"]["slowest"], shown["only 0"]["slower by"]) == ("", None)
    late = prepare(merge([
        draw(kernels="####  ++", launched_us_before=50, repeat=4, rank=rank, unit_us=150 if rank == 2 else 100)
        for rank in range(3)
    ]))  # fmt: skip
    (row,) = tables(late)["kernels"]
    assert (row["slowest"], row["slower by"]) == ("rank 2", pytest.approx(0.5))


def test_no_table_without_kernels():
    assert tables(prepare(draw(host=["o o o"]))) == {}


def test_unknown_sizes_are_not_known_and_not_minus_one():
    (row,) = tables(prepare(draw(kernels="####")))["kernels"]
    assert "blocks" not in row
    (row,) = tables(prepare(draw(kernels="####", blocks=12)))["kernels"]
    assert row["blocks"] == 12


def test_the_shared_memory_of_a_block_is_that_with_most_of_a_kernels_time():
    known = ((0, 10, 16), (10, 20, 16), (20, 45, 49_152), (50, 60, -1))
    rows = [{"start_ns": at, "end_ns": end, "name": "k", "shared_memory_bytes": size} for at, end, size in known]
    (row,) = tables(prepare(timeline(kernels=rows)))["kernels"]
    assert row["shared memory a block"] == 49_152
    (row,) = tables(prepare(draw(kernels="####")))["kernels"]
    assert "shared memory a block" not in row


def test_only_the_costliest_are_shown_and_all_are_counted():
    lane = "".join(chr(0x4E00 + n) for n in range(600))
    run = prepare(draw(kernels=lane, kernel_names={letter: f"kernel {letter}" for letter in lane}))
    table, _ = kernels.view(run, None)
    assert (len(rows_of(table)), table.rows_in_all) == (500, 600)


@pytest.mark.parametrize(
    ("types", "first", "short"),
    [
        ('["c10::BFloat16", "float", "Scalar"]', "bf16", "bf16, fp32, Scalar"),
        ('["GenericList", "float", ""]', "fp32", "GenericList, fp32"),
        ('["TensorList", "Scalar", "", ""]', "", "TensorList, Scalar"),
        ("", "", ""),
    ],
)
def test_types_have_their_usual_names(types, first, short):
    assert (first_type(types), short_types(types)) == (first, short)


@pytest.mark.parametrize(
    ("name", "data_type"),
    [
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s", "fp8"),
        ("cutlass3x_sm100_tensorop_gemm_e2m1_e2m1_f32", "fp4"),
        (GEMM, "bf16"),
        ("ampere_fp16_s16816gemm_fp16_128x128_tn", "fp16"),
    ],
)
def test_narrow_types_are_not_called_fp16(name, data_type):
    costs = kernel_costs(prepare(draw(kernels="#", kernel_names={"#": name})))
    assert costs.data_types == (data_type,)


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["mfu_2gpu_before", "h100_2gpu_1s", "power-iteration-t4"])
def test_sql_finds_the_same_of_a_real_recording(name):
    path = public(f"nsys/{name}.sqlite")
    run = recording(path).run
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        (first,) = database.execute("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        moved = first - min(
            int(run.timeline[signal].start_ns.min())
            for signal in ("kernels", "collectives")
            if len(run.timeline[signal])
        )
        expected = defaultdict(lambda: [0, 0, 0])
        for place in run.places:
            begin, end = (edge + moved for edge in window_of(place))
            query = """
                SELECT text.value, count(*), sum(min(end, ?2) - max(start, ?1)), max(end - start)
                FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel JOIN StringIds AS text ON text.id = kernel.demangledName
                WHERE end > ?1 AND start < ?2 AND deviceId = ?3 GROUP BY text.value"""
            for kernel, count, ns, longest in database.execute(query, (begin, end, place.device)):
                row = expected[kernel.removeprefix("void ")]
                row[:] = row[0] + count, row[1] + ns, max(row[2], longest)
    shown = {row["kernel"]: row for row in tables(run)["kernels"]}
    assert {name: [row["total count"], row["total time"], row["longest"]] for name, row in shown.items()} == expected

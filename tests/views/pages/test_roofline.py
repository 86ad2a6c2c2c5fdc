"""Does the roofline page show the computed rows under the roof that applies to them?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import BASE_NS, GEMM, timeline
from folders import public
from machine_builders import beside
from msgspec.structs import replace
from report.samples import INPUT_BOUND

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.work.efficiency import efficiency
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Device
from perfdoctor.readers.open import read
from perfdoctor.records.views import Chart, Table
from perfdoctor.records.work_done import Ceiling, Efficiency, Roofline, RooflineRow
from perfdoctor.views.pages import roofline

NOTHING = Efficiency("", None, None, None, 0.0, None, None, "", "", None, "", "", None, None)
MM = RooflineRow(
    "op", "aten::mm", "8 × 8, 8 × 8", GEMM, "bf16", 2, 5e6, 4e12, 2e9, 8e14, 2000.0, 9.9e14, 0.81, "compute"
)
NORM = replace(
    MM, name="aten::bmm", ns=1e6, flop=1e9, flop_per_second=1e12, flop_per_byte=2.0, share_of_roof=0.15, limit="memory"
)
FAMILY = replace(MM, kind="family", name="gemm", sizes="", ns=6e6, unknown_ns=3e5)
COPY = RooflineRow("memory", "a_copy", "", "a_copy", "", 3, 2e6, None, 1e9, None, None, None, 0.4, "memory")
ROWS = (FAMILY, MM, COPY, NORM)
CEILINGS = (Ceiling("fp32", 67e12, 20.0), Ceiling("bf16", 989e12, 295.2))


def page(rows=ROWS, ceilings=CEILINGS, memory=3.35e12, run=None, **more):
    found = Roofline(
        0, 0, "NVIDIA H100 SXM" if ceilings else "", memory if ceilings else 0.0, tuple(ceilings), tuple(rows)
    )
    diagnosis = replace(INPUT_BOUND, efficiency=replace(NOTHING, roofline=found, **more))
    made = list(roofline.view(run or Run(timeline(), ()), diagnosis))
    return {("table " if isinstance(each, Table) else "") + each.id: each for each in made}


def column(table, name):
    return list(next(each.values for each in table.columns if each.name == name))


def test_rows_with_flop_and_bytes_are_dots_as_large_as_their_time():
    chart = page()["roofline"]
    dots = [each for each in chart.series if each.kind == "dots"]
    assert [each.name for each in dots] == ["kernel families", "single ops"]
    family, ops = dots
    assert list(zip(ops.x, ops.y, ops.labels, strict=True)) == [
        (2000.0, 8e14, "aten::mm bf16, 8 × 8, 8 × 8"), (2.0, 1e12, "aten::bmm bf16, 8 × 8, 8 × 8")
    ]  # fmt: skip
    assert ops.weight.tolist() == pytest.approx([5 / 6, 1 / 6])
    assert family.weight.tolist() == [1]


def test_the_roof_is_the_memory_s_slope_and_the_types_that_occur():
    guides = {each.name: each for each in page()["roofline"].series if each.kind == "guide"}
    assert set(guides) == {"memory", "bf16"}
    slope, level = guides["memory"], guides["bf16"]
    assert np.allclose(slope.y / slope.x, 3.35e12)
    assert slope.x[-1] == pytest.approx(989e12 / 3.35e12)
    assert (level.x[0], level.x[1]) == (pytest.approx(slope.x[-1]), 1e4)
    assert level.y.tolist() == [989e12, 989e12]


def test_an_unknown_device_has_no_roof():
    chart = page(ceilings=())["roofline"]
    assert all(each.kind == "dots" for each in chart.series)
    assert "no roof is drawn" in chart.description


def test_the_sentence_names_the_work_of_most_time():
    chart = page()["roofline"]
    numbers = {name: value for name, (value, _) in chart.numbers.items()}
    assert numbers == {"name": "aten::mm bf16", "time": 5e6, "rate": 8e14, "share": 0.81, "limit": "peak FLOP/s"}
    assert chart.description.startswith(
        "Of single ops, most time is spent in {name}, {time} a step, at {rate}, {share} of the roof ({limit})."
    )


def test_the_table_has_every_row_those_of_most_time_first():
    table = page()["table roofline"]
    assert column(table, "name") == ["gemm", "aten::mm", "a_copy", "aten::bmm"]
    assert column(table, "FLOP") == [4e12, 4e12, None, 1e9]
    assert column(table, "share of roof") == [0.81, 0.81, 0.4, 0.15]
    assert column(table, "unknown time") == [3e5, None, None, None]
    assert table.rows_in_all == 4


def test_rows_without_flop_make_no_picture_but_a_table():
    assert set(page(rows=[COPY])) == {"table roofline"}


def test_only_known_numbers_are_in_the_table():
    table = page(mfu=0.41, flop_per_step=4e12, model_flop_per_step=4e12, known_share=0.98)["table efficiency"]
    shown = {each.name: each.values[0] for each in table.columns}
    assert shown == {"MFU": 0.41, "FLOP a step": 4e12, "of the model": 4e12, "known share": 0.98}
    assert "table efficiency" not in page()
    on_host = page(flop_per_step=4e12, on_gpu=False)["table efficiency"]
    assert "GPU" not in on_host.title


def test_dots_stand_where_shapes_and_times_put_them():
    """2 · 4096³ FLOP over 3 · 2 · 4096² bytes, in 2 ms."""
    kernels, calls, ops, ranges = [], [], [], []
    for n in range(4):
        at = BASE_NS + n * 3_000_000
        ranges.append({"start_ns": at, "end_ns": at + 2_900_000, "name": f"ProfilerStep#{n}"})
        ops.append({"start_ns": at, "end_ns": at + 50_000, "name": "aten::mm", "input_shapes": "[[4096, 4096], [4096, 4096]]",
                    "input_types": '["c10::BFloat16", "c10::BFloat16"]'})  # fmt: skip
        calls.append({"start_ns": at + 10_000, "end_ns": at + 20_000, "name": "cudaLaunchKernel", "correlation": n + 1})
        kernels.append({"start_ns": at + 100_000, "end_ns": at + 2_100_000, "name": GEMM, "correlation": n + 1})
    run = prepare(timeline(kernels=kernels, calls=calls, ops=ops, ranges=ranges,
                           devices=(Device(0, 0, "NVIDIA H100 80GB HBM3", 132),)))  # fmt: skip
    made = list(roofline.view(run, replace(INPUT_BOUND, efficiency=efficiency(run))))
    chart = next(each for each in made if isinstance(each, Chart))
    ops_drawn = next(each for each in chart.series if each.name == "single ops")
    assert ops_drawn.x.tolist() == pytest.approx([2 * 4096**3 / (3 * 2 * 4096**2)])
    assert ops_drawn.y.tolist() == pytest.approx([2 * 4096**3 / 2e-3])


def profile(launch: int, name: str, **measured: float) -> dict[str, object]:
    start = launch * 1000
    return {"start_ns": start, "end_ns": start + 1000, "name": name, "launch": launch, "gpu": "NVIDIA H100 80GB HBM3",
            **dict.fromkeys(("flop", "dram_bytes", "gpu_time_ns", "tensor_share"), float("nan")), **measured}  # fmt: skip


def test_measured_kernels_stand_at_what_was_measured():
    known = {"flop": 2e9, "dram_bytes": 1e9, "gpu_time_ns": 1e6}
    rows = [profile(0, "axpy", **known), profile(1, "axpy", flop=4e9, dram_bytes=2e9, gpu_time_ns=5e6),
            profile(2, "uncounted", **known, tensor_share=0.7), profile(3, "untold", gpu_time_ns=1e6)]  # fmt: skip
    made = page(rows=[], run=prepare(beside(kernel_profiles=rows)))
    dots = next(each for each in made["roofline-measured"].series if each.kind == "dots")
    assert dots.labels == ("axpy",)
    assert (dots.x.tolist(), dots.y.tolist()) == ([2.0], [pytest.approx(6e9 / 6e-3)])
    table = made["table roofline-measured"]
    assert (column(table, "kernel"), column(table, "launches")) == (["axpy", "uncounted", "untold"], [2, 1, 1])
    assert column(table, "of the measured time") == pytest.approx([6 / 8, 1 / 8, 1 / 8])
    assert {each.name for each in made["roofline-measured"].series if each.kind == "guide"} == {"memory", "fp32"}


def test_the_roof_of_measured_kernels_is_the_reports_own_where_it_holds_one():
    own = {"flop": 2e9, "dram_bytes": 1e9, "gpu_time_ns": 1e6, "peak_flop_per_second": 5e13,
           "peak_dram_bytes_per_second": 2e12}  # fmt: skip
    chart = page(rows=[], run=prepare(beside(kernel_profiles=[profile(0, "axpy", **own)])))["roofline-measured"]
    guides = {each.name: each for each in chart.series if each.kind == "guide"}
    assert guides["peak"].y.tolist() == [5e13, 5e13]
    assert np.allclose(guides["memory"].y / guides["memory"].x, 2e12)
    assert "the report's own" in chart.description


def test_a_product_on_tensor_cores_is_drawn_under_their_own_roof():
    known = {"dram_bytes": 1e9, "gpu_time_ns": 1e6, "tensor_share": 0.6, "flop": 0.0}
    rows = [profile(0, "product", **known, tensor_flop=4e11) | {"tensor_type": "bf16"}]
    made = page(rows=[], run=prepare(beside(kernel_profiles=rows)))
    drawn = {each.name: each for each in made["roofline-measured"].series}
    assert (drawn["measured kernels"].x.tolist(), drawn["measured kernels"].y.tolist()) == ([400.0], [4e14])
    assert drawn["tensor cores, bf16"].y.tolist() == pytest.approx([989.4e12] * 2, rel=1e-3)
    assert column(made["table roofline-measured"], "FLOP of tensor cores") == [4e11]


def test_without_measured_kernels_nothing_of_them_is_shown():
    assert page(rows=[], run=prepare(beside(kernel_profiles=[profile(0, "untold")]))) == {}


@pytest.mark.recordings
def test_a_measured_report_shows_its_kernel():
    run = prepare(read([public("ncu/mlp-t4-v1.ncu-rep")]))
    made = page(rows=[], run=run)
    profiles = run.timeline["kernel_profiles"]
    flop, moved, ns = (float(profiles.floats(each)[0]) for each in ("flop", "dram_bytes", "gpu_time_ns"))
    dots = next(each for each in made["roofline-measured"].series if each.kind == "dots")
    assert (dots.x[0], dots.y[0]) == (pytest.approx(flop / moved), pytest.approx(flop / ns * 1e9))

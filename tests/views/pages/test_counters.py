"""What the page of the GPU's counters and the table of kernels show of them."""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw
from counters_builder import sampled
from view_tables import tables_of

from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.records.views import Chart, Table
from perfdoctor.views.pages import counters, kernels, ops, steps

_PLANTED = {"bf16_s16816gemm": {"tensor_active_share": 0.6}, "sgemm": {"tensor_active_share": 0.0},
            "elementwise": {"dram_read_share": 0.5, "dram_write_share": 0.3}}  # fmt: skip


def recording():
    drawn = draw(kernels="GGGGGGGGGGGGGGG SSSSSSSSSS eeee   GGG ee SSSSS ee   GGGGGGG   ", unit_us=20, repeat=40,
                 launched_us_before=5)  # fmt: skip
    return sampled(drawn, _PLANTED)


def test_the_tables_of_kernels_show_what_was_measured_while_each_ran():
    run = prepare(recording())
    tables = tables_of(kernels.view(run, examine(run, []).diagnosis))
    shown = {row["kernel"]: row for row in tables["kernels"]}
    (gemm,), (add,) = ([row for name, row in shown.items() if word in name] for word in ("bf16", "elementwise"))
    assert gemm["tensor cores active"] == pytest.approx(0.6, abs=0.01)
    assert add["DRAM throughput"] == pytest.approx(0.8, abs=0.02)
    families = {row["family"]: row["tensor cores active"] for row in tables["kernel-families"]}
    assert families["elementwise"] == pytest.approx(0, abs=0.01)


def test_the_page_has_a_chart_of_each_counter_that_is_not_0_and_its_means():
    run = prepare(recording())
    diagnosis = examine(run, []).diagnosis
    views = list(counters.view(run, diagnosis))
    charts = {view.id: view for view in views if isinstance(view, Chart)}
    assert {"counters-sm-active", "counters-tensor-active", "counters-dram-read"} <= set(charts)
    assert not any("nvlink" in name for name in charts)
    frame, window = run.timeline["gpu_counters"], run.places[0].window
    inside = (frame.end_ns > window.starts[0]) & (frame.start_ns < window.ends[-1])
    mean, unit = charts["counters-tensor-active"].numbers["mean"]
    assert (mean, unit) == (pytest.approx(np.mean(frame.floats("tensor_active_share")[inside])), "share")
    (table,) = [view for view in views if isinstance(view, Table)]
    assert {column.name for column in table.columns} >= {"counter", "while kernels ran", "samples"}


def test_each_step_has_the_means_of_its_time():
    drawn = draw(kernels="G" * 30 + "S" * 30 + " " * 20, unit_us=100, repeat=6, launched_us_before=5)
    run = prepare(sampled(drawn, _PLANTED))
    views = [view for view in steps.view(run, examine(run, []).diagnosis) if isinstance(view, Table)]
    rows = tables_of(iter(views))["steps"]
    used = [row for row in rows if row["step"] is not None]
    assert len(used) >= 4
    for row in used:
        assert row["tensor cores active"] == pytest.approx(0.6 * 30 / 80, abs=0.01)
        assert row["SM active"] == pytest.approx(60 / 80, abs=0.01)


def test_without_counters_there_is_no_page_and_no_column():
    run = prepare(draw(kernels="GGG  ", repeat=6, launched_us_before=5))
    diagnosis = examine(run, []).diagnosis
    assert list(counters.view(run, diagnosis)) == []
    assert "SM active" not in tables_of(kernels.view(run, diagnosis))["kernels"][0]


def test_a_range_shows_the_counters_of_the_kernels_launched_in_it_by_their_time():
    """15 units of a product at 60 %, then 10 of one at 0, both launched in the forward pass; the rest is not."""
    drawn = draw(
        kernels="GGGGGGGGGGGGGGG SSSSSSSSSS eeee   GGGGG   eeeee  ", unit_us=20, repeat=40,
        host=["FF" + " " * 47, "ll lll" + " " * 43],
        legend={"F": ("ranges", "forward")},
    )  # fmt: skip
    run = prepare(sampled(drawn, _PLANTED))
    (row,) = [
        row for row in tables_of(ops.view(run, examine(run, []).diagnosis))["ranges"] if row["range"] == "forward"
    ]
    assert row["tensor cores active"] == pytest.approx(0.6 * 15 / 25, abs=0.01)

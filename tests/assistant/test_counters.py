"""What do answers say of the GPU's own counters?"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from builders import draw_steps
from counters_builder import sampled
from msgspec import convert

from perfdoctor.assistant.answers import analyze, kernels
from perfdoctor.assistant.arguments import Analyze, Kernels
from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare

DRAWN = draw_steps(kernels="GGGGGeeeee", launched_us_before=50)
COUNTED = sampled(DRAWN, {"gemm": {"tensor_active_share": 0.4, "sm_active_share": 0.9}})


def answered(timeline):
    examination = examine(prepare(timeline), [])
    desk = SimpleNamespace(examined=lambda *_: examination, diagnosed=lambda _: examination.diagnosis)
    ask = {"path": "run"}
    return (
        kernels.answer(convert(ask, Kernels), desk).data["kernels"], analyze.answer(convert(ask, Analyze), desk).data["gpu_metrics"],
    )  # fmt: skip


def test_kernels_and_the_diagnosis_have_what_counters_showed():
    rows, metrics = answered(COUNTED)
    (gemm,) = [row for row in rows if "gemm" in row["name"]]
    assert gemm["tensor_active_share"] == pytest.approx(0.4, abs=0.01)
    assert gemm["sm_active_share"] == pytest.approx(0.9, abs=0.01)
    assert {row["metric"]: row["percent_in_kernels"] for row in metrics}["tensor_active"] == pytest.approx(20, abs=0.5)


def test_without_counters_nothing_is_said_of_them():
    rows, metrics = answered(DRAWN)
    assert metrics == []
    assert not any("share" in key for row in rows for key in row)

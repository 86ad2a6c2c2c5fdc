"""The curve of a whole run beside a window."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.readers import watched_run

CURVE = {
    "format": 1, "rank": 2, "first": [1, 26], "low_ns": [9, 9], "median_ns": [10, 11], "high_ns": [12, 13],
    "recorded": [False, True],
}  # fmt: skip


def test_the_curve_of_a_run_is_read(tmp_path: Path) -> None:
    (tmp_path / "curve.json").write_text(json.dumps(CURVE))
    found = watched_run.read(tmp_path)
    assert found is not None
    assert (found.rank, found.median_ns.tolist(), found.recorded.tolist()) == (2, [10, 11], [False, True])


@pytest.mark.parametrize("change", [
    {"format": 2}, {"first": [26, 1]}, {"low_ns": [1]}, {"first": [-1, 5]}, {"median_ns": ["x", 1]}, {"rank": 1 << 40},
    {"first": [1], "low_ns": [1], "median_ns": [1], "high_ns": [1], "recorded": [True]},
])  # fmt: skip
def test_a_damaged_one_is_left_out(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "curve.json").write_text(json.dumps({**CURVE, **change}))
    assert watched_run.read(tmp_path) is None
    (tmp_path / "curve.json").write_text("{")
    assert watched_run.read(tmp_path) is None

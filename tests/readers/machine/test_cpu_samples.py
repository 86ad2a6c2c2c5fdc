"""Samples of the processor: differences of counters, and what is damaged is left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers import formats
from perfdoctor.readers.machine import cpu_samples
from perfdoctor.recording.tools.cpu import COLUMNS

SECOND_NS = 10**9
START_NS = 1_700_000_000 * SECOND_NS


def written(folder: Path, *rows: dict[str, object], tail: str = "") -> Path:
    lines = [",".join(COLUMNS), *(",".join(str(row.get(column, "")) for column in COLUMNS) for row in rows)]
    file = folder / "cpu.csv"
    file.write_text("\n".join(lines) + "\n" + tail)
    return file


def row(second: float, **values: object) -> dict[str, object]:
    return {"unix_ns": START_NS + round(second * SECOND_NS), **values}


def test_counters_become_means_over_the_time_between_two_samples(tmp_path):
    file = written(
        tmp_path,
        row(0, busy_ns=100, program_cpu_ns="", runnable=3, pressure_ns=0),
        row(2, busy_ns=100 + 3 * SECOND_NS, program_cpu_ns=5, runnable=4, pressure_ns=SECOND_NS),
        row(3, busy_ns=100 + 3 * SECOND_NS, program_cpu_ns=5 + SECOND_NS // 2, runnable=5, pressure_ns=SECOND_NS),
    )
    assert formats.kind_of(file) == "cpu"
    frame = cpu_samples.read(file)["cpu_samples"]
    assert frame["busy_cores"].tolist() == [1.5, 0.0]
    assert frame["pressure_share"].tolist() == [0.5, 0.0]
    assert np.isnan(frame["program_cores"][0])
    assert frame["program_cores"][1] == 0.5
    assert frame["runnable"].tolist() == [4, 5]
    assert frame.duration_ns.tolist() == [2 * SECOND_NS, SECOND_NS]


def test_a_counter_that_starts_anew_is_unknown(tmp_path):
    frame = cpu_samples.read(written(tmp_path, row(0, busy_ns=9), row(1, busy_ns=3)))["cpu_samples"]
    assert np.isnan(frame["busy_cores"]).all()


@pytest.mark.parametrize("tail", ["17000", "x,y\n", "1700000001500000000,1\n", "-5,2,2\n", "1" * 40 + "\n"])
def test_rows_that_are_cut_off_or_damaged_are_left_out(tmp_path, tail):
    file = written(tmp_path, row(0, busy_ns=0), row(1, busy_ns=SECOND_NS), tail=tail)
    assert cpu_samples.read(file)["cpu_samples"]["busy_cores"].tolist() == [1.0]


def test_one_sample_says_nothing(tmp_path):
    with pytest.raises(PerfdoctorError, match="fewer than two samples"):
        cpu_samples.read(written(tmp_path, row(0)))

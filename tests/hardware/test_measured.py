"""Documents of measured rates: what is taken from them, and that a damaged or hostile one is one clear error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_builders import H100, document, matmuls, measurement, rates

from perfdoctor.errors import PerfdoctorError
from perfdoctor.hardware.measured import MeasuredRates, compared, encoded, load, parsed
from perfdoctor.hardware.peaks import peaks_of

WHOLE = document(
    *matmuls(bf16={512: 30e12, 8192: 712e12}, fp32={512: 10e12, 8192: 51e12}),
    measurement("memory_copy", 3.0e12, bytes=1 << 29),
    measurement("h2d_pinned", 52e9),
    measurement("h2d_pageable", 13e9),
    measurement("d2h_pinned", 55e9),
    measurement("d2h_pageable", 11e9),
    measurement("launch", 2_100.0),
    measurement("all_reduce", 360e9, bytes=1 << 28, ranks=8, backend="nccl"),
)
TEXT = json.dumps(WHOLE)


def test_the_best_of_each_type_are_peaks_that_were_reached():
    found = parsed(TEXT, "x")
    assert found.as_peaks() == {"fp32": 51e12, "bf16": 712e12, "memory": 3.0e12, "host_link": 55e9}
    assert found.matmuls("bf16") == ((512, 30e12), (8192, 712e12))
    assert (found.pinned_speedup("h2d"), found.pinned_speedup("d2h")) == (4.0, 5.0)
    assert found.one("launch") == 2100
    assert found.one("kernel_floor") == 0.0


def test_what_was_measured_while_something_else_ran_is_not_taken():
    unsteady = rates(measurement("h2d_pinned", 52e9, spread=0.6), measurement("h2d_pageable", 13e9))
    assert unsteady.one("h2d_pinned") == 0.0
    assert unsteady.pinned_speedup("h2d") == 0.0
    assert rates(measurement("h2d_pinned", 52e9, spread=0.4)).one("h2d_pinned") == 52e9


def test_it_is_compared_with_the_data_sheet():
    rows = {row.name: row for row in compared(parsed(TEXT, "x"), peaks_of(H100))}
    assert rows["bf16"].data_sheet == pytest.approx(989.4e12)
    assert rows["bf16"].share == pytest.approx(712 / 989.4)
    assert rows["memory"].share == pytest.approx(3.0 / 3.35)
    assert rows["host_link"].share == pytest.approx(55 / 63)
    assert {row.share for row in compared(parsed(TEXT, "x"), None)} == {None}


def test_it_is_written_as_it_was_read():
    assert parsed(encoded(parsed(TEXT, "x")), "x") == parsed(TEXT, "x")


def changed(**members: object) -> str:
    return json.dumps({**WHOLE, **members})


@pytest.mark.parametrize(
    "text",
    [
        "", "{", TEXT[:-100], "[]", "null", "{}", "\x00", "🔥", "[" * 100_000,
        changed(format=2), changed(measured_on="tomorrow"), changed(measured_on="2026-11-22\x1b[31m"),
        changed(machine={}), changed(machine={**WHOLE["machine"], "device": ""}),
        changed(machine={**WHOLE["machine"], "device": "x" * 10_000}), changed(machine={**WHOLE["machine"], "kind": "tpu"}),
        changed(measurements=[measurement("matmul", -1.0)]), changed(measurements=[measurement("matmul", 0.0)]),
        changed(measurements=[measurement("matmul", 1e30)]), changed(measurements=[measurement("matmul", 1e12, size=-5)]),
        changed(measurements=[measurement("matmul", 1e12, size=1 << 60)]), changed(measurements=[1]), changed(measurements="x"),
        changed(measurements=[measurement("x", 1.0)] * 501), TEXT.replace("712000000000000.0", "NaN"),
        TEXT.replace("712000000000000.0", "1e999"), TEXT.replace("712000000000000.0", '"712"'), changed(failed=[{}]),
    ],
)  # fmt: skip
def test_what_is_no_such_document_is_one_clear_error(tmp_path, text):
    file = tmp_path / "measured.json"
    file.write_bytes(text.encode())
    with pytest.raises(PerfdoctorError, match=r"measured\.json is no document of measured rates") as caught:
        load(file)
    assert "perfdoctor selftest" in caught.value.do
    assert "\n" not in caught.value.what


@given(data=st.data())
def test_any_byte_may_be_any_other(data):
    position = data.draw(st.integers(0, len(TEXT) - 1))
    text = TEXT[:position] + data.draw(st.sampled_from('\x00"{}[],:-9eE.x\n')) + TEXT[position + 1 :]
    try:
        found = parsed(text, "x")
    except PerfdoctorError:
        return
    assert isinstance(found, MeasuredRates)
    assert all(rate > 0 for rate in found.as_peaks().values())


def test_a_file_that_is_too_large_or_missing_is_an_error(tmp_path):
    (tmp_path / "large.json").write_text(TEXT + " " * (1 << 20))
    with pytest.raises(PerfdoctorError, match="too large"):
        load(tmp_path / "large.json")
    with pytest.raises(PerfdoctorError, match="cannot be read: No such file"):
        load(tmp_path / "none.json")


def test_members_that_are_not_known_yet_are_left_out():
    assert parsed(changed(more=1, measurements=[measurement("npu", 1.0, colour="red")]), "x").one("npu") == 1.0

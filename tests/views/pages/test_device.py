"""Does the page of the GPUs show their samples, and nothing else?"""

from __future__ import annotations

import csv

import numpy as np
import pytest
from builders import BASE_NS, draw
from folders import public
from machine_builders import HEAT, POWER, beside, samples
from report.samples import INPUT_BOUND

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.open import read
from perfdoctor.records.views import Chart, Table
from perfdoctor.views.pages import device


def page(timeline: Timeline) -> tuple[dict[str, Chart], Table | None]:
    made = list(device.view(prepare(timeline), INPUT_BOUND))
    charts = {each.id: each for each in made if isinstance(each, Chart)}
    return charts, next((each for each in made if isinstance(each, Table)), None)


def column(table, name):
    return list(next(each.values for each in table.columns if each.name == name))


def test_without_samples_there_is_no_page():
    assert page(draw(kernels="##  ", launched_us_before=50)) == ({}, None)


def test_a_line_a_gpu_in_units_of_their_own():
    given = [
        *samples(3, device=0, sm_clock_mhz=[1000, 1980, 1500], power_w=300.0),
        *samples(3, device=1, power_w=250.0),
    ]
    charts, table = page(beside(device_samples=given))
    clock, power = charts["sm-clock-mhz"], charts["power-w"]
    assert clock.series[0].y.tolist() == [1e9, 1.98e9, 1.5e9]
    assert [each.name for each in clock.series] == ["GPU 0"]
    assert [each.name for each in power.series] == ["GPU 0", "GPU 1"]
    assert (clock.y.unit, power.y.unit) == ("hertz", "watt")
    assert column(table, "SM clock, lowest") == [1e9, None]
    assert column(table, "power, mean") == [300.0, 250.0]
    assert clock.numbers["mean"][0] == pytest.approx(4.48e9 / 3)


def test_a_quantity_that_is_always_zero_or_unknown_has_no_chart():
    charts, table = page(beside(device_samples=samples(4, nvlink_rx_bytes_per_second=0.0, power_w=100.0)))
    assert set(charts) == {"power-w", "utilization-share"}
    assert not any("PCIe" in each.name for each in table.columns)


def test_on_a_clock_time_counts_from_the_window_else_samples_do():
    drawn = draw(kernels="####  ", launched_us_before=50, repeat=6)
    on = samples(3, start_ns=BASE_NS + 600_000, every_ns=100_000, on_clock=True, power_w=[1.0, 2.0, 3.0])
    charts, _ = page(beside(drawn, device_samples=on))
    start = int(prepare(drawn).places[0].window.starts[0])
    assert charts["power-w"].series[0].x.tolist() == [BASE_NS + 600_000 + n * 100_000 - start for n in range(3)]
    assert charts["power-w"].x.unit == "ns"
    charts, _ = page(beside(drawn, device_samples=samples(3, power_w=[1.0, 2.0, 3.0])))
    assert charts["power-w"].series[0].x.tolist() == [1, 2, 3]
    assert charts["power-w"].x.unit == "position"


def test_spans_show_when_and_why_a_gpu_was_throttled():
    reasons = [0, POWER, POWER, 0, HEAT, 0]
    charts, table = page(beside(device_samples=samples(6, sm_clock_mhz=1500.0, reasons=reasons)))
    held = {each.name: list(zip(each.x.tolist(), each.y.tolist(), strict=True))
            for each in charts["sm-clock-mhz"].series if each.kind == "spans"}  # fmt: skip
    assert held == {"throttled by temperature": [(5, 6)], "throttled by the power limit": [(2, 4)]}
    assert column(table, "throttled by the power limit") == [pytest.approx(2 / 6)]
    assert column(table, "throttled by temperature") == [pytest.approx(1 / 6)]


def test_one_limit_of_all_is_a_line_and_several_are_none():
    equal = [*samples(3, device=0, power_w=300.0, power_limit_w=400.0), *samples(3, device=1, power_w=300.0)]
    charts, _ = page(beside(device_samples=equal))
    assert [each.y.tolist() for each in charts["power-w"].series if each.kind == "guide"] == [[400, 400]]
    unlike = [*equal, *samples(3, device=2, power_w=300.0, power_limit_w=500.0)]
    charts, _ = page(beside(device_samples=unlike))
    assert not any(each.kind == "guide" for each in charts["power-w"].series)


def test_one_sample_each_is_a_table_alone():
    charts, table = page(
        beside(device_samples=[*samples(1, device=0, power_w=1.0), *samples(1, device=1, power_w=2.0)])
    )
    assert charts == {}
    assert column(table, "power") == [1.0, 2.0]


@pytest.mark.recordings
def test_the_page_agrees_with_plain_python_on_a_csv():
    path = public("device/nanogpt-gpu-metrics.csv")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    key = {name.strip().lower(): name for name in rows[0]}
    gpu = next(key[each] for each in key if each in ("gpu", "gpu_id", "gpu_index", "index", "device"))
    power = next(key[each] for each in key if "power" in each)
    watts: dict[str, list[float]] = {}
    for row in rows:
        watts.setdefault(row[gpu].strip(), []).append(float(row[power].split()[0]))
    charts, table = page(read([path]))
    assert column(table, "samples") == [len(each) for each in watts.values()]
    assert column(table, "power, mean") == pytest.approx([np.mean(each) for each in watts.values()])
    assert column(table, "power, highest") == [max(each) for each in watts.values()]
    line = charts["power-w"].series[0]
    assert (line.y.min(), line.y.max()) == (min(watts["0"]), max(watts["0"]))

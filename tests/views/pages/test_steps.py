"""Does the page of steps show the length and the parts of each step, and the outliers?"""

from __future__ import annotations

import gzip
import json
from itertools import pairwise

import numpy as np
import pytest
from builders import draw
from folders import FIXTURES
from report.samples import INPUT_BOUND
from view_tables import rows_of

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Timeline, merge
from perfdoctor.readers.open import read
from perfdoctor.records.views import Chart, Table
from perfdoctor.views.pages import steps

STRAGGLER = FIXTURES / "straggler" / "torch"
UNIT_NS = 100_000


def page(timeline: Timeline) -> tuple[Chart | None, Table | None]:
    made = list(steps.view(prepare(timeline), INPUT_BOUND))
    chart = next((m for m in made if isinstance(m, Chart)), None)
    return chart, next((m for m in made if isinstance(m, Table) and m.id == "steps"), None)


def series(chart, name):
    return next(each for each in chart.series if each.name == name)


def column(table, name):
    return list(next(each.values for each in table.columns if each.name == name))


def with_long_steps(*long: int, count: int = 12) -> Timeline:
    """Steps of ten units of compute and two of nothing; the long ones compute for thirty."""
    usual = draw(kernels="##########  ", launched_us_before=50, repeat=count)
    start = usual.kernels.start_ns.copy()
    end = usual.kernels.end_ns.copy()
    for each in long:
        end[each] += 20 * UNIT_NS
        start[each + 1 :] += 20 * UNIT_NS
        end[each + 1 :] += 20 * UNIT_NS
    moved = usual.kernels.with_columns(start_ns=start, end_ns=end)
    ranges = usual.ranges.take(np.zeros(len(usual.ranges), bool))
    marks = usual.ranges.with_columns(start_ns=start, end_ns=np.append(start[1:], end[-1] + 2 * UNIT_NS))
    calls = usual.calls.with_columns(start_ns=start - 50_000, end_ns=start - 49_000)
    assert len(ranges) == 0
    return Timeline.build({"kernels": moved, "ranges": marks, "calls": calls}, usual.recorded)


def test_the_bars_of_a_step_are_its_parts():
    chart, table = page(draw(kernels="######    ", host=["l         "], repeat=9))
    bars = [each for each in chart.series if each.kind == "bars"]
    total = np.sum([each.y for each in bars], axis=0)
    assert series(chart, "compute").y.tolist() == [6 * UNIT_NS] * total.size
    assert total.tolist() == [10 * UNIT_NS] * total.size
    assert column(table, "compute")[-1] == 6 * UNIT_NS
    assert chart.series[0].x.tolist() == list(range(1, total.size + 1))


def test_a_long_step_is_marked_with_the_part_that_grew():
    chart, table = page(with_long_steps(6))
    marks = next(each for each in chart.series if each.kind == "marks")
    used = [number for number in column(table, "step") if number is not None]
    remarks = dict(zip(column(table, "step"), column(table, "remark"), strict=True))
    (at,) = marks.x.tolist()
    assert remarks[at] == "outlier: compute grew most"
    assert marks.labels == (f"step {int(at)}: compute grew most",)
    assert marks.y.tolist() == [max(column(table, "duration")[-len(used) :])]
    assert sum(bool(remark) and remark.startswith("outlier") for remark in remarks.values()) == 1


def test_where_many_steps_are_long_none_is_an_outlier():
    chart, _ = page(with_long_steps(2, 4, 6, 8, 10))
    assert not any(each.kind == "marks" for each in chart.series)
    assert "Outliers" not in chart.description


def test_few_steps_are_too_few_for_an_outlier():
    chart, _ = page(with_long_steps(3, count=6))
    assert not any(each.kind == "marks" for each in chart.series)


def test_median_and_90th_percentile_are_those_of_the_steps():
    chart, table = page(with_long_steps(6))
    durations = [ns for ns, number in zip(column(table, "duration"), column(table, "step"), strict=True) if number]
    assert series(chart, "median").y.tolist() == [float(np.median(durations))] * 2
    assert series(chart, "90th percentile").y.tolist() == pytest.approx([np.quantile(durations, 0.9)] * 2)


def test_of_a_thousand_steps_a_bar_is_the_mean_and_the_longest_stays():
    chart, table = page(draw(kernels="####  ", launched_us_before=50, repeat=1000))
    compute = series(chart, "compute")
    assert compute.x.size <= steps.MOST_BARS
    together = -(-(table.rows_in_all - column(table, "step").count(None)) // compute.x.size)
    assert f"A bar is the mean of {together} steps" in chart.description
    longest = series(chart, "longest of those in the bar")
    assert longest.y.max() == max(ns for ns, number in zip(column(table, "duration"), column(table, "step"), strict=True)
                                  if number)  # fmt: skip
    assert np.allclose(compute.y, 4 * UNIT_NS)


def test_several_ranks_are_shown_by_their_mean_and_the_longest():
    ranks = merge([draw(kernels="#" * (4 + 2 * rank) + " " * (6 - 2 * rank), launched_us_before=50, repeat=6, rank=rank)
                   for rank in range(2)])  # fmt: skip
    chart, table = page(ranks)
    assert set(series(chart, "compute").y.tolist()) == {5 * UNIT_NS}
    assert set(column(table, "longest on")) <= {"rank 0", "rank 1"}
    means, low, high = (column(table, name) for name in ("mean of all ranks", "shortest", "longest"))
    assert all(a <= b <= c for a, b, c in zip(low, means, high, strict=True))


def test_without_steps_there_is_no_page():
    assert page(draw(kernels="##  ##  ", launched_us_before=50)) == (None, None)


def test_steps_of_a_trace_are_as_long_as_plain_python_says():
    """Rank 0's steps by its kernels: from the first one that a step's range launched to that of the next step."""
    timeline = read([STRAGGLER])
    _, table = page(timeline)
    means = [ns for ns, number in zip(column(table, "mean of all ranks"), column(table, "step"), strict=True) if number]
    found = np.mean(
        [_durations(json.loads(gzip.decompress(path.read_bytes()))) for path in sorted(STRAGGLER.iterdir())], axis=0
    )
    first = prepare(timeline).places[0].steps.first
    assert np.allclose(means, found[first : first + len(means)], rtol=1e-3)


def _durations(trace: dict) -> list[float]:
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    marks = sorted(e["ts"] for e in events if e["cat"] == "user_annotation" and e["name"].startswith("ProfilerStep"))
    calls = {e["args"]["correlation"]: e["ts"] for e in events if e["cat"] == "cuda_runtime"}
    work = [(calls[e["args"]["correlation"]], e["ts"]) for e in events if e["cat"] in ("kernel", "gpu_memcpy")]
    begins = [min(at for call, at in work if mark <= call < end)
              for mark, end in zip(marks, [*marks[1:], float("inf")], strict=True)]  # fmt: skip
    return [(b - a) * 1000 for a, b in pairwise(begins)]


def test_what_passed_before_the_first_step_is_a_table_that_sums_to_it():
    """A warm-up step is among it: 200 ms of compiling, one step of 40 ms, and the steps of 10 ms that are analysed."""
    marks = "0" * 40 + "".join(str(step) * 10 for step in range(1, 8))
    drawn = draw(
        kernels=" " * 200 + " " + "#" * 35 + "    " + " #####    " * 7,
        host=["x" * 200 + "l" + " " * 39 + "l         " * 7, " " * 200 + marks],
        unit_us=1000,
    )
    found = rows_of(
        next(each for each in steps.view(prepare(drawn), INPUT_BOUND) if each.title == "Before the first step")
    )
    by_kind = {row["what"]: row["time"] / 1e6 for row in found}
    assert by_kind["code is compiled or tuned"] == 200
    assert by_kind["kernels, other copies and ops run"] == 35
    assert sum(by_kind.values()) == pytest.approx(241)
    assert sum(row["share"] for row in found) == pytest.approx(1)
    assert found[0]["innermost on the host"] == "torch/_inductor/compile_fx.py(1): compile_fx"

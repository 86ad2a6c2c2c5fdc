"""Does the page of ranks show how the ranks differ?"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from builders import draw
from folders import FIXTURES
from machine_builders import beside, samples
from report.samples import INPUT_BOUND

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Timeline, merge
from perfdoctor.readers.open import read
from perfdoctor.records.views import Heat, Table
from perfdoctor.views.pages import ranks

STRAGGLER = FIXTURES / "straggler" / "torch"
UNIT_NS = 100_000


def page(timeline: Timeline) -> dict[str, Heat | Table]:
    made = list(ranks.view(prepare(timeline), INPUT_BOUND))
    return {("table " if isinstance(each, Table) else "") + each.id: each for each in made}


def column(table, name):
    return list(next(each.values for each in table.columns if each.name == name))


def job(*pictures: str, repeat: int = 6, **more) -> Timeline:
    return merge([
        draw(kernels=kernels, launched_us_before=50, repeat=repeat, rank=rank, device=rank, **more)
        for rank, kernels in enumerate(pictures)
    ])  # fmt: skip


def test_one_rank_has_no_page():
    assert page(job("####  ")) == {}


def test_each_cell_is_the_part_s_share_of_the_rank_s_step():
    found = page(job("####      ", "######    ", "########  "))["ranks-parts"]
    computing = found.values[:, found.columns.index("compute")]
    assert computing.tolist() == pytest.approx([0.4, 0.6, 0.8], abs=1e-6)
    assert found.values.sum(axis=1).tolist() == pytest.approx([1, 1, 1])
    assert found.rows == ("rank 0", "rank 1", "rank 2")
    numbers = {name: value for name, (value, _) in found.numbers.items()}
    assert (numbers["low_rank"], numbers["high_rank"]) == ("rank 0", "rank 2")
    assert numbers["high"] - numbers["low"] == pytest.approx(0.4)


def test_equal_ranks_are_described_as_equal():
    found = page(job("####  ", "####  "))
    assert found["ranks-parts"].description == "The ranks hardly differ."
    assert found["ranks-steps"].description == "All steps take {median}."


def test_each_rank_has_a_row_of_its_steps():
    found = page(job("####      ", "######    "))["ranks-steps"]
    assert found.values.shape[0] == 2
    assert np.allclose(found.values, 10 * UNIT_NS)
    assert found.columns[0] == "step 1"


def test_of_many_steps_the_longest_of_neighbours_stays():
    found = page(job("####  ", "###   ", repeat=400))["ranks-steps"]
    assert len(found.columns) == found.values.shape[1] <= 120
    assert "A column is the longest of 4 steps" in found.description


def test_the_table_has_times_per_step_longest_step_first():
    table = page(job("####      ", "######    "))["table ranks"]
    computing = dict(zip(column(table, "rank"), column(table, "compute"), strict=True))
    assert computing == {"rank 0": 4 * UNIT_NS, "rank 1": 6 * UNIT_NS}
    assert column(table, "kernels") == [1, 1]


def test_the_clock_of_each_rank_s_gpu_is_the_median_under_load():
    given = [
        *samples(5, device=0, sm_clock_mhz=[1410, 1400, 1410, 1980, 1410]),
        *samples(5, device=1, sm_clock_mhz=1980),
    ]
    table = page(beside(job("####  ", "####  "), device_samples=given))["table ranks"]
    clocks = dict(zip(column(table, "rank"), column(table, "SM clock"), strict=True))
    assert clocks == {"rank 0": 1410e6, "rank 1": 1980e6}


def test_hundreds_of_ranks_have_a_page():
    one = draw(kernels="####  ", launched_us_before=50, repeat=4)
    many = merge([
        Timeline.build(
            {name: frame.with_columns(rank=np.full(len(frame), rank)) for name, frame in one.frames.items() if len(frame)},
            one.recorded,
        )
        for rank in range(300)
    ])  # fmt: skip
    found = page(many)
    assert found["ranks-parts"].values.shape[0] == 300
    assert found["table ranks"].rows_in_all == 300


def test_the_late_rank_of_a_trace_has_the_highest_lateness():
    """Plain Python: a collective ends for all together, so who is in it for the shortest time came last."""
    table = page(read([STRAGGLER]))["table ranks"]
    late = dict(zip(column(table, "rank"), column(table, "lateness"), strict=True))
    durations = []
    for path in sorted(STRAGGLER.iterdir()):
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        work = sorted((e["ts"], e["dur"]) for e in events if e.get("cat") == "kernel" and "nccl" in e["name"].lower())
        durations.append([length for _, length in work])
    by = np.median(durations, axis=0) - np.min(durations, axis=0)
    last = np.bincount(np.argmin(durations, axis=0), weights=by, minlength=4).argmax()
    assert max(late, key=late.get) == f"rank {last}"
    waits = dict(zip(column(table, "rank"), column(table, "waits for others"), strict=True))
    assert min(waits, key=waits.get) == f"rank {last}"

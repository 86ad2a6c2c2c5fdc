"""Does the page of collectives agree with plain loops, on waiting for a late rank and on the bandwidth of links too?"""

from __future__ import annotations

import statistics
from collections import defaultdict

import pytest
from builders import draw, draw_steps
from collective_builders import described
from folders import ROOT
from machine_builders import beside, links
from recorded import of_recordings, recording
from view_tables import GPU_RECORDINGS, covered_ns, inside_ns, on_device, rows_of, window_of

from perfdoctor.hardware.links import link_of, nvlink_bytes_per_second
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.collectives import bandwidths
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.model.timeline import merge
from perfdoctor.views.pages import communication

MS = 1_000_000
SXM = "NVIDIA A100-SXM4-80GB"
JOBS = [path for path in GPU_RECORDINGS if path.parent.name in ("straggler", "communication-exposed")]


def rows(run):
    return [row for table in communication.view(run, None) for row in rows_of(table)]


@of_recordings(JOBS)
def test_each_kind_costs_what_plain_loops_find(path):
    run = recording(path).run
    found, ns, hidden = defaultdict(list), defaultdict(float), defaultdict(float)
    for place in run.places:
        computing = [(row.start_ns, row.end_ns) for row in on_device(run, place, "kernels")]
        for row in on_device(run, place, "collectives"):
            key = row.kind, row.bytes if row.bytes >= 0 else None, row.group_name
            each = place.units * len(run.places)
            found[key].append(row.end_ns - row.start_ns)
            ns[key] += inside_ns(row, window_of(place)) / each
            begin, end = max(row.start_ns, window_of(place)[0]), min(row.end_ns, window_of(place)[1])
            beside = [(max(start, begin), min(stop, end)) for start, stop in computing if stop > begin and start < end]
            hidden[key] += covered_ns(beside) / each
    shown = {(row["collective"], row.get("message"), row.get("group", "")): row for row in rows(run)}
    assert shown.keys() == found.keys()
    for key, row in shown.items():
        assert row["total count"] == len(found[key])
        assert row["time a step"] == pytest.approx(ns[key])
        assert row["hidden a step"] == pytest.approx(hidden[key])
        assert row["exposed a step"] == pytest.approx(ns[key] - hidden[key])
        assert (row["shortest"], row["longest"]) == (min(found[key]), max(found[key]))
        assert row["median"] == statistics.median(found[key])


def test_waiting_is_the_time_until_the_last_rank_arrives():
    run = recording(ROOT / "fixtures" / "straggler" / "torch").run
    matched = skew(run)
    expected = sum(
        ns / place.units for ns, place in zip(matched.waiting_ns.tolist(), run.places, strict=True)
    ) / len(run.places)  # fmt: skip
    assert sum(row["waiting a step"] for row in rows(run)) == pytest.approx(expected)
    assert expected > 0.1 * run.step_ns


def rank(number, size, *, gpu=SXM, ranks=2, late=0, device=None):
    """30 ms of compute and an all-reduce of 10 ms."""
    drawn = draw_steps(
        kernels="#" * (30 + late) + " " * (10 - late), nccl=" " * (30 + late) + "=" * (10 - late),
        rank=number, device=number if device is None else device, gpu=gpu,
    )  # fmt: skip
    return described(drawn, bytes=size, group_size=ranks, data_type="Float")


def test_bandwidth_is_of_the_transfer_alone():
    """Rank 1 comes 5 ms late: 50 MB in the 5 ms left; among two ranks an all-reduce loads the link once."""
    run = prepare(merge([rank(0, 50_000_000), rank(1, 50_000_000, late=5)]))
    (row,) = rows(run)
    assert row["transfer"] == 5 * MS
    assert row["algorithm bandwidth"] == row["bus bandwidth"] == pytest.approx(10e9)
    assert row["bus bandwidth"] == pytest.approx(bandwidths(run, 0)[0].bus_bytes_per_second)
    assert row["waiting a step"] == pytest.approx(2.5 * MS)  # 5 ms on one of two ranks
    assert row["link bandwidth"] == link_of(SXM).peak_bytes_per_second
    assert row["of the link"] == pytest.approx(10e9 / link_of(SXM).peak_bytes_per_second)
    assert (row["message"], row["ranks"], row["data type"]) == (50_000_000, 2, "Float")


def test_measured_bandwidth_and_topology_have_priority_over_the_data_sheet():
    job = merge([rank(0, 50_000_000), rank(1, 50_000_000)])
    test = {
        "name": "all_reduce",
        "source": "nccl-tests",
        "ranks": 2,
        "machines": 1,
        "bytes": 50_000_000,
        "bus_bytes_per_second": 180e9,
    }
    (row,) = rows(prepare(beside(job, link_tests=[{"start_ns": 0, "end_ns": 0, "time_ns": 0, **test}])))
    assert (row["link bandwidth"], row["source"]) == (180e9, "nccl-tests")
    (row,) = rows(prepare(beside(job, links=links((0, 1, "NV4")))))
    assert (row["link bandwidth"], row["source"]) == (4 * nvlink_bytes_per_second(SXM), "topology")
    (row,) = rows(prepare(beside(job, links=links((0, 1, "SYS")))))
    assert "link bandwidth" not in row


def test_a_group_inside_a_machine_is_not_held_against_links_between_machines():
    """Ranks 0 and 1 are in one machine, 2 and 3 in another: two groups of two."""
    parts = [
        described(
            draw_steps(kernels="#" * 30, nccl=" " * 30 + "=" * 10, rank=number, device=number % 2, gpu=""),
            bytes=50_000_000, group_size=2, group_name=f"tensor {number // 2}",
        )
        for number in range(4)
    ]  # fmt: skip
    test = {"name": "all_reduce", "source": "nccl-tests", "ranks": 2, "bytes": 50_000_000}
    inside, between = ({**test, "bus_bytes_per_second": speed, "machines": n} for speed, n in ((180e9, 1), (20e9, 2)))
    found = rows(prepare(beside(merge(parts), link_tests=[inside, between])))
    assert [row["link bandwidth"] for row in found] == [180e9, 180e9]
    assert not any("link bandwidth" in row for row in rows(prepare(beside(merge(parts), link_tests=[between]))))


def test_without_all_ranks_only_the_fastest_execution_has_a_bandwidth():
    run = prepare(merge([rank(0, 50_000_000, ranks=4), rank(1, 50_000_000, ranks=4)]))
    (row,) = rows(run)
    assert "bus bandwidth" not in row
    assert "link bandwidth" not in row
    assert row["fastest bus bandwidth"] == pytest.approx(50e6 / 10e-3 * 2 * 3 / 4)


def test_without_sizes_there_is_no_bandwidth():
    run = prepare(merge([rank(number, -1, ranks=-1) for number in (0, 1)]))
    (row,) = rows(run)
    assert not {"bus bandwidth", "fastest bus bandwidth", "link bandwidth", "message"} & row.keys()
    assert row["count a step"] == 1


def test_devices_that_may_be_in_two_machines_have_no_bound():
    run = prepare(merge([rank(0, 50_000_000), rank(1, 50_000_000, device=0)]))
    (row,) = rows(run)
    assert "link bandwidth" not in row


def test_sizes_have_rows_of_their_own():
    drawn = described(
        draw(kernels="## ##", nccl="  =  =", launched_us_before=50, repeat=4), bytes=[1000, 2_000_000] * 4, group_size=8
    )
    assert {row["message"] for row in rows(prepare(drawn))} == {1000, 2_000_000}


def test_no_table_without_collectives():
    assert rows(prepare(draw(kernels="####"))) == []

"""What did communication cost, by what it is for?"""

from __future__ import annotations

import pytest
from builders import draw
from collective_builders import MIB, described

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.by_use import collective_uses, exposed_each_ns, mostly, table_of_uses
from perfdoctor.model.timeline import Timeline, merge

UNIT_NS = 100_000


def rank(number: int, nccl: str, groups: list[str], kinds: list[str], sizes: list[int]) -> Timeline:
    drawn = draw(
        kernels="#" + " " * 30, nccl=" " + nccl, rank=number, device=number, unit_us=100, gpu="NVIDIA H100 80GB HBM3"
    )
    return described(drawn, group_name=groups, kind=kinds, bytes=sizes, group_size=2)


def two_ranks():
    """A sum of each pair of ranks over a layer, of which the second half waits; then one of gradients."""
    kinds, sizes = ["all_reduce", "all_reduce", "all_reduce"], [2 * MIB, 2 * MIB, 64 * MIB]
    groups = ["3 mesh_tp [0, 1]", "3 mesh_tp [0, 1]", "4 mesh_dp [0, 1]"]
    return prepare(
        merge([
            rank(0, "== ==  ======", groups, kinds, sizes),
            rank(1, " =  =    ====", groups, kinds, sizes),
        ])
    )  # fmt: skip


def test_collectives_of_one_use_are_one_row_and_the_longest_is_first():
    of_dp, of_tp = collective_uses(two_ranks())
    assert (of_dp.parallelism, of_tp.parallelism, of_tp.by_name) == ("data", "tensor", True)
    assert (of_tp.kind, of_tp.ranks, of_tp.groups, of_tp.group) == ("all_reduce", 2, 1, "3 mesh_tp [0, 1]")
    assert (of_tp.count, of_tp.bytes) == (2, 4 * MIB)


def test_waiting_and_transfer_are_told_apart_and_bandwidth_is_of_the_transfer():
    of_dp, of_tp = collective_uses(two_ranks())
    assert of_tp.ns == 3 * UNIT_NS  # four units on rank 0, two on rank 1
    assert (of_tp.waiting_ns, of_tp.transfer_ns) == (1 * UNIT_NS, 2 * UNIT_NS)
    # An all-reduce of two ranks carries each byte over its link once: 64 MiB in 0.4 ms.
    assert of_dp.bus_bytes_per_second == pytest.approx(64 * MIB / (4 * UNIT_NS / 1e9))
    assert (of_dp.link_bytes_per_second, of_dp.link_source) == (450e9, "NVLink 4")


def test_groups_of_one_use_are_counted_and_their_names_are_not_mixed():
    kinds, sizes = ["all_gather"], [MIB]
    pairs = [("5 mesh_tp [0, 1]", 0), ("5 mesh_tp [0, 1]", 1), ("6 mesh_tp [2, 3]", 2), ("6 mesh_tp [2, 3]", 3)]
    run = prepare(merge([rank(number, "==", [group], kinds, sizes) for group, number in pairs]))
    (row,) = collective_uses(run)
    assert (row.parallelism, row.groups, row.group) == ("tensor", 2, "")
    assert row.count == 1  # of a rank


def test_what_most_time_goes_to_is_named_where_it_is_known():
    run = two_ranks()
    assert mostly(run, run.places, exposed_each_ns) == "all-reduces of data parallelism"
    even = prepare(rank(0, "== ==", ["mesh_tp [0, 1]", "mesh_dp [0, 1]"], ["all_reduce", "all_reduce"], [8, 8]))
    assert not mostly(even, even.places, exposed_each_ns)
    unknown = prepare(rank(0, "==", ["9 [0, 1]"], ["broadcast"], [8]))
    assert not mostly(unknown, unknown.places, exposed_each_ns)


def test_a_run_without_collectives_has_no_row_and_no_table():
    run = prepare(draw(kernels="## ##"))
    assert collective_uses(run) == ()
    assert table_of_uses(run) == ()


def test_the_diagnosis_has_the_rows():
    (row,) = diagnose(rank(0, "==", ["mesh_ep [0, 1]"], ["all_to_all"], [MIB]), []).collectives
    assert (row.parallelism, row.waiting_ns) == ("expert", None)  # of one rank alone it is not known

"""What does each collective carry, and how fast?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw, only_place
from collective_builders import described
from msgspec.structs import replace

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.collectives import (
    bandwidths,
    bus_factor,
    exposed_rows_ns,
    in_one_node,
    is_full_precision,
    matched_bytes,
    transfer_share,
    waited_for,
    won_by_all_ns,
)
from perfdoctor.model.timeline import Text, merge

UNIT_NS = 100_000


@pytest.mark.parametrize(
    ("kind", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 4, 0.75),
        ("all_to_all", 4, 0.75),
        ("broadcast", 8, 1.0),
        ("send_recv", 2, 1.0),
        ("all_reduce", 1, 0.0),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(kind, ranks, factor):
    assert bus_factor(kind, ranks) == factor


def ranks(*pictures: str, **columns):
    drawn = [draw(nccl=nccl, kernels="#", rank=rank, device=rank) for rank, nccl in enumerate(pictures)]
    return prepare(merge([described(each, **columns) for each in drawn]))


def test_bandwidth_counts_from_the_arrival_of_the_last_rank():
    run = ranks(" ========", "     ====", bytes=8_000_000, group_size=2)
    (found,) = bandwidths(run, min_bytes=1)
    # 8 MB in 4 units of 0.1 ms
    assert found.bus_bytes_per_second == pytest.approx(8e6 / 4e-4)
    assert (found.ranks, found.message_bytes) == (2, 8_000_000)
    assert found.exposed_ns == (8 + 4) / 2 * UNIT_NS


def test_bandwidth_of_four_ranks_by_hand():
    run = ranks(*[" ======="] * 4, bytes=7_000_000, group_size=4)
    (found,) = bandwidths(run, min_bytes=1)
    assert found.bus_bytes_per_second == pytest.approx(7e6 / 7e-4 * 2 * 3 / 4)


def test_without_the_whole_group_or_sizes_there_is_no_bandwidth():
    assert bandwidths(ranks(" ====", " ====", bytes=8, group_size=4), min_bytes=1) == []
    assert bandwidths(ranks(" ====", " ====", group_size=2), min_bytes=1) == []
    assert bandwidths(ranks(" ====", bytes=8, group_size=2), min_bytes=1) == []
    assert bandwidths(ranks(" ====", " ====", bytes=8, group_size=2), min_bytes=9) == []


def test_groups_of_some_ranks_are_measured_each_for_itself():
    run = prepare(
        merge(
            [
                described(draw(nccl=nccl, rank=rank, device=rank, group=group), bytes=1_000_000, group_size=2)
                for rank, (group, nccl) in enumerate([("a", "===="), ("a", "===="), ("b", "=="), ("b", "==")])
            ]
        )
    )
    speeds = sorted(each.bus_bytes_per_second for each in bandwidths(run, min_bytes=1))
    assert speeds == pytest.approx([1e6 / 4e-4, 1e6 / 2e-4])


def test_ranks_are_in_one_node_if_their_devices_are_numbered_like_them():
    places = ranks(" ====", " ====").places
    assert in_one_node(places)
    same_number = prepare(merge([draw(nccl="==", rank=rank, device=0) for rank in (0, 1)])).places
    assert not in_one_node(same_number)
    two_nodes = prepare(merge([draw(nccl="==", rank=rank, device=device) for rank, device in ((0, 0), (9, 1))])).places
    assert not in_one_node(two_nodes)


def test_transfer_and_waiting_share_the_time_in_collectives():
    # 8 and 4 units, of which 4 are waiting
    assert transfer_share(ranks(" ========", "     ====")) == pytest.approx(8 / 12)
    assert transfer_share(ranks(" ====")) == 1.0
    short = described(draw(nccl=" ====", unit_us=100), kind="all_reduce", bytes=64, group_size=2)
    assert transfer_share(prepare(short)) == pytest.approx(2 * 100 / 400, rel=0.01)  # two steps over sockets
    assert transfer_share(prepare(described(short, bytes=100 << 20))) == 1.0


def test_compute_waits_for_a_collective_only_if_it_goes_on_after_one():
    place = only_place(draw(kernels="## ###   ##", nccl=" =====   = ", copies="          x"))
    # exposed: unit 2, where compute goes on in the middle; and unit 9 is hidden
    assert place.exposed_communication.total_ns == UNIT_NS
    assert waited_for(place).total_ns == 0
    place = only_place(draw(kernels="##   ##", nccl=" ====  "))
    assert waited_for(place).total_ns == 3 * UNIT_NS
    assert exposed_rows_ns(place, place.collectives.text("kind").equals("all_reduce")) == 3 * UNIT_NS


def test_compute_that_waits_for_one_of_two_collectives_waited():
    place = only_place(draw(kernels="##   ####", nccl=["  ===    ", "  =======".replace("=", "-")]))
    assert waited_for(place).total_ns == 3 * UNIT_NS


def test_types_are_read_from_the_recording_else_from_the_kernel():
    by_name = only_place(draw(nccl="== a rr")).collectives
    assert is_full_precision(by_name).tolist() == [True, False, True]
    described_half = only_place(described(draw(nccl="=="), data_type="BFloat16")).collectives
    assert is_full_precision(described_half).tolist() == [False]


def test_loads_are_known_only_where_bytes_are():
    run = prepare(
        merge([described(draw(nccl="== ==", rank=rank), kind="all_to_all", bytes=[4, 6 + rank]) for rank in (0, 1)])
    )
    assert matched_bytes(run, "all_to_all").sizes.tolist() == [[4, 6], [4, 7]]
    assert matched_bytes(run, "all_reduce") is None
    assert matched_bytes(ranks("==", "=="), "all_reduce") is None


def test_a_transfer_that_the_last_rank_hides_costs_nobody_anything():
    def won_units(late_computes: str) -> float:
        early = draw(kernels="##          ##", nccl="    ========  ", rank=0)
        late = draw(kernels=late_computes, nccl=" " * 8 + "====  ", rank=1)
        return won_by_all_ns(prepare(merge([early, late]))) / UNIT_NS

    assert won_units("############  ") == 0
    assert won_units("########    ##") == pytest.approx(4)
    assert won_units("##########  ##") == pytest.approx(2)


def test_what_broadcasts_cost_counts_in_full_beside_all_reduces_that_are_hidden():
    """Nobody knows who came last in a broadcast: its 4 units of waiting are not taken for as hidden as the sums."""
    both = [draw(kernels="    ########", nccl="====    == ", rank=rank) for rank in (0, 1)]
    broadcast = [each.collectives.start_ns == each.collectives.start_ns.min() for each in both]
    described = []
    for each, rows in zip(both, broadcast, strict=True):
        kinds = Text.of("broadcast" if row else "all_reduce" for row in rows.tolist())
        frames = {**each.frames, "collectives": each.collectives.with_columns(kind=kinds)}
        described.append(replace(each, frames=frames))
    assert won_by_all_ns(prepare(merge(described))) / UNIT_NS == pytest.approx(4)


def test_one_rank_alone_does_not_tell_what_a_transfer_costs_all():
    assert won_by_all_ns(prepare(draw(kernels="##    ##", nccl="  ====  "))) == np.inf

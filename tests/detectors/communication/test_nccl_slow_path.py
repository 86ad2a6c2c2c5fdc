"""nccl-slow-path: a wrong map, no peer access, no GPUDirect."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary
from machine_builders import beside, fact, links, way

MAP = fact("topology_file", "topo.xml")
TWO = fact("machines", "16", 2.0)


def measured(gigabytes: float, **more):
    return [
        {"name": "all_reduce", "source": "nccl-tests", "ranks": 2, "machines": 1, "bytes": 1 << 30,
         "time_ns": 10_000_000, "bus_bytes_per_second": gigabytes * 1e9, **more}
    ]  # fmt: skip


def test_it_fires_on_a_map_in_which_links_of_one_machine_differ():
    finding = only_finding(
        "nccl-slow-path", beside(nccl_facts=[MAP, fact("nvlink", "NVL", 20.0), fact("nvlink", "NVL", 240.0)])
    )
    assert finding.situation == "links-differ"
    assert "topo.xml describes one NVLink connection of 20 GB/s and another of 240 GB/s in the same machine" in summary(
        finding
    )


def test_it_fires_on_a_map_that_less_than_what_was_measured():
    facts = [MAP, fact("graph", "4 NVL/PIX of 2", 20.0), fact("nvls_channels", "", 0.0)]
    finding = only_finding("nccl-slow-path", beside(nccl_facts=facts, link_tests=measured(28.6)))
    assert finding.situation == "carried-more"
    with_switches = [MAP, fact("graph", "4 NVL/PIX of 2", 20.0), fact("nvls_channels", "", 16.0)]
    assert findings("nccl-slow-path", beside(nccl_facts=with_switches, link_tests=measured(28.6))) == []


@pytest.mark.parametrize(
    "other",
    [{"ranks": 8}, {"machines": 2}, {"name": "send_recv"}, {"source": "flight recorder"}],
    ids=lambda other: next(iter(other)),
)
def test_only_rings_among_as_many_ranks_of_one_machine_are_held_against_what_was_measured(other):
    facts = [MAP, fact("graph", "4 NVL/PIX of 2", 20.0), fact("graph", "4 NVL/PIX of 8", 100.0)]
    given = beside(nccl_facts=facts, link_tests=measured(28.6, **other))
    assert findings("nccl-slow-path", given) == []


def test_rings_between_machines_are_not_held_against_what_was_measured():
    """Azure's healthy machines: their topology file is right, and the network carries less than NVLink."""
    facts = [MAP, fact("graph", "4 NVL/PIX of 2", 20.0), fact("machines", "2", 2.0)]
    assert findings("nccl-slow-path", beside(nccl_facts=facts, link_tests=measured(28.6))) == []
    assert findings("nccl-slow-path", beside(nccl_facts=facts, link_tests=measured(28.6, machines=2))) == []
    unknown = [MAP, fact("graph", "4 NVL/PIX of 2", 20.0), fact("members", "", 2.0, host=1)]  # older versions
    assert findings("nccl-slow-path", beside(nccl_facts=unknown, link_tests=measured(28.6))) == []


def test_it_stays_silent_just_below_what_no_board_has():
    """A hybrid cube mesh joins some pairs by twice the links of others."""
    assert (
        findings("nccl-slow-path", beside(nccl_facts=[MAP, fact("nvlink", "", 20.0), fact("nvlink", "", 40.0)])) == []
    )
    facts = [MAP, fact("graph", "4 NVL/PIX of 2", 20.0)]
    assert findings("nccl-slow-path", beside(nccl_facts=facts, link_tests=measured(23.9))) == []


def test_it_stays_silent_about_links_that_differ_without_a_map():
    assert findings("nccl-slow-path", beside(nccl_facts=[fact("nvlink", "", 20.0), fact("nvlink", "", 240.0)])) == []


def test_it_fires_where_peer_access_was_switched_off():
    given = beside(
        nccl_facts=[fact("environment", "NCCL_P2P_DISABLE=1"), fact("machines", "2", 1.0)],
        transports=[way("SHM/direct/direct", 0, 1), way("SHM/direct/direct", 1, 0)],
    )
    finding = only_finding("nccl-slow-path", given)
    assert finding.situation == "peer-access-off"
    assert "2 connections inside a machine go through shared host memory (NCCL_P2P_DISABLE=1 is set" in summary(finding)


@pytest.mark.parametrize("others", [[], [(0, 2, "PHB")]], ids=["all", "some"])
def test_it_fires_where_shared_memory_is_taken_past_nvlink(others):
    given = beside(
        nccl_facts=[fact("members", "", 2.0)],
        transports=[way("SHM/direct/direct", 0, 1)],
        links=links((0, 1, "NV4"), *others),
    )
    assert only_finding("nccl-slow-path", given).situation == "past-nvlink"


def test_it_stays_silent_on_gpus_that_have_no_peer_access():
    """Workstation cards: shared memory is the best that they have."""
    given = beside(
        nccl_facts=[fact("members", "", 2.0)], transports=[way("SHM/direct/direct", 0, 1)], links=links((0, 1, "PHB"))
    )
    assert findings("nccl-slow-path", given) == []


def test_it_fires_without_gpudirect_between_machines():
    ways = [way("NET/IB/0", 0, 8), way("NET/IB/0", 8, 0), way("NET/IB/1/GDRDMA", 1, 9)]
    drawn = draw(kernels="####    ", nccl="    ====", launched_us_before=50, repeat=6)
    finding = only_finding("nccl-slow-path", beside(drawn, nccl_facts=[TWO], transports=ways))
    assert (finding.situation, finding.values["pairs"]) == ("", 2)
    assert finding.saving_ns_per_step.high == 400_000


@pytest.mark.parametrize(("gpu", "fires"), [("NVIDIA GeForce RTX 3090", False), ("NVIDIA A40", True)])
def test_it_stays_silent_on_gpus_that_have_no_gpudirect(gpu, fires):
    given = beside(nccl_facts=[TWO], transports=[way("NET/IB/0", 0, 8)], link_tests=measured(5.0, gpu=gpu))
    assert bool(findings("nccl-slow-path", given)) == fires


def test_it_stays_silent_where_only_sends_leave_gpudirect_out():
    """NCCL_NET_GDR_READ is off by default on older GPUs without NVLink."""
    sends = way("NET/IB/0", 0, 8, direction="send")
    receives = way("NET/IB/0/GDRDMA", 8, 0, direction="receive")
    assert findings("nccl-slow-path", beside(nccl_facts=[TWO], transports=[sends, receives])) == []
    neither = [sends, way("NET/IB/0", 8, 0, direction="receive")]
    assert only_finding("nccl-slow-path", beside(nccl_facts=[TWO], transports=neither)).values["pairs"] == 1


def test_it_stays_silent_with_gpudirect_and_over_sockets():
    assert findings("nccl-slow-path", beside(nccl_facts=[TWO], transports=[way("NET/IB/0/GDRDMA", 0, 8)])) == []
    assert findings("nccl-slow-path", beside(nccl_facts=[TWO], transports=[way("NET/Socket/0", 0, 8)])) == []


def test_it_stays_silent_on_one_machine_though_gpudirect_is_off():
    one = [fact("machines", "2", 1.0), fact("gpudirect", "0", 0.0)]
    assert findings("nccl-slow-path", beside(nccl_facts=one, transports=[way("P2P/CUMEM", 0, 1)])) == []


def test_what_sends_through_a_distant_nic_is_left_to_distant_nic_unless_gpudirect_is_off():
    """Behind the processor NCCL never uses it: GPU 0 takes mlx5_1 across the sockets, and has mlx5_0 beside it."""
    given = {
        "transports": [way("NET/IB/1", 0, 8, device=0)],
        "links": [
            {"source": "GPU0", "target": "mlx5_0", "name": "PXB"},
            {"source": "GPU0", "target": "mlx5_1", "name": "SYS"},
        ],
    }
    nics = [TWO, fact("nic", "mlx5_0", 0.0), fact("nic", "mlx5_1", 1.0), fact("device", "7000", 0.0)]
    allowed, forbidden = fact("gpudirect", "1", 1.0), fact("gpudirect", "1", 0.0)
    assert findings("nccl-slow-path", beside(nccl_facts=[*nics, allowed], **given)) == []
    assert findings("nccl-slow-path", beside(nccl_facts=nics, **given)) == []
    assert len(findings("nccl-slow-path", beside(nccl_facts=[*nics, forbidden], **given))) == 1
    near = {**given, "transports": [way("NET/IB/0", 0, 8, device=0)]}
    assert len(findings("nccl-slow-path", beside(nccl_facts=[*nics, allowed], **near))) == 1


def test_host_memory_is_the_only_way_between_cards_without_peer_access():
    """GeForce RTX 4090: what is set changes nothing."""
    given = [fact("environment", "NCCL_P2P_DISABLE=1"), fact("machines", "2", 1.0)]
    ways = [way("SHM/direct/direct", 0, 1), way("SHM/direct/direct", 1, 0)]
    card = [{**measured(5.0)[0], "gpu": "NVIDIA GeForce RTX 4090"}]
    assert findings("nccl-slow-path", beside(nccl_facts=given, transports=ways, link_tests=card)) == []
    board = [{**measured(5.0)[0], "gpu": "NVIDIA A100-SXM4-80GB"}]
    assert findings("nccl-slow-path", beside(nccl_facts=given, transports=ways, link_tests=board))

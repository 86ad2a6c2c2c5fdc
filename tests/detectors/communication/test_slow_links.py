"""slow-links: large messages between GPUs of one machine move far slower than their links."""

from __future__ import annotations

import pytest
from builders import draw_steps, findings, only_finding, summary
from collective_builders import MS, described, under
from machine_builders import beside, fact, links

from perfdoctor.hardware.links import link_of, nvlink_bytes_per_second
from perfdoctor.model.timeline import merge

SXM = "NVIDIA A100-SXM4-80GB"


def rank(number: int, size: int, *, device: int | None = None, gpu: str = SXM, ranks: int = 2, late: int = 0):
    """30 ms of compute and an all-reduce of 10 ms."""
    drawn = draw_steps(
        kernels="#" * (30 + late) + " " * (10 - late),
        nccl=" " * (30 + late) + "=" * (10 - late),
        rank=number,
        device=number if device is None else device,
        gpu=gpu,
    )
    return described(drawn, bytes=size, group_size=ranks)


def job(size: int, **more):
    return merge([rank(0, size, **more), rank(1, size, **more)])


def test_it_fires_where_bytes_move_at_a_tenth_of_the_link():
    finding = only_finding("slow-links", job(100_000_000))
    # 100 MB in 10 ms; among two ranks an all-reduce loads the link once: 2 * (2 - 1) / 2
    assert finding.values["bus_gb_per_second"] == pytest.approx(10)
    assert finding.values["expected_gb_per_second"] == 100
    assert finding.values["exposed_ms"] == pytest.approx(10)
    saving = finding.saving_ns_per_step
    # at a third of the link's rate 3.03 ms would be left, at 80 % of it 1.25 ms, with all links 10 / 30 ms
    assert saving.low == pytest.approx(10 * MS * (1 - 0.1 / 0.33), rel=1e-6)
    assert (saving.likely, saving.high) == (8.75 * MS, pytest.approx(10 * MS * (1 - 1 / 30), rel=1e-6))
    assert "10.0 GB/s bus bandwidth, although two GPUs with NVLink 3" in summary(finding)


def test_only_the_transfer_is_measured():
    """Rank 1 comes 5 ms late: 50 MB moved in the 5 ms that were left."""
    late = merge([rank(0, 50_000_000), rank(1, 50_000_000, late=5)])
    assert only_finding("slow-links", late).values["bus_gb_per_second"] == pytest.approx(10)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("slow-links", job(330_000_000)) == []  # 33 of 100 GB/s
    assert len(findings("slow-links", job(320_000_000))) == 1


def test_it_stays_silent_where_the_card_may_have_no_links():
    assert findings("slow-links", job(100_000_000, gpu="NVIDIA A100-PCIE-40GB")) == []
    assert findings("slow-links", job(100_000_000, gpu="")) == []


def test_it_stays_silent_where_the_ranks_may_be_on_two_machines():
    assert findings("slow-links", job(100_000_000, device=0)) == []


def test_it_stays_silent_where_a_rank_of_the_group_was_not_recorded():
    """Whom the recorded ranks waited for is not known."""
    assert findings("slow-links", job(100_000_000, ranks=4)) == []


def test_it_stays_silent_for_small_messages_and_for_those_without_a_size():
    assert findings("slow-links", job(16_000_000)) == []
    assert findings("slow-links", job(-1)) == []


def test_it_is_a_symptom_of_exposed_communication():
    assert "slow-links" in under(job(100_000_000), "exposed-communication")


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("NVIDIA B200", "NVLink 5"),
        ("NVIDIA H100 80GB HBM3", "NVLink 4"),
        ("NVIDIA H200", "NVLink 4"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA GH200 480GB", None),
        ("Tesla V100-SXM2-32GB", "NVLink 2"),
        ("Tesla V100-PCIE-16GB", None),
        ("AMD Instinct MI300X", "Infinity Fabric"),
        ("NVIDIA GeForce RTX 4090", None),
        ("", None),
    ],
)
def test_the_table_knows_only_boards_whose_links_their_name_tells(name, link):
    found = link_of(name)
    assert (found and found.name) == link
    assert found is None or (
        found.pair_bytes_per_second <= found.between_bytes_per_second <= found.peak_bytes_per_second
    )


# What was measured of the same links


def measured(
    gigabytes: float, *, ranks: int = 2, size: int = 100_000_000, source: str = "nccl-tests", kind: str = "all_reduce"
):
    return {
        "name": kind, "source": source, "ranks": ranks, "machines": 1, "bytes": size, "time_ns": 1_000_000,
        "bus_bytes_per_second": gigabytes * 1e9,
    }  # fmt: skip


def test_it_fires_where_the_links_gave_far_more_when_they_were_measured():
    """10 GB/s in the training, 80 measured: no name of a GPU is needed."""
    finding = only_finding("slow-links", beside(job(100_000_000, gpu=""), link_tests=[measured(80)]))
    assert (finding.situation, finding.values["expected_gb_per_second"]) == ("measured", pytest.approx(80))
    saving = finding.saving_ns_per_step
    assert saving.low == pytest.approx(10 * MS * (1 - (10 / 80) / 0.5), rel=1e-6)
    assert saving.likely == saving.high == pytest.approx(10 * MS * (1 - 10 / 80), rel=1e-6)
    assert "although nccl-tests measured 80.0 GB/s over the same links" in summary(finding)


def test_the_measured_links_count_more_than_the_boards_table():
    """An SXM board has 100 GB/s between two GPUs; this machine's were measured at 12, and give 10."""
    assert findings("slow-links", beside(job(100_000_000), link_tests=[measured(12)])) == []


def test_it_stays_silent_just_below_half_of_what_was_measured():
    assert findings("slow-links", beside(job(100_000_000, gpu=""), link_tests=[measured(20)])) == []
    assert len(findings("slow-links", beside(job(100_000_000, gpu=""), link_tests=[measured(20.1)]))) == 1


def test_it_stays_silent_where_other_ranks_kinds_or_sizes_were_measured():
    for other in (measured(80, ranks=4), measured(80, kind="broadcast"), measured(80, size=1_000_000_000)):
        assert findings("slow-links", beside(job(100_000_000, gpu=""), link_tests=[other])) == []


def test_it_stays_silent_where_the_links_of_one_machine_were_measured_and_the_ranks_are_on_two():
    assert findings("slow-links", beside(job(100_000_000, device=0), link_tests=[measured(80)])) == []
    between = [measured(80) | {"machines": 2}]
    assert len(findings("slow-links", beside(job(100_000_000, device=0), link_tests=between))) == 1
    assert findings("slow-links", beside(job(100_000_000, gpu=""), link_tests=between)) == []


# What NCCL planned, and what joins the GPUs


def rings(gigabytes: float, of: int = 2):
    return [fact("graph", f"4 NVL/PIX of {of}", gigabytes), fact("graph", f"1 NVL/PIX of {of}", 2 * gigabytes)]


def test_it_fires_where_nccl_planned_rings_that_could_do_far_more():
    """100 MB at 240 GB/s take 416.7 µs, and the two steps of an all-reduce among two ranks 5.7 µs each."""
    finding = only_finding("slow-links", beside(job(100_000_000, gpu=""), nccl_facts=rings(240)))
    expected = 100e6 / (100e6 / 240e9 + 2 * 5.7e-6)
    assert (finding.situation, finding.confidence) == ("planned", "medium")
    assert finding.values["expected_gb_per_second"] == pytest.approx(expected / 1e9)
    saving = finding.saving_ns_per_step
    assert saving.low == pytest.approx(10 * MS * (1 - 10e9 / expected / 0.25), rel=1e-6)
    assert saving.likely == pytest.approx(10 * MS * (1 - 10e9 / expected), rel=1e-6)
    assert saving.high == pytest.approx(10 * MS * (1 - 10 / 240), rel=1e-6)
    assert "the rings planned by NCCL can reach 233.6 GB/s" in summary(finding)


def test_between_machines_a_step_of_the_ring_takes_longer():
    finding = only_finding("slow-links", beside(job(100_000_000, device=0), nccl_facts=rings(240)))
    expected = 100e6 / (100e6 / 240e9 + 2 * 14e-6)
    assert finding.values["expected_gb_per_second"] == pytest.approx(expected / 1e9)


def test_it_stays_silent_just_below_a_quarter_of_the_plan():
    assert findings("slow-links", beside(job(100_000_000, gpu=""), nccl_facts=rings(40))) == []  # 10 of 39.8 GB/s
    assert len(findings("slow-links", beside(job(100_000_000, gpu=""), nccl_facts=rings(41)))) == 1


def test_what_was_measured_counts_more_than_the_plan():
    described = beside(job(100_000_000, gpu=""), nccl_facts=rings(240), link_tests=[measured(12)])
    assert findings("slow-links", described) == []


def test_a_plan_for_other_ranks_tells_nothing():
    assert findings("slow-links", beside(job(100_000_000, gpu=""), nccl_facts=rings(240, of=8))) == []


def test_it_fires_where_the_machine_has_more_links_than_the_sparsest_board():
    """40 GB/s: two of an A100's SXM boards have 100 at least, these two all twelve links of 25."""
    assert findings("slow-links", job(400_000_000)) == []
    finding = only_finding("slow-links", beside(job(400_000_000), links=links((0, 1, "NV12"))))
    expected = 400e6 / (400e6 / 300e9 + 2 * 5.7e-6)
    assert finding.values["expected_gb_per_second"] == pytest.approx(expected / 1e9)
    assert "a ring over the NV12 between these GPUs" in summary(finding)


def test_a_bridge_is_known_by_the_topology_alone():
    described = beside(job(100_000_000, gpu="NVIDIA RTX A6000"), links=links((0, 1, "NV4")))
    assert only_finding("slow-links", described).values["expected_gb_per_second"] == pytest.approx(56.25, rel=0.01)


def test_it_stays_silent_where_the_machine_has_no_links_between_these_gpus():
    """An SXM board by its name, and PCIe all the same: of that, distant-gpus speaks if it can be helped."""
    assert findings("slow-links", beside(job(100_000_000), links=links((0, 1, "PHB"), (2, 3, "NV12")))) == []


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [("NVIDIA H100 80GB HBM3", 25), ("NVIDIA A100-PCIE-40GB", 25), ("NVIDIA A40", 14.0625), ("NVIDIA B200", 50),
     ("NVIDIA A800-SXM4-80GB", 0), ("NVIDIA H800", 0), ("NVIDIA GeForce RTX 4090", 0), ("", 0)],
)  # fmt: skip
def test_how_fast_one_link_is_goes_by_its_generation(name, gigabytes):
    assert nvlink_bytes_per_second(name) == gigabytes * 1e9

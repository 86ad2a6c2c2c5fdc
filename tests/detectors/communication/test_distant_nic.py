"""distant-nic: a GPU that sends through a NIC behind the processor, with another one beside it."""

from __future__ import annotations

from builders import draw, findings, only_finding, summary
from machine_builders import beside, fact, way

from perfdoctor.records.savings import Saving

NICS = [fact("nic", "mlx5_0", 0.0), fact("nic", "mlx5_1", 1.0)]
#: The driver's numbers of the GPUs that the process calls 0 and 1.
GPUS = [fact("device", "7000", 0.0), fact("device", "f000", 1.0, device=1)]


def reaches(gpu: int, **links: str):
    return [
        {"source": a, "target": b, "name": link}
        for nic, link in links.items()
        for a, b in ((f"GPU{gpu}", nic), (nic, f"GPU{gpu}"))
    ]


#: Each GPU has a NIC beside it, and the other one at the other socket.
OWN_NICS = reaches(0, mlx5_0="PIX", mlx5_1="SYS") + reaches(1, mlx5_0="SYS", mlx5_1="PXB")


def test_it_fires_where_a_gpu_takes_the_neighbours_nic():
    ways = [way("NET/IB/0/GDRDMA", 0, 2), way("NET/IB/0", 1, 3, device=1)]
    drawn = draw(kernels="####    ", nccl="    ====", launched_us_before=50, repeat=6)
    finding = only_finding("distant-nic", beside(drawn, links=OWN_NICS, nccl_facts=NICS + GPUS, transports=ways))
    assert summary(finding) == (
        "1 GPUs reach the network through a NIC on the far side of the CPU: GPU 1 uses mlx5_0 (SYS), "
        "although mlx5_1 is closer (PXB)."
    )
    assert finding.saving_ns_per_step == Saving(0, 0, 400_000)


def test_it_stays_silent_where_each_takes_its_own():
    ways = [way("NET/IB/0/GDRDMA", 0, 2), way("NET/IB/1/GDRDMA", 1, 3, device=1)]
    assert findings("distant-nic", beside(links=OWN_NICS, nccl_facts=NICS + GPUS, transports=ways)) == []


def test_it_stays_silent_where_no_nic_is_nearer():
    """One NIC at the other socket: there is nothing to choose."""
    only = reaches(0, mlx5_0="SYS") + reaches(1, mlx5_0="SYS")
    ways = [way("NET/IB/0", 0, 2), way("NET/IB/0", 1, 3, device=1)]
    assert findings("distant-nic", beside(links=only, nccl_facts=NICS[:1] + GPUS, transports=ways)) == []


def test_it_stays_silent_about_a_virtual_nic_that_has_no_name():
    ways = [way("NET/IB/2", 1, 3, device=1)]
    assert findings("distant-nic", beside(links=OWN_NICS, nccl_facts=NICS + GPUS, transports=ways)) == []


def test_it_stays_silent_just_below_behind_the_processor():
    """PXB is no PIX, but stays off the processor."""
    near = reaches(0, mlx5_0="PXB", mlx5_1="PIX")
    ways = [way("NET/IB/0/GDRDMA", 0, 2)]
    assert findings("distant-nic", beside(links=near, nccl_facts=NICS + GPUS, transports=ways)) == []
    behind = reaches(0, mlx5_0="PHB", mlx5_1="PIX")
    assert len(findings("distant-nic", beside(links=behind, nccl_facts=NICS + GPUS, transports=ways))) == 1


def test_it_stays_silent_without_a_topology():
    assert findings("distant-nic", beside(nccl_facts=NICS + GPUS, transports=[way("NET/IB/0", 1, 3, device=1)])) == []


def test_a_gpu_is_the_one_that_the_driver_calls_so():
    """CUDA_VISIBLE_DEVICES=1: the process calls its GPU 0, the topology calls it 1."""
    ways, hidden = [way("NET/IB/1/GDRDMA", 0, 2)], fact("device", "f000", 1.0)
    assert findings("distant-nic", beside(links=OWN_NICS, nccl_facts=[*NICS, hidden], transports=ways)) == []
    ways = [way("NET/IB/0", 0, 2)]
    finding = only_finding("distant-nic", beside(links=OWN_NICS, nccl_facts=[*NICS, hidden], transports=ways))
    assert finding.values["gpu"] == 1
    unknown = fact("device", "f000")  # older versions write CUDA's number alone
    assert findings("distant-nic", beside(links=OWN_NICS, nccl_facts=[*NICS, unknown], transports=ways)) == []


def test_what_another_gpu_sends_through_its_nic_is_no_detour():
    """PXN: rank 0 hands its message for rank 3 to rank 1, which sends it through the NIC beside it."""
    ways = [way("NET/IB/1(1)/GDRDMA/Shared", 0, 3), way("NET/IB/0/GDRDMA/Shared", 0, 2)]
    assert findings("distant-nic", beside(links=OWN_NICS, nccl_facts=NICS + GPUS, transports=ways)) == []
    itself = [way("NET/IB/1(0)/Shared", 0, 3)]
    assert len(findings("distant-nic", beside(links=OWN_NICS, nccl_facts=NICS + GPUS, transports=itself))) == 1


def test_each_process_numbers_the_nics_that_it_may_use():
    """NCCL_IB_HCA names one for each rank: both call theirs 0."""
    facts = [
        fact("nic", "mlx5_0", 0.0), fact("device", "7000", 0.0),
        fact("nic", "mlx5_1", 0.0, process=2, device=1), fact("device", "f000", 1.0, process=2, device=1),
    ]  # fmt: skip
    ways = [way("NET/IB/0/GDRDMA", 0, 2), way("NET/IB/0/GDRDMA", 1, 3, process=2, device=1)]
    assert findings("distant-nic", beside(links=OWN_NICS, nccl_facts=facts, transports=ways)) == []
    crossed = [fact("nic", "mlx5_1", 0.0), fact("nic", "mlx5_0", 0.0, process=2, device=1), *facts[1::2]]
    assert len(findings("distant-nic", beside(links=OWN_NICS, nccl_facts=crossed, transports=ways))) == 1

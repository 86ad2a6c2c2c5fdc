"""What do tools print that stands beside a recording? One text of each, as small as it can be."""

from __future__ import annotations

QUERY = (
    "timestamp, index, name, utilization.gpu [%], power.draw [W], clocks.current.sm [MHz], clocks.max.sm [MHz],"
    " pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max, clocks_event_reasons.active\n"
    + "2024/05/01 12:34:56.500, 0, H100, 98 %, 687.12 W, 1740 MHz, 1980 MHz, 4, 5, 8, 16, 0x0000000000000004\n"
    * 4
)
DMON = (
    "#Time gpu pwr sm pclk pviol tviol fb rxpci\n#HH:MM:SS Idx W % MHz % bool MB MB/s\n"
    + " 23:59:59 0 295 98 1897 99 0 90538 12\n" * 4
)
DCGM = "#Entity POWER SMCLK DVCCTR\nID W\n" + "GPU 0 301.5 1410 4\n" * 4
PROMETHEUS = 'DCGM_FI_DEV_SM_CLOCK{gpu="0",modelName="A100"} 1410 1758685713493\n' * 4
TOPOLOGY = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\tPIX\t0-5\t0\nGPU1\tNV4\t X \tSYS\t6-9\t1\nNIC0\tPIX\tSYS\t X \n"
NCCL = "".join(
    f"host:10:15 [0] NCCL INFO {text}\n"
    for text in (
        "NCCL version 2.27.7+cuda13.0", "Channel 00/0 : 0[0] -> 1[1] via NET/IB/0/GDRDMA", "Loading topology file /a/t.xml",
        "comm 0x1 rank 0 nRanks 8 nNodes 2 localRanks 4 localRank 0", "+ NVL[240.0] - GPU/0-65000", "init.cc:3 -> 2",
        "NET/IB : Using [0]mlx5_0:1/IB [RO]", "Pattern 4, crossNic 0, nChannels 12, bw 20.0/20.0, type NVL/PIX, sameChannels 1",
    )
)  # fmt: skip
TESTS = (
    "#  Rank  0 Group  0 Pid  1 on  node device  0 [0000:17:00] NVIDIA A100\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    + "     1048576        262144     float     sum      -1    100.0   10.49   15.73      0    110.0    9.53   14.30      0\n"
    * 3
)
APPS = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n" + "".join(
    f"2024/05/01 12:34:5{second}.500, GPU-230e70f3-fcca-c799-d8c2-bb5185aee96c, {pid}, python, 1024 MiB\n"
    for second in range(4)
    for pid in (7, 8)
)
PMON = "# gpu pid type sm mem fb command\n# Idx # C/G % % MB name\n" + " 0 7 C 98 5 900 python\n 1 - - - - - -\n" * 4
#: By the kind of `readers/formats.py`.
SIDE_TEXTS = {
    "nvml": (QUERY, DMON, DCGM, PROMETHEUS), "processes": (APPS, PMON), "topology": (TOPOLOGY,), "nccl": (NCCL,), "nccl-tests": (TESTS,),
}  # fmt: skip

"""What NCCL prints, in literal lines and in real logs beside plain regular expressions."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

import pytest
from folders import public, public_files
from tables import of_each

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers import formats
from perfdoctor.readers.nccl import log as nccl_log
from perfdoctor.readers.nccl import nccl_tests
from perfdoctor.readers.open import read as read_any
from perfdoctor.vocabulary.rulebook import load_rules


def read(tmp_path: Path, *lines: str) -> Timeline:
    file = tmp_path / "nccl.log"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert formats.kind_of(file) == "nccl"
    return nccl_log.read(file)


def read_all(tmp_path: Path, *lines: str) -> Timeline:
    read(tmp_path, *lines)
    return read_any([tmp_path / "nccl.log"])


def facts(timeline: Timeline) -> dict[tuple[str, str], list[float]]:
    frame = timeline["nccl_facts"]
    found: dict[tuple[str, str], list[float]] = {}
    for name, value, amount in zip(frame.name, frame.text("value"), frame.floats("amount").tolist(), strict=True):
        found.setdefault((name, value), []).append(amount)
    return found


def info(text: str, host: str = "node1", pid: int = 10, device: int = 0) -> str:
    return f"{host}:{pid}:{pid + 5} [{device}] NCCL INFO {text}"


@pytest.mark.parametrize(
    ("line", "way", "pair"),
    [
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P/CUMEM/read", (0, 1)),
        ("Channel 01 : 10[6b000] -> 15[dc000] via P2P/IPC/read", "P2P/IPC/read", (10, 15)),
        ("Channel 23/0 : 0[0] -> 1[1] via P2P/direct pointer/read", "P2P/direct pointer/read", (0, 1)),
        ("Channel 00 : 3[3] -> 7[7] via SHM/direct/direct", "SHM/direct/direct", (3, 7)),
        ("Channel 00/0 : 7[3] -> 0[0] [send] via NET/Socket/1", "NET/Socket/1", (7, 0)),
        ("Channel 01 : 11[71000] -> 0[1f000] [receive] via NET/IB/0/GDRDMA", "NET/IB/0/GDRDMA", (11, 0)),
        ("Channel 01/0 : 1[1] -> 8[0] [send] via NET/IB/0(3)/GDRDMA/Shared", "NET/IB/0(3)/GDRDMA/Shared", (1, 8)),
        ("Ring 00 : 0 -> 1 [send] via NET/IB/0", "NET/IB/0", (0, 1)),
        ("Channel 00/0 : 7[7] -> 8[0] [send] via NET/AWS Libfabric/2/GDRDMA comm 0x9bbf3b0 nRanks 16",
         "NET/AWS Libfabric/2/GDRDMA", (7, 8)),
        ("Channel 00/0 : 7[7] -> 8[0] [send] via NET/NCCL RDMA Plugin v6/0(0)/GDRDMA/Shared",
         "NET/NCCL RDMA Plugin v6/0(0)/GDRDMA/Shared", (7, 8)),
        ("Channel 00/0 : 7[7] -> 8[0] [send] via NET/AWS Libfabric/0", "NET/AWS Libfabric/0", (7, 8)),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC comm 0x9bbf3b0 nRanks 4", "P2P/IPC", (0, 1)),
    ],
)  # fmt: skip
def test_ways_of_all_versions(tmp_path, line, way, pair):
    frame = read(tmp_path, info(line))["transports"]
    assert list(frame.name) == [way]
    assert (frame["member"][0], frame["peer"][0]) == pair


def test_channels_of_a_pair_are_counted_once(tmp_path):
    lines = [info(f"Channel 0{n}/0 : 0[0] -> 1[1] via P2P/IPC") for n in (0, 1, 1, 2)]
    frame = read(tmp_path, *lines)["transports"]
    assert (len(frame), frame["channels"].tolist()) == (1, [3])


def test_a_way_says_which_end_wrote_it(tmp_path):
    line = "Channel 00/0 : {} -> {} [{}] via NET/IB/0"
    frame = read(tmp_path, info(line.format("0[0]", "1[1]", "send")), info(line.format("1[1]", "0[0]", "receive")))
    ways = frame["transports"]
    assert sorted(zip(ways["member"].tolist(), ways.text("direction"), strict=True)) == [(0, "send"), (1, "receive")]


@of_each(
    ("line", "name", "value", "amount"),
    [
        ("NCCL version 2.27.7+cuda13.0", "version", "2.27.7+cuda13.0", None),
        ("Using network IB", "network", "IB", None),
        ("Using network AWS Libfabric", "network", "AWS Libfabric", None),
        ("NCCL_IB_DISABLE set by environment to 1.", "environment", "NCCL_IB_DISABLE=1.", None),
        ("NCCL_TOPO_FILE set by environment to /home/me/topo.xml", "environment", "NCCL_TOPO_FILE=topo.xml", None),
        ("ncclCommInitRankConfig comm 0x1 rank 1 nranks 8 cudaDev 1 nvmlDev 5 busId c1000 commId 0x2 - Init START",
         "device", "c1000", 5),
        ("comm 0x1 rank 2 nRanks 8 nNodes 2 localRanks 4 localRank 2 MNNVL 0", "machines", "8", 2),
        ("NET/Plugin: /lib/libnl-route-3.so.200: undefined symbol: nla_nest_end", "plugin_failed", "undefined symbol", None),
        ("Failed to open libibverbs.so[.1]", "no_verbs", "Failed to open libibverbs", None),
        ("NET/IB : No device found.", "no_infiniband", "No device", None),
        ("Loading topology file /home/me/topo_fail.xml", "topology_file", "topo_fail.xml", None),
        ("NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1'", "gpudirect", "1", 0),
        ("Connected all rings, use ring PXN 0 GDR 1", "ring_gdr", "", 1),
        ("+ NVL[240.0] - GPU/0-65000", "nvlink", "NVL", 240),
        ("+ PCI[24.0] - GPU/0-17000 (0)", "pci", "PCI", 24),
        ("Pattern 4, crossNic 0, nChannels 12, bw 20.000000/20.000000, type NVL/PIX, sameChannels 1", "graph", "4 NVL/PIX", 240),
        ("24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels", "channels", "", 24),
        ("AllReduce: 8388608 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}", "algorithm", "AllReduce RING/SIMPLE", 8388608),
        ("Check P2P Type intraNodeP2pSupport 0 directMode 0", "peer_access", "", 0),
        ("external/nccl_archive/src/init.cc:310 -> 2", "returned", "init.cc", 2),
        ("    AllReduce |     8.0/  37.9 |    16.5/ 112.0 |    16.4/ 144.0 |     15.2/ 240.0 |", "tuned", "AllReduce", 240),
        ("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eno1:1.2.3.4<0>", "nic", "mlx5_1", 1),
    ],
)  # fmt: skip
def test_the_fact_in_a_line(tmp_path, line, name, value, amount):
    found = facts(read(tmp_path, info(line)))
    assert (name, value) in found
    (read_amount,) = found[name, value]
    assert read_amount == amount or (amount is None and math.isnan(read_amount))


def test_a_gpu_has_the_drivers_number_or_none(tmp_path):
    """Older versions write CUDA's alone, which begins at 0 whatever CUDA_VISIBLE_DEVICES names."""
    line = "ncclCommInitRank comm 0x1 rank 1 nranks 8 cudaDev 1 busId c1000 - Init COMPLETE"
    assert math.isnan(facts(read(tmp_path, info(line)))["device", "c1000"][0])


def test_rings_belong_to_the_communicator_that_is_built(tmp_path):
    """Between machines a ring is as fast as its way out."""
    start = "ncclCommInitRankConfig comm 0x1 rank 0 nranks {} cudaDev 0 nvmlDev 0 busId c1000 commId 0x2 - Init START"
    rings = "Pattern 4, crossNic 0, nChannels 2, bw {}/{}, type NVL/PIX, sameChannels 1"
    lines = [start.format(8), rings.format("20.0", "12.0"), start.format(2), rings.format("20.0", "20.0")]
    found = facts(read(tmp_path, "\n".join(map(info, lines))))
    assert found["graph", "4 NVL/PIX of 8"] == [24]
    assert found["graph", "4 NVL/PIX of 2"] == [40]


@pytest.mark.parametrize(
    "line",
    [
        "NET/Plugin: Could not find: libnccl-net.so.",
        "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
        "TUNER/Plugin: Failed to find ncclTunerPlugin_v4 symbol.",
        "NET/Plugin: Using internal network plugin.",
    ],
)
def test_a_plugin_that_is_not_there_has_not_failed(tmp_path, line):
    assert not any(name == "plugin_failed" for name, _ in facts(read(tmp_path, info(line))))


def test_warnings_are_kept_as_text_and_cut(tmp_path):
    hostile = "</script>[/]{0} " + "y" * 400
    line = f"node1:10:11 [0] ibvwrap.c:130 NCCL WARN {hostile}"
    ((name, value),) = facts(read(tmp_path, line))
    assert name == "warning"
    assert value == hostile[:160]


def test_hosts_are_numbered_and_their_names_not_kept(tmp_path):
    found = read_all(
        tmp_path,
        info("Using network IB", "secret-a"),
        info("Using network IB", "secret-b", 11),
        info("Using network IB", "secret-a", 12),
    )
    assert found["nccl_facts"]["host"].tolist() == [0, 1, 0]
    assert not any("secret" in value for value in (*found["nccl_facts"].text("value"), *found.notes))


def test_what_a_launcher_puts_in_front_does_not_hide_a_line(tmp_path):
    found = read_all(tmp_path, "[rank0]: " + info("Using network IB"), "3: " + info("Using network IB", pid=11))
    assert sorted(set(found["nccl_facts"]["process"].tolist())) == [10, 11]
    assert set(found["nccl_facts"]["host"].tolist()) == {0}


def test_other_output_of_the_job_is_skipped(tmp_path):
    file = tmp_path / "job.log"
    file.write_text("x = 1\n" * 30_000 + info("Using network IB") + "\n")
    head = file.read_bytes()[:65_536]
    assert formats.of_head(head) is None
    row = formats.of_named(file)
    assert row
    assert row.kind == "nccl"
    assert len(nccl_log.read(file)["nccl_facts"]) == 1


def test_a_log_with_nothing_but_the_version_is_refused(tmp_path):
    """As NCCL_DEBUG=VERSION writes it, and as benchmarks print it above tables of their own."""
    path = tmp_path / "out.log"
    path.write_text("NCCL version 2.24.3+cuda12.4\nsize latency(us) BW(MB/s)\n1024 15.1 0.07\n", "utf-8")
    with pytest.raises(PerfdoctorError, match="the version of NCCL and nothing else"):
        nccl_log.read(path)


def test_a_file_without_nccl_is_refused(tmp_path):
    (tmp_path / "x.log").write_text("nothing\n")
    with pytest.raises(PerfdoctorError, match="no line of NCCL"):
        nccl_log.read(tmp_path / "x.log")


# --- nccl-tests ------------------------------------------------------------------------------------------------------

TABLE = """\
# nThread 1 nGpus 4
# Using devices
#  Rank  0 Group  0 Pid  1 on  node device  0 [0000:17:00] NVIDIA A100
#  Rank  1 Group  0 Pid  1 on  node device  1 [0000:18:00] NVIDIA A100
#  Rank  2 Group  0 Pid  1 on  node device  2 [0000:19:00] NVIDIA A100
#  Rank  3 Group  0 Pid  1 on  node device  3 [0000:1a:00] NVIDIA A100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    100.0   10.49   15.73      0    110.0    9.53   14.30      0
   garbage 12
    16777216       4194304     float     sum      -1   1000.0   16.78   25.17    N/A   1000.0   16.78   25.17    N/A
     33554432      8388608     float     sum      -1   2000.0
"""


def test_a_table_of_its_own(tmp_path):
    file = tmp_path / "tests.txt"
    file.write_text(TABLE)
    assert formats.kind_of(file) == "nccl-tests"
    frame = nccl_tests.read(file)["link_tests"]
    assert frame["bytes"].tolist() == [1048576, 1048576, 16777216, 16777216]
    assert frame["time_ns"].tolist() == [100_000, 110_000, 1_000_000, 1_000_000]
    assert (frame.floats("bus_bytes_per_second") / 1e9).tolist() == pytest.approx([15.73, 14.30, 25.17, 25.17])
    # without the collective's name: 25.17 / 16.78 = 1.5 = 2 * 3 / 4, an all-reduce of four
    assert set(frame.name) == {"all_reduce"}
    assert set(frame["ranks"].tolist()) == {4}
    assert set(frame.text("gpu")) == {"NVIDIA A100"}
    assert set(frame["machines"].tolist()) == {1}


def test_the_machines_of_a_table_are_counted(tmp_path):
    file = tmp_path / "tests.txt"
    file.write_text(TABLE.replace("on  node device  2", "on  other device  2"))
    assert set(nccl_tests.read(file)["link_tests"]["machines"].tolist()) == {2}


def test_older_tables_have_no_root(tmp_path):
    file = tmp_path / "tests.txt"
    file.write_text(TABLE.replace("    root ", " ").replace("      -1 ", " "))
    assert nccl_tests.read(file)["link_tests"]["time_ns"].tolist() == [100_000, 110_000, 1_000_000, 1_000_000]


def test_a_header_without_rows_is_refused(tmp_path):
    (tmp_path / "x.txt").write_text("\n".join(TABLE.splitlines()[:8]))
    with pytest.raises(PerfdoctorError, match="no row"):
        nccl_tests.read(tmp_path / "x.txt")


# --- real logs -------------------------------------------------------------------------------------------------------


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["a100-healthy.log", "a100-bad-topology.log", "nccl-tests-allreduce.log"])
def test_measured_bandwidths_as_a_regular_expression_reads_them(name):
    """The mean over all rows is what nccl-tests itself prints below its table."""
    path = public(f"nccl/{name}")
    text, frame = path.read_text(), nccl_log.read(path)["link_tests"]
    (average,) = re.findall(r"# Avg bus bandwidth\s*:\s*([\d.]+)", text)
    speeds = frame.floats("bus_bytes_per_second") / 1e9
    empty = len(re.findall(r"^\s+0\s+0\s+float", text, re.MULTILINE)) * 2
    assert speeds.sum() / (speeds.size + empty) == pytest.approx(float(average), abs=0.01)
    sizes = [int(size) for size in re.findall(r"^\s+(\d+)\s+\d+\s+float", text, re.MULTILINE) if int(size)]
    assert sorted(frame["bytes"].tolist()) == sorted(sizes * 2)
    assert set(frame.name) == {"all_reduce"}


@pytest.mark.recordings
@pytest.mark.parametrize("path", public_files("nccl/*.log"), ids=lambda path: path.name)
def test_ways_and_facts_as_regular_expressions_find_them(path):
    text = path.read_text(errors="replace")
    found = nccl_log.read(path)
    ways = {
        (pid, member, peer, way)
        for pid, member, peer, way in re.findall(
            r":(\d+):\d+ \[\d\] NCCL INFO Channel \d+(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\](?: \[\w+\])? via (.+)",
            text,
        )
    }
    frame = found["transports"]
    columns = (map(str, frame[column].tolist()) for column in ("process", "member", "peer"))
    assert set(zip(*columns, frame.name, strict=True)) == ways
    known = facts(found)
    assert {value for name, value in known if name == "network"} == set(re.findall(r"Using network (.+)", text))
    assert {value for name, value in known if name == "version"} == set(re.findall(r"NCCL version (\S+)", text))
    speeds = {float(each) for each in re.findall(r"\+ NVL\[([\d.]+)\]", text)}
    assert {amount for (name, _), amounts in known.items() if name == "nvlink" for amount in amounts} == speeds
    hosts = set(re.findall(r"^([\w-]+):\d+:\d+ \[\d\]", text, re.MULTILINE))
    assert len({host for host in (*found["nccl_facts"]["host"].tolist(), *frame["host"].tolist()) if host >= 0}) <= len(
        hosts
    )
    returned = Counter(re.findall(r"(\w+\.c+):\d+ -> \d", text))
    counts: Counter[str] = Counter()
    own = found["nccl_facts"]
    for name, value, count in zip(own.name, own.text("value"), own["count"].tolist(), strict=True):
        counts[value] += count if name == "returned" else 0
    assert {file: count for file, count in counts.items() if count} == returned


@pytest.mark.recordings
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a100-healthy.log", set()),
        ("a100-bad-topology.log", {"nccl-slow-path"}),
        ("megatron-socket-fallback.log", {"nccl-socket-fallback"}),
        ("nccl-tests-allreduce.log", set()),
        ("NVIDIA_nccl_562_ib_create_qp_failed.log", {"nccl-failures"}),
        ("NVIDIA_nccl_766_a6000_socket_fallback.log", set()),  # one machine: nothing crosses the network
        ("NVIDIA_nccl_834_2x8_a100_gdrdma.log", set()),
    ],
)
def test_what_is_found_in_a_log_alone(name, expected):
    diagnosis = diagnose(read_any([public(f"nccl/{name}")]), list(load_rules().values()))
    assert {advice.rule for advice in diagnosis.findings} == expected
    assert not [outcome for outcome in diagnosis.outcomes if outcome.status == "failed"]

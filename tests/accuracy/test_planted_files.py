"""Are the files beside a planted training what the tools would write, and true to the training they belong to?"""

from __future__ import annotations

import csv
import itertools
import pickle
import re
from datetime import datetime, timezone
from pathlib import Path

import plant
import pytest
from generate import EPOCH_NS, GEMM
from side import ncu, topology

from perfdoctor.readers.ncu import nvidia_package as ncu_package
from perfdoctor.readers.ncu import report_file as ncu_file
from perfdoctor.readers.open import read


def written(tmp_path: Path, rule: str, ranks: int = 1, seed: int = 1, share: float = 0.1) -> tuple[plant.Faulty, Path]:
    faulty = plant.faulty({rule: share}, ranks, seed)
    return faulty, plant.write_nsys(faulty.machines, tmp_path / "run")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_ncu_measured_follows_from_the_kernels_that_ran(tmp_path, seed):
    """Bytes are the memory's share of 2,039 GB/s over the time, and sectors are 32 bytes each."""
    faulty, folder = written(tmp_path, "uncoalesced-access", seed=seed)
    frame = read([folder])["kernel_profiles"]
    longest = {name: [] for name in frame.name}
    for row in faulty.machines[0].kernels:
        if row["name"] in longest:
            longest[row["name"]].append(row["end"] - row["start"])
    assert len(longest) == len(frame) == 4
    for number, name in enumerate(frame.name):
        took = float(frame.floats("gpu_time_ns")[number])
        assert took == pytest.approx(1.04 * sum(longest[name]) / len(longest[name]), rel=1e-3)
        dram = float(frame.floats("dram_share")[number])
        assert float(frame.floats("dram_bytes")[number]) == pytest.approx(dram * 2039 * took, rel=1e-3)
        assert 0 < float(frame.floats("useful_bytes")[number]) <= dram * 2039 * took * 1.001
    wasted = [share for share in frame.floats("excess_sector_share").tolist() if share > 0.01]
    assert wasted == [pytest.approx(1 - 2 / (9, 5, 9)[seed], abs=0.01)]


@pytest.mark.skipif(not ncu_package.is_installed(), reason="NVIDIA's package ncu-report is not installed")
def test_nvidias_own_package_reads_the_planted_report_as_we_do(tmp_path, capfd):
    _, folder = written(tmp_path, "kernels-far-from-roofline")
    (report,) = folder.glob("*.ncu-rep")
    theirs, ours = ncu_package.read_launches(ncu_package.package(), report), ncu_file.read_launches(report)
    assert "missing required" not in capfd.readouterr().err
    assert str(ncu_package.read_apart(report)) == str(theirs)  # as another process reads it; NaN equals nothing
    assert [(each.name, each.grid, each.block) for each in theirs] == [(o.name, o.grid, o.block) for o in ours]
    for one, other in zip(theirs, ours, strict=True):
        assert {name: values[0][0] for name, values in one.metrics.items()} == {
            name: values[0][0] for name, values in other.metrics.items()
        }
        assert one.metrics["gpu__time_duration.sum"][0][1] in ("ns", "nsecond")
        assert [(each.rule, each.share) for each in one.advice] == [(each.rule, each.share) for each in other.advice]


def test_a_kernel_that_nobody_launched_is_measured_all_the_same(tmp_path):
    faulty = plant.faulty({}, 1, 1, "kernels-of-another-program")
    folder = plant.write_nsys(faulty.machines, tmp_path / "run")
    timeline = read([folder])
    assert any("never_launched" in name for name in timeline["kernel_profiles"].name)
    assert any("1 launch matches no kernel" in note and "never_launched_kernel" in note for note in timeline.notes)


@pytest.mark.parametrize(("seed", "hot"), [(0, 1), (1, 4), (2, 4)])
def test_matmuls_take_as_much_longer_as_the_sampled_clock_is_lower(tmp_path, seed, hot):
    """Recomputed from the CSV itself, beside the kernels of the healthy training."""
    faulty, folder = written(tmp_path, "device-throttling", 4, seed, 0.2)
    (file,) = [path for path in folder.iterdir() if path.suffix == ".csv"]
    begin = min(row["start"] for row in faulty.machines[0].calls)
    lowest: dict[int, int] = {}
    for row in csv.DictReader(file.read_text().splitlines(), skipinitialspace=True):
        if "unix_ns" in row:
            at, gpu, clock = int(row["unix_ns"]), int(row["device"]), int(row["sm_clock_mhz"])
        else:
            given = datetime.strptime(row["timestamp"], "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=timezone.utc)
            at = round((given.timestamp() - 3600) * 1e9)  # an hour east of Greenwich
            gpu, clock = int(row["index"]), int(row["clocks.current.sm [MHz]"].split()[0])
        if at - EPOCH_NS > begin and clock > 210:  # at rest it is 210
            lowest[gpu] = min(clock, lowest.get(gpu, clock))
    assert sorted(lowest) == [0, 1, 2, 3]
    assert sum(clock < 1400 for clock in lowest.values()) == hot
    healthy = plant.faulty({}, 4, seed).machines
    for rank, usual in zip(faulty.machines, healthy, strict=True):
        slow, fast = (
            [row["end"] - row["start"] for row in each.kernels if row["name"] == GEMM] for each in (rank, usual)
        )
        assert sum(slow) / len(slow) / (sum(fast) / len(fast)) == pytest.approx(1410 / lowest[rank.number], rel=0.01)


def _ring(board: topology.Board, chosen) -> bool:
    """Some order of them in which each neighbour is joined by NVLinks, tried one after the other."""
    first, *others = chosen
    return any(
        all(board.link(one, other).startswith("NV") for one, other in itertools.pairwise((first, *order, first)))
        for order in itertools.permutations(others)
    )


@pytest.mark.parametrize(("ranks", "seed"), [(2, 0), (2, 1), (4, 0), (4, 1), (4, 2)])
def test_the_distant_gpus_have_no_ring_and_others_of_the_board_have(ranks, seed):
    beside = plant.faulty({"distant-gpus": 0.1}, ranks, seed).machines[0].beside
    chosen = tuple(beside.nccl.gpus) if beside.nccl else tuple(range(ranks))
    assert len(chosen) == ranks
    assert not _ring(beside.topology, chosen)
    assert any(_ring(beside.topology, each) for each in itertools.combinations(range(beside.topology.gpus), ranks))


def test_eight_distant_gpus_are_of_two_boards(tmp_path):
    board = plant.faulty({"distant-gpus": 0.1}, 8, 4).machines[0].beside.topology
    inside = [
        all(board.link(a, b) == "NV12" for a, b in itertools.combinations(eight, 2))
        for eight in (range(8), range(8, 16))
    ]
    assert inside == [True, True]
    assert {board.link(a, b) for a in range(8) for b in range(8, 16)} == {"SYS"}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_board_is_printed_and_read_back(tmp_path, seed):
    """Newer drivers number the NICs and name them below the table."""
    board = topology.all_to_all(4, nics={"mlx5_0": ["PXB", "PXB", "SYS", "SYS"]})
    file = tmp_path / "topology.txt"
    file.write_text(board.text(seed))
    assert ("NIC0" in file.read_text()) == bool(seed)
    frame = read([file])["links"]
    given = dict(zip(zip(frame.text("source"), frame.text("target"), strict=True), frame.name, strict=True))
    assert given["GPU0", "GPU3"] == given["GPU3", "GPU0"] == "NV12"
    assert (given["GPU1", "mlx5_0"], given["mlx5_0", "GPU2"]) == ("PXB", "SYS")
    assert len(given) == 4 * 3 + 2 * 4


def test_the_log_names_each_way_of_the_ring_in_both_directions(tmp_path):
    """Four ranks on two machines: 0 → 1 and 2 → 3 inside, 1 → 2 and 3 → 0 between them."""
    _, folder = written(tmp_path, "distant-nic", 4, 2)
    text = (folder / "nccl.log").read_text()
    between = set(re.findall(r": (\d)\[\d\] -> (\d)\[\d\] \[(send|receive)\] via NET/IB/(\d)", text))
    assert {(one, other) for one, other, *_ in between} == {("1", "2"), ("3", "0")}
    assert {direction for _, _, direction, _ in between} == {"send", "receive"}
    assert set(re.findall(r": (\d)\[\d\] -> (\d)\[\d\] via P2P", text)) == {("0", "1"), ("2", "3")}
    assert set(re.findall(r"worker-(\d)", text)) == {"0", "1"}
    ways = read([folder])["transports"]
    assert sorted(set(ways["device"].tolist())) == [0, 1]


@pytest.mark.parametrize(("seed", "fits"), [(0, False), (1, True)])
def test_the_request_that_failed_did_not_fit_or_only_in_pieces(tmp_path, seed, fits):
    _, folder = written(tmp_path, "out-of-memory", seed=seed)
    with next(folder.glob("*.pickle")).open("rb") as stream:
        given = pickle.load(stream)
    (failed,) = [event for trace in given["device_traces"] for event in trace if event["action"] == "oom"]
    free = [
        block["size"] for segment in given["segments"] for block in segment["blocks"] if block["state"] == "inactive"
    ]
    assert max(free, default=0) < failed["size"]
    assert (failed["device_free"] + sum(free) >= failed["size"]) == fits
    assert sum(segment["total_size"] for segment in given["segments"]) + failed["device_free"] <= 40 * 2**30


def test_what_lies_beside_a_recorded_run_is_read_too(tmp_path):
    """With memory reported by the processes the traces lie in a run's folder, and a snapshot is given by its name."""
    faulty = plant.faulty({"memory-growth": 0.0, "out-of-memory": 0.0, "shared-gpu": 0.1, "nccl-failures": 0.0}, 2, 1)
    folder = plant.write_nsys(faulty.machines, tmp_path / "run")
    assert [path.name for path in plant.paths(folder)] == ["run", "rank1_snapshot.pickle"]
    timeline = read(plant.paths(folder))
    for signal in ("memory", "memory_events", "device_samples", "nccl_facts", "links"):
        assert len(timeline[signal]), signal
    assert bool(timeline["device_samples"]["is_on_clock"].all())


def test_a_profile_says_what_limits_a_processor():
    metrics = ncu.Profile(0.1, 0.1, 0.1, limit=0.125, limiter="registers").metrics(1000, 30)
    assert metrics["launch__occupancy_limit_registers"][0] == min(
        value for name, (value, _) in metrics.items() if "occupancy_limit" in name
    )
    assert metrics["launch__waves_per_multiprocessor"][0] == pytest.approx(30 / 108)

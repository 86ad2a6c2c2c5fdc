"""A job of thousands of ranks as torch.profiler would have recorded it: small, but whole.

    python benchmarks/planet.py write DIR --ranks 1000 --fault rank     one trace a rank, as .json.gz
    python benchmarks/planet.py measure --ranks 10,100,1000             time, memory and bytes a rank (docs/scale.md)
    python benchmarks/planet.py measure --ranks 10000 --times 10        so many times as many, by the same summaries
    python benchmarks/planet.py compare DIR...                          findings in full and by summaries, side by side

Ranks are numbered as Megatron numbers them: tensor parallel fastest, then data parallel, then pipeline. A tensor
parallel group is a node. The times of all ranks follow from one simulation: collectives begin when a rank gets there and
end for all once the last one has come, stages wait for the stage before, and the norm of the gradients for all stages: a
fault is seen by others as it would be.
`--fault`: `rank` computes half as long again, `link` (of one tensor parallel group) is five times as slow, the host of a
`node` takes a millisecond longer for each launch; `all` of them, or `none`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

Times = npt.NDArray[np.float64]

#: Tensor, data and pipeline parallel ranks of a job.
SHAPES = {10: (5, 2, 1), 16: (4, 4, 1), 40: (4, 5, 2), 100: (4, 5, 5), 1_000: (8, 25, 5), 10_000: (8, 250, 5)}
FAULTS = ("none", "rank", "link", "node", "all")
STEPS, MICROBATCHES = 4, 6
BASE_NS = 1_760_000_000_000_000_000
#: In µs.
GEMM, OPTIMIZER, LAUNCH, LATENCY, POINT_TO_POINT, NORM = 1_000.0, 400.0, 6.0, 8.0, 200.0, 30.0
#: bf16 elements of a message, and bytes/s of bus bandwidth that links reach.
LAYER, SHARD, ACTIVATION = 1 << 25, 1 << 26, 1 << 22
NVLINK, NETWORK = 200e9, 40e9
SLOW_GPU, SLOW_LINK, SLOW_HOST = 1.5, 5.0, 1_000.0


@dataclass(frozen=True)
class Job:
    """Its groups and its faults. `tensor`, `data`, `stage`: by rank, the number of its group, and of its stage."""

    ranks: int
    fault: str
    tensor_size: int
    data_size: int
    stages: int

    @classmethod
    def of(cls, ranks: int, fault: str) -> Job:
        return cls(ranks, fault, *SHAPES[ranks])

    @property
    def tensor(self) -> npt.NDArray[np.int64]:
        return np.arange(self.ranks) // self.tensor_size

    @property
    def stage(self) -> npt.NDArray[np.int64]:
        return np.arange(self.ranks) // (self.tensor_size * self.data_size)

    @property
    def data(self) -> npt.NDArray[np.int64]:
        return self.stage * self.tensor_size + np.arange(self.ranks) % self.tensor_size

    @property
    def replica(self) -> npt.NDArray[np.int64]:
        return np.arange(self.ranks) // self.tensor_size % self.data_size

    def has(self, fault: str) -> bool:
        return self.fault in (fault, "all")

    @property
    def slow_rank(self) -> int:
        return self.ranks * 3 // 7

    @property
    def slow_group(self) -> int:
        return int(self.tensor[self.ranks * 5 // 7])

    @property
    def slow_node(self) -> int:
        return int(self.tensor[self.ranks // 7])


@dataclass
class Rows:
    """What the ranks ran, one row for each: name, arguments, launch and execution in µs; NaN where a rank has none."""

    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    launched: list[Times] = field(default_factory=list)
    start: list[Times] = field(default_factory=list)
    end: list[Times] = field(default_factory=list)
    #: When each host began to wait for its device at the end of a step, and when that was through.
    waits: list[tuple[Times, Times]] = field(default_factory=list)


class _Clock:
    """When each rank's host and device are free, in µs."""

    def __init__(self, job: Job) -> None:
        self.job = job
        random = np.random.default_rng(17)
        self.random = random
        self.host = random.uniform(0, 20, job.ranks)
        self.device = self.host.copy()
        self.gap = np.full(job.ranks, LAUNCH)
        self.pace = np.ones(job.ranks)
        self.link = np.ones(int(job.tensor.max()) + 1)
        if job.has("rank"):
            self.pace[job.slow_rank] = SLOW_GPU
        if job.has("node"):
            self.gap[job.tensor == job.slow_node] += SLOW_HOST
        if job.has("link"):
            self.link[job.slow_group] = SLOW_LINK
        self.rows = Rows()

    def _begun(self, ranks: npt.NDArray[np.int64]) -> tuple[Times, Times]:
        launched = self.host[ranks]
        self.host[ranks] = launched + self.gap[ranks]
        return launched, np.maximum(self.device[ranks], launched + LATENCY)

    def _ran(
        self, name: str, kind: str, ranks: npt.NDArray[np.int64], launched: Times, start: Times, end: Times
    ) -> None:
        self.device[ranks] = end
        for column, values in zip(
            (self.rows.launched, self.rows.start, self.rows.end), (launched, start, end), strict=True
        ):
            whole = np.full(self.job.ranks, np.nan)
            whole[ranks] = values
            column.append(whole)
        self.rows.names.append(name)
        self.rows.kinds.append(kind)

    def compute(self, name: str, took: float, ranks: npt.NDArray[np.int64]) -> None:
        launched, start = self._begun(ranks)
        self._ran(name, "kernel", ranks, launched, start, start + took * self.pace[ranks] * self._noise(ranks))

    def _noise(self, ranks: npt.NDArray[np.int64]) -> Times:
        return self.random.normal(1, 0.003, ranks.size)

    def collective(self, kind: str, groups: npt.NDArray[np.int64], took: Times, ranks: npt.NDArray[np.int64]) -> None:
        """Ends for all of a group once the last one has come. `took`: by group."""
        launched, start = self._begun(ranks)
        own = groups[ranks]
        last = np.full(took.size, -np.inf)
        np.maximum.at(last, own, start)
        self._ran(kind, kind, ranks, launched, start, (last + took)[own])

    def sent(self, ranks: npt.NDArray[np.int64]) -> Times:
        launched, start = self._begun(ranks)
        self._ran("send", "send", ranks, launched, start, start + POINT_TO_POINT)
        return start

    def received(self, sent: Times, ranks: npt.NDArray[np.int64]) -> None:
        launched, start = self._begun(ranks)
        self._ran("recv", "recv", ranks, launched, start, np.maximum(start, sent) + POINT_TO_POINT)

    def step_is_over(self) -> None:
        """The host reads the loss: it waits for its device."""
        through = np.maximum(self.host, self.device) + LATENCY
        self.rows.waits.append((self.host, through))
        self.host = through + LATENCY


def simulated(job: Job) -> tuple[Rows, list[Times]]:
    """All rows, and when each step began on each host, and the last one ended."""
    clock, edges = _Clock(job), []
    tensor_us = 1e6 * 2 * LAYER * 2 * (job.tensor_size - 1) / job.tensor_size / NVLINK * clock.link
    shard_us = np.full(int(job.data.max()) + 1, 1e6 * 2 * SHARD * (job.data_size - 1) / job.data_size / NETWORK)
    norm_us = np.full(job.data_size, NORM)
    everybody = np.arange(job.ranks)
    by_stage = [everybody[job.stage == stage] for stage in range(job.stages)]
    for _ in range(STEPS):
        edges.append(clock.host.copy())
        for _ in range(MICROBATCHES):
            sent = np.empty(0)
            for stage, ranks in enumerate(by_stage):
                if stage:
                    clock.received(sent, ranks)
                clock.compute("forward", GEMM, ranks)
                clock.compute("backward", 2 * GEMM, ranks)
                clock.collective("allreduce", job.tensor, tensor_us, ranks)
                if stage < job.stages - 1:
                    sent = clock.sent(ranks)
        clock.collective("_reduce_scatter_base", job.data, shard_us, everybody)
        clock.collective("norm", job.replica, norm_us, everybody)
        clock.compute("optimizer", OPTIMIZER, everybody)
        clock.collective("_allgather_base", job.data, shard_us, everybody)
        clock.step_is_over()
    edges.append(clock.host.copy())
    return clock.rows, edges


# --- as traces -------------------------------------------------------------------------------------------------------

_KERNELS = {
    "forward": "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas",
    "backward": "sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize128x256x64_cublas",
    "optimizer": "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(int)",
    "allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "norm": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "recv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
_OPS = {"forward": "aten::mm", "backward": "MmBackward0", "optimizer": "aten::_fused_adamw_"}


def trace(job: Job, rows: Rows, edges: Sequence[Times], rank: int) -> bytes:
    """One rank's trace, as JSON."""
    clock_us = 1e-3 * float(np.random.default_rng(int(job.tensor[rank])).integers(-400_000, 400_000))
    head = {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": number, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "computeMajor": 9, "computeMinor": 0,
             "totalGlobalMem": 85_000_000_000}
            for number in range(job.tensor_size)
        ],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": job.ranks,
                            "pg_config": _groups(job, rank)},
        "baseTimeNanoseconds": BASE_NS,
    }  # fmt: skip
    events = ",\n".join(_events(job, rows, edges, rank, clock_us))
    return (json.dumps(head)[:-1] + ', "traceEvents": [\n' + events + "\n]}").encode()


def _groups(job: Job, rank: int) -> list[dict[str, object]]:
    """As PyTorch lists them: a number that is unique in the job, what it is for, its size."""
    stages = rank % (job.tensor_size * job.data_size)
    groups = (
        ("TENSOR_MODEL_PARALLEL_GROUP", int(job.tensor[rank]), job.tensor_size),
        ("DATA_PARALLEL_GROUP", 100_000 + int(job.data[rank]), job.data_size),
        ("PIPELINE_MODEL_PARALLEL_GROUP", 200_000 + stages, job.stages),
        ("MODEL_PARALLEL_GROUP", 300_000 + int(job.replica[rank]), job.tensor_size * job.stages),
    )
    return [
        {"pg_name": str(1 + number), "pg_desc": what, "backend_config": "cuda:nccl", "pg_size": size}
        for what, number, size in groups
    ]


def _events(job: Job, rows: Rows, edges: Sequence[Times], rank: int, clock_us: float) -> Iterator[str]:
    device, host = rank % job.tensor_size, 10_000 + rank % job.tensor_size
    on_host = f'"pid": {host}, "tid": {host}'
    for number, (start, end) in enumerate(pairwise(edges)):
        at, took = start[rank] + clock_us, end[rank] - start[rank]
        yield (
            f'{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{number}", {on_host},'
            f' "ts": {at:.3f}, "dur": {took:.3f}}}'
        )
    for began, through in rows.waits:
        at, took = began[rank] + clock_us, through[rank] - began[rank]
        yield (
            f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", {on_host}, "ts": {at:.3f},'
            f' "dur": {took:.3f}}}'
        )
    arguments = {kind: _arguments(job, kind, rank) for kind in set(rows.kinds)}
    for number, (name, kind) in enumerate(zip(rows.names, rows.kinds, strict=True)):
        launched, start, end = (float(each[number][rank]) for each in (rows.launched, rows.start, rows.end))
        if launched != launched:  # noqa: PLR0124 NaN: this rank has no such row
            continue
        at, correlation = launched + clock_us, number + 1
        if name in _OPS:
            yield (
                f'{{"ph": "X", "cat": "cpu_op", "name": "{_OPS[name]}", {on_host}, "ts": {at - 0.5:.3f}, "dur": 5.5}}'
            )
        yield (
            f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", {on_host}, "ts": {at:.3f}, "dur": 4.5,'
            f' "args": {{"correlation": {correlation}}}}}'
        )
        stream = 7 if kind == "kernel" else 20
        yield (
            f'{{"ph": "X", "cat": "kernel", "name": "{_KERNELS[name]}", "pid": {device}, "tid": {stream},'
            f' "ts": {start + clock_us:.3f}, "dur": {end - start:.3f}, "args": {{"device": {device}, "stream": {stream},'
            f' "correlation": {correlation}, "grid": [132, 1, 1], "block": [384, 1, 1]{arguments[kind]}}}}}'
        )


def _arguments(job: Job, kind: str, rank: int) -> str:
    """What Kineto writes of a collective."""
    if kind == "kernel":
        return ""
    tensor, data, stages, model = _groups(job, rank)
    group, elements = {
        "allreduce": (tensor, LAYER), "norm": (model, 1), "send": (stages, ACTIVATION), "recv": (stages, ACTIVATION),
        "_reduce_scatter_base": (data, SHARD), "_allgather_base": (data, SHARD),
    }[kind]  # fmt: skip
    part = elements // job.data_size
    sent = part if kind == "_allgather_base" else elements
    received = part if kind == "_reduce_scatter_base" else elements
    called = "allreduce" if kind == "norm" else kind
    return (
        f', "Collective name": "{called}", "In msg nelems": {sent}, "Out msg nelems": {received},'
        f' "Group size": {group["pg_size"]}, "dtype": "BFloat16", "Process Group Name": "{group["pg_name"]}",'
        f' "Process Group Description": "{group["pg_desc"]}"'
    )


def write(job: Job, folder: Path, ranks: Sequence[int] | None = None) -> int:
    """The traces of these ranks, or of all; how many bytes they take."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, edges = simulated(job)
    written = 0
    for rank in range(job.ranks) if ranks is None else ranks:
        packed = gzip.compress(trace(job, rows, edges, rank), 1)
        (folder / f"rank{rank:05}.json.gz").write_bytes(packed)
        written += len(packed)
    return written


_SAMPLE_COLUMNS = (
    "unix_ns", "device", "power_mw", "power_limit_mw", "sm_clock_mhz", "max_sm_clock_mhz", "temperature_c",
    "utilization_percent", "throttle_reasons",
)  # fmt: skip


def write_runs(job: Job, folder: Path) -> list[Path]:
    """The same as `perfdoctor run` on each node records it: a run folder a node, with samples of its GPUs."""
    rows, edges = simulated(job)
    nodes = range(0, job.ranks, job.tensor_size)
    return [_run_folder(job, rows, edges, first, folder / f"node{first:05}") for first in nodes]


def _run_folder(job: Job, rows: Rows, edges: Sequence[Times], first: int, folder: Path) -> Path:
    for name in ("torch", "agents", "device"):
        (folder / name).mkdir(parents=True)
    manifest = {"format": 1, "perfdoctor": "0.1.0", "passes": [{"name": "torch", "state": "done", "exit_code": 0}]}
    (folder / "run.json").write_text(json.dumps(manifest), "utf-8")
    for rank in range(first, first + job.tensor_size):
        name = f"rank{rank}.pt.trace.json"
        (folder / "torch" / f"{name}.gz").write_bytes(gzip.compress(trace(job, rows, edges, rank), 1))
        (folder / "agents" / f"torch-{10_000 + rank}.json").write_text(json.dumps(_reported(job, rank, name)), "utf-8")
    end_ns = round(1e3 * float(max(edge.max() for edge in edges)))
    samples = [
        (BASE_NS + at, device, 600_000, 700_000, 1_755, 1_980, 60, 95, "0x0")
        for at in range(0, end_ns, max(end_ns // 20, 1))
        for device in range(job.tensor_size)
    ]
    lines = (",".join(map(str, row)) for row in (_SAMPLE_COLUMNS, *samples))
    (folder / "device" / "samples.csv").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def _reported(job: Job, rank: int, trace_name: str) -> dict[str, object]:
    """What a rank's process reports of itself."""
    return {
        "pass": "torch", "pid": 10_000 + rank, "state": "written", "rank": rank, "world_size": job.ranks,
        "trace": trace_name, "steps_seen": STEPS, "steps_recorded": STEPS, "job": "planet",
        "unwatched_step_ns": 0,
        "memory": {"kind": "cuda", "device": rank % job.tensor_size, "samples": [
            [BASE_NS + 1_000_000 * step, 40_000_000_000 + rank, 50_000_000_000 + 1_000 * rank] for step in range(8)
        ]},
    }  # fmt: skip


# --- measured --------------------------------------------------------------------------------------------------------

_MEASURED = """
import json, os, resource, sys
from pathlib import Path
from perfdoctor.diagnosis.engine import examine
from perfdoctor.model.run import WHOLE_RECORDING
from perfdoctor.report import html
from perfdoctor.scale import read
from perfdoctor.views.build import views
from perfdoctor.vocabulary.rulebook import load_rules

def processor_s():
    return sum(os.times()[:4])

progress = []
def seen(said):
    progress.append((said, processor_s()))
folders = [Path(folder) for folder in sys.argv[1:]]
if len(folders) > 1:
    import planet
    made = read.summaries
    read.summaries = lambda files, *how: planet.enlarged(made(files[: len(files) // len(folders)], *how), len(folders))
began = processor_s()
run = read.read_run(folders, seen, most_in_full=0)
diagnosis = examine(run, list(load_rules().values())).diagnosis
over = processor_s()
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
page = len(html.render(diagnosis, views(run, diagnosis)).encode())
all_made = next(at for said, at in progress if said.startswith("Comparing"))
print(json.dumps({
    "map_s": all_made - began, "reduce_s": over - all_made, "in_full": len(run.places),
    "parent_mb": memory, "page_kb": page / 1000, "page_s": processor_s() - over,
    "worker_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    "found": [each.summary for top in diagnosis.findings for each in (top, *top.symptoms)
              if each.rule in ("rank-skew", "slow-links", "gpus-differ")],
    "failed": [each.rule for each in diagnosis.outcomes if each.status == "failed"],
}))
"""


def enlarged(packed: Sequence[bytes | Exception], times: int) -> list[bytes | Exception]:
    """The summaries of a job of so many times as many ranks: each of them comes as often, in other groups.

    Groups of data parallel ranks are one with all of their copies, so that all of the job meets. Ranks get numbers of
    their own when they are joined, as those of machines do that number theirs alike.
    """
    from perfdoctor.scale.summary import pack, unpack  # noqa: PLC0415 not needed to write

    jobs = [unpack(each) for each in packed if isinstance(each, bytes)]
    return [pack(_copied(job, copy, times)) for copy in range(times) for job in jobs]


def _copied(job: Any, copy: int, times: int) -> Any:
    from perfdoctor.model.packed_columns import Numbers  # noqa: PLC0415

    (place,) = job.places
    group, size = place.texts["group_name"], place.numbers["group_size"].values()
    together = [100_000 < int(name) <= 200_000 for name in group.values]
    named = [
        name if one else str(int(name) + 1_000_000 * copy) for name, one in zip(group.values, together, strict=True)
    ]
    sizes = np.where(np.array(together)[group.codes.values()], times * size, size)
    place = replace(
        place,
        texts={**place.texts, "group_name": replace(group, values=tuple(named))},
        numbers={**place.numbers, "group_size": Numbers.of(sizes)},
    )
    return replace(job, world_size=times * job.world_size, places=(place,))


def measure(ranks: int, fault: str, kept: Path | None, times: int) -> None:
    """One line of docs/scale.md: processor time of summaries and of all that follows, memory, and bytes a rank.

    `kept`: a folder in which the traces of each job stay, or are already. `times`: as `enlarged`.
    """
    with tempfile.TemporaryDirectory(prefix="planet-") as temporary:
        folder = (kept or Path(temporary)) / str(ranks)
        if not folder.exists():
            write(Job.of(ranks, fault), folder)
        copies = [Path(temporary) / f"copy{number}" for number in range(times)] if times > 1 else [folder]
        for copy in copies:
            if copy != folder:
                copy.symlink_to(folder.absolute())
        _measured(ranks * times, folder, copies)


def _measured(ranks: int, folder: Path, copies: Sequence[Path]) -> None:
    from perfdoctor.model.run import WHOLE_RECORDING  # noqa: PLC0415 not needed to write
    from perfdoctor.readers.open import read_file  # noqa: PLC0415
    from perfdoctor.scale.summary import packed_summary  # noqa: PLC0415

    written = sum(file.stat().st_size for file in folder.iterdir())
    began = time.monotonic()
    answer = subprocess.run(
        [sys.executable, "-c", _MEASURED, *copies], check=True, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )  # fmt: skip
    took = time.monotonic() - began
    found = json.loads(answer.stdout.splitlines()[-1])
    some = sorted(folder.iterdir())[:: max(ranks // len(copies) // 20, 1)]
    packed = np.mean([len(packed_summary(read_file(file, lambda _: None), WHOLE_RECORDING)) for file in some])
    print(
        f"| {ranks:,} | {written / 1e6:.1f} MB | {packed:,.0f} | {found['map_s']:.1f} s | {found['reduce_s']:.2f} s |"
        f" {took:.0f} s | {found['parent_mb']:.0f} MB | {found['worker_mb']:.0f} MB | {found['page_kb']:.0f} kB |"
    )
    for said in (*found["found"], *(f"FAILED {rule}" for rule in found["failed"])):
        print(f"    {said}")


# --- compared --------------------------------------------------------------------------------------------------------


def compare(paths: Sequence[Path]) -> None:
    """A line for each finding that differs between all ranks in full and by summaries."""
    from perfdoctor.diagnosis.engine import examine  # noqa: PLC0415 not needed to write
    from perfdoctor.scale.read import read_run  # noqa: PLC0415
    from perfdoctor.vocabulary.rulebook import load_rules  # noqa: PLC0415

    rules = list(load_rules().values())
    print("| recording | finding | likely saving in full | by summaries |")
    for path in paths:
        found = []
        for most_in_full in (1 << 20, 0):
            run = read_run([path], lambda _: None, most_in_full=most_in_full)
            diagnosis = examine(run, rules).diagnosis
            every = [each for top in diagnosis.findings for each in (top, *top.symptoms)]
            found.append({each.rule: each.saving_ns_per_step.likely / 1e6 for each in every})
        same = [rule for rule in found[0] if found[0][rule] == found[1].get(rule)]
        print(f"| {path.name} | {', '.join(same)} | the same | |")
        for rule in dict.fromkeys([*found[0], *found[1]]):
            if rule not in same:
                said = (f"{each[rule]:.2f} ms" if rule in each else "not found" for each in found)
                print(f"| {path.name} | {rule} | {' | '.join(said)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    to_write = commands.add_parser("write")
    to_write.add_argument("folder", type=Path)
    to_write.add_argument("--ranks", type=int, choices=sorted(SHAPES), default=1_000)
    to_write.add_argument("--fault", choices=FAULTS, default="all")
    to_write.add_argument("--runs", action="store_true", help="As run folders of perfdoctor run, one a node.")
    to_measure = commands.add_parser("measure")
    to_measure.add_argument("--ranks", type=lambda text: [int(each) for each in text.split(",")], default=[10, 100])
    to_measure.add_argument("--keep", type=Path, help="A folder in which the traces of each job stay, or are already.")
    to_measure.add_argument("--times", type=int, default=1, help="So many times as many ranks, by copies of summaries.")
    to_measure.add_argument("--fault", choices=FAULTS, default="all")
    to_compare = commands.add_parser("compare")
    to_compare.add_argument("paths", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "compare":
        compare(given.paths)
        return
    if given.command == "measure":
        print("| ranks | files | bytes of a summary | summaries | all else | wall | memory | of a worker | page |")
        for ranks in given.ranks:
            measure(ranks, given.fault, given.keep, given.times)
        return
    job = Job.of(given.ranks, given.fault)
    if given.runs:
        print(f"{len(write_runs(job, given.folder))} run folders; {_faults(job)}")
        return
    written = write(job, given.folder)
    print(f"{job.ranks} ranks, {written / 1e6:.1f} MB; {_faults(job)}")


def _faults(job: Job) -> str:
    said = [
        f"slow rank {job.slow_rank}" if job.has("rank") else "",
        f"slow link in ranks {job.slow_group * job.tensor_size} and following" if job.has("link") else "",
        f"slow node of rank {job.slow_node * job.tensor_size}" if job.has("node") else "",
    ]
    return ", ".join(filter(None, said)) or "no fault"


if __name__ == "__main__":
    main()

"""How long does an all-reduce take: a small one its latency, a large one by the bandwidth of the links?

Bus bandwidth is 2 (n - 1) / n · bytes ÷ time, as in nccl-tests (doc/PERFORMANCE.md).
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
import time
from functools import partial
from typing import Any, List

from perfdoctor_measuring.apart import Emit, Row, rows_of
from perfdoctor_measuring.timing import rates, spread

_SMALL_BYTES = 1024
#: Buckets of DDP have 25 MiB, shards of FSDP up to hundreds: bandwidth hardly grows any more beyond.
_LARGE_BYTES = {"nccl": (16 << 20, 64 << 20, 256 << 20), "gloo": (16 << 20,)}
_SAMPLES = {"quick": 3, "full": 9}
#: Small messages of one sample, one behind the other.
_SMALL_COUNT = 50
_JOINING_S = 30
_BYTES_OF_FP32 = 4


def measured(torch: Any, backend: str, ranks: int, quick: bool, limit_s: float) -> List[Row]:
    """Rows of `ranks` processes, each with a GPU of its own if the backend is nccl."""
    with tempfile.TemporaryDirectory() as folder:
        where = "file://" + os.path.join(folder, "ranks")
        works = [partial(_of_rank, torch, backend, rank, ranks, where, quick) for rank in range(ranks)]
        rows = rows_of(works, limit_s)
    failed = {"what": "all_reduce", "backend": backend, "ranks": ranks}
    return [{**row, **failed} if row.get("what") == "all" else row for row in rows]


def _of_rank(torch: Any, backend: str, rank: int, ranks: int, where: str, quick: bool, emit: Emit) -> None:
    from torch import distributed

    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(rank)
    else:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # both are here, whatever this machine's name resolves to
    timeout = dt.timedelta(seconds=_JOINING_S)
    distributed.init_process_group(backend, init_method=where, rank=rank, world_size=ranks, timeout=timeout)
    send = emit if rank == 0 else lambda _: None
    samples, labels = _SAMPLES["quick" if quick else "full"], {"backend": backend, "ranks": ranks}

    def times_ns(size: int, count: int) -> List[float]:
        tensor = torch.zeros(size // _BYTES_OF_FP32, device=device)
        return [_sample_ns(torch, distributed, tensor, count) for _ in range(samples + 1)][1:]

    # An error is not caught: the other ranks would wait for this one, and are ended instead.
    send({
        **labels, "what": "all_reduce_latency", "unit": "ns", "bytes": _SMALL_BYTES,
        **spread(times_ns(_SMALL_BYTES, _SMALL_COUNT)),
    })  # fmt: skip
    for size in _LARGE_BYTES[backend]:
        carried = 2.0 * (ranks - 1) / ranks * size
        send({
            **labels, "what": "all_reduce", "unit": "bytes_per_second", "bytes": size,
            **rates(carried, times_ns(size, 2)),
        })  # fmt: skip
    distributed.destroy_process_group()


def _sample_ns(torch: Any, distributed: Any, tensor: Any, count: int) -> float:
    """Mean time of an all-reduce in ns, of `count` that are launched one after the other."""
    distributed.all_reduce(tensor)
    _finish(torch, tensor)
    start = time.perf_counter_ns()
    for _ in range(count):
        distributed.all_reduce(tensor)
    _finish(torch, tensor)
    return (time.perf_counter_ns() - start) / count


def _finish(torch: Any, tensor: Any) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize()

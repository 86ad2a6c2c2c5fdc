"""What does a batch cost that a DataLoader worker sends: by itself, by each tensor in it, and by each byte?

A worker copies every tensor into shared memory of its own and sends a handle through a queue; the training process
wakes up, opens and maps each, and gets a page fault for every page it touches first (torch/multiprocessing/
reductions.py; torch/utils/data/_utils/worker.py). So both sides pay a time a batch, a time a tensor and a time a byte.
"""

from __future__ import annotations

from msgspec import Struct

from perfdoctor.hardware.measured import MeasuredRates, Measurement


class BatchCost(Struct, frozen=True):
    """Ns of one side of the way: `batch_ns + tensor_ns * tensors + byte_ns * bytes`."""

    batch_ns: float
    tensor_ns: float
    byte_ns: float

    def ns(self, tensors: float, size: float) -> float:
        """Ns of a batch with so many tensors, and `size` bytes."""
        return self.batch_ns + self.tensor_ns * tensors + self.byte_ns * size


class WorkerBatch(Struct, frozen=True):
    """Cost of a batch: time of the training process to `receive` it, and processor time of the worker to `send` it.

    `pinned_ns`: time to receive it where a thread of the training process copies batches into pinned memory.
    """

    receive: BatchCost
    send: BatchCost
    pinned_ns: float
    is_measured: bool

    def receive_ns(self, tensors: float, size: float, *, pinned: bool) -> float:
        """Ns of the training process for a batch of so many tensors, and `size` bytes."""
        return self.pinned_ns if pinned else self.receive.ns(tensors, size)


#: Medians of torch 2.13 with Python 3.11 in a virtual machine of two cores (Linux 6.18, AMD EPYC), with 1 to 4
#: workers. Received, a batch of one tensor of 4 kB takes 0.4-0.8 ms, of two 0.8-1.2, of 8 1.5, of 32 6 ms, one of
#: 32 MB 22 ms; sent, of one 0.3-0.7, of 8 1.1, of 32 3.5 ms, a tensor of 32 MB 20 ms of a core. In trainings there,
#: 1.0-1.5 ms were waited for a batch of two that was ready. Page faults are slower in a virtual machine than outside.
#: With pinned memory, from recordings of trainings whose workers keep up: 67-73 µs with A100, 81-118 µs with V100.
TYPICAL = WorkerBatch(BatchCost(0.7e6, 0.17e6, 0.6), BatchCost(0.4e6, 0.1e6, 0.6), pinned_ns=0.1e6, is_measured=False)


def of_machine(rates: MeasuredRates | None) -> WorkerBatch:
    """The cost that was measured on a machine; `TYPICAL` where it was not measured, or not steadily."""
    found = [_cost(rates.steady(what)) for what in ("worker_receive", "worker_send")] if rates else []
    match found:
        case [BatchCost() as receive, BatchCost() as send]:
            return WorkerBatch(receive, send, pinned_ns=receive.batch_ns, is_measured=True)
    return TYPICAL


def _cost(rows: tuple[Measurement, ...]) -> BatchCost | None:
    """Cost by a small batch, one of more tensors of that size, and a large one; None where one of them is missing."""
    if not rows:
        return None
    small = min(rows, key=lambda each: (each.tensors, each.bytes))
    many, large = max(rows, key=lambda each: each.tensors), max(rows, key=lambda each: each.bytes)
    if many is large or many.tensors == small.tensors or large.bytes == small.bytes:
        return None
    byte_ns = max(large.median - small.median, 0.0) / (large.bytes - small.bytes)
    added_ns = many.median - small.median - byte_ns * (many.bytes - small.bytes)
    tensor_ns = max(added_ns, 0.0) / (many.tensors - small.tensors)
    batch_ns = max(small.median - tensor_ns * small.tensors - byte_ns * small.bytes, 0.0)
    return BatchCost(batch_ns, tensor_ns, byte_ns)

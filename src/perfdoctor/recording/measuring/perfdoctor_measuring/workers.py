"""What does a batch from a DataLoader worker cost: the training process to receive it, and the worker to send it?

A worker copies each tensor into shared memory, and sends a handle for it through a queue. The training process waits
for the queue, maps the memory, and gets a page fault for each page that it touches first (torch/multiprocessing/
reductions.py, torch/utils/data/_utils/worker.py). Measured with one worker that has the next batches ready, so that
nothing is waited for that a worker has still to make.
"""

from __future__ import annotations

import statistics
import time
import warnings
from typing import Any, List, Tuple

from perfdoctor_measuring.apart import Emit, message
from perfdoctor_measuring.timing import spread

#: (tensors, bytes of the whole batch): what any batch costs, what a tensor adds, and what a byte adds.
BATCHES = ((1, 4096), (16, 16 * 4096), (1, 4 << 20))
_SAMPLES = {"quick": 3, "full": 7}
#: Batches of one sample, whose median counts: another program disturbs a few of them.
_BATCHES_OF_SAMPLE = 5
#: Meanwhile the worker prepares what it is asked for: 4 MB take some milliseconds.
_PAUSE_S = 0.004
_BYTES_OF_FP32, _FLOATS_OF_PAGE = 4, 1024


class _Batches:
    """A dataset of whole batches, made as collating makes them, with the worker's clock before and after."""

    def __init__(self, torch: Any, tensors: int, size: int) -> None:
        self.torch, self.tensors, self.floats = torch, tensors, size // tensors // _BYTES_OF_FP32

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, _: int) -> Tuple[List[Any], float, float]:
        begun = time.process_time()
        made = [self.torch.ones(self.floats) for _ in range(self.tensors)]
        return made, begun, time.process_time()


def measure(torch: Any, quick: bool, emit: Emit) -> None:
    """Send the times of receiving and sending a batch, by its tensors and bytes."""
    torch.set_num_threads(1)
    samples = _SAMPLES["quick" if quick else "full"]
    for tensors, size in BATCHES:
        labels = {"unit": "ns", "tensors": tensors, "bytes": size}
        try:
            received, sent = _of_batches(torch, tensors, size, samples)
        except Exception as error:
            emit({**labels, "what": "worker_receive", "error": message(error)})
            continue
        emit({**labels, "what": "worker_receive", **spread(received)})
        emit({**labels, "what": "worker_send", **spread(sent)})


def _of_batches(torch: Any, tensors: int, size: int, samples: int) -> Tuple[List[float], List[float]]:
    """Ns that the receiver takes, and processor time of the sender in ns, of each sample of batches of `size` bytes."""
    dataset = _Batches(torch, tensors, size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="fork")
        batches = iter(loader)
        own_ns = statistics.median(_used_ns(dataset[0][0]) for _ in range(_BATCHES_OF_SAMPLE))
        found = [_sample(batches, own_ns) for _ in range(samples + 1)][1:]
    return [max(received, 1.0) for received, _ in found], [max(sent, 1.0) for _, sent in found]


def _sample(batches: Any, own_ns: float) -> Tuple[float, float]:
    """Medians of some batches, without `own_ns`, the time to touch memory of the process's own."""
    received, ends, begins = [], [], []
    for _ in range(_BATCHES_OF_SAMPLE):
        time.sleep(_PAUSE_S)
        start = time.perf_counter_ns()
        batch, begun, ended = next(batches)
        _used_ns(batch)
        del batch  # which unmaps it
        received.append(float(time.perf_counter_ns() - start) - own_ns)
        begins.append(begun)
        ends.append(ended)
    sent = [(begun - ended) * 1e9 for begun, ended in zip(begins[1:], ends)]
    return statistics.median(received), statistics.median(sent)


def _used_ns(batch: List[Any]) -> float:
    """How long it takes to touch each page of these tensors."""
    start = time.perf_counter_ns()
    for tensor in batch:
        tensor[::_FLOATS_OF_PAGE].sum()
    return float(time.perf_counter_ns() - start)

"""How long does a call take? The median of several samples, after a warm-up, with the least and the most."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, Dict, List

#: A GPU raises its clocks within some ms of work, libraries choose their kernels in the first calls, and threads start.
_WARM_UP_NS = 30_000_000
#: So long a batch of calls is that events, which count half microseconds, are precise to a thousandth.
_BATCH_NS = 3_000_000
_MOST_CALLS = 500


def spread(values: List[float]) -> Dict[str, Any]:
    """Median, least and most of the samples, and how many there are."""
    return {
        "median": statistics.median(values), "least": min(values), "most": max(values), "samples": len(values),
    }  # fmt: skip


def rates(amount: float, times_ns: List[float]) -> Dict[str, Any]:
    """The spread of this amount a second."""
    return spread([amount / ns * 1e9 for ns in times_ns])


def host_ns(call: Callable[[], Any], samples: int, budget_s: float) -> List[float]:
    """Time of the call on the host in ns, a mean for each batch; at least one sample within the budget of seconds."""
    call()
    warm = time.perf_counter_ns() + _WARM_UP_NS
    one_ns = _taken_ns(call, 1)
    while time.perf_counter_ns() < warm:
        one_ns = _taken_ns(call, 1)
    count = max(1, min(_MOST_CALLS, int(_BATCH_NS / max(one_ns, 1.0))))
    begun = time.perf_counter()
    found: List[float] = []
    while len(found) <= samples and (len(found) < 2 or time.perf_counter() - begun < budget_s):
        found.append(_taken_ns(call, count))
    return found[1:]


def _taken_ns(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - start) / count


def device_ns(torch: Any, call: Callable[[], Any], samples: int) -> List[float]:
    """Time of the call on the GPU in ns, a mean for each batch between two events.

    Short calls are replayed as a CUDA graph, whose kernels need no host, so that a slow one does not show.
    """
    call()
    torch.cuda.synchronize()
    one_ns = _between_events(torch, call)
    count = max(1, min(_MOST_CALLS, int(_BATCH_NS / max(one_ns, 1.0))))
    batch = _batch(torch, call, count)
    warm = time.perf_counter_ns() + _WARM_UP_NS
    while time.perf_counter_ns() < warm:
        _between_events(torch, batch)
    return [_between_events(torch, batch) / count for _ in range(samples)]


def _batch(torch: Any, call: Callable[[], Any], count: int) -> Callable[[], Any]:
    def launched() -> None:
        for _ in range(count):
            call()

    if count == 1:
        return call
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launched()
    except Exception:
        return launched
    replay: Callable[[], Any] = graph.replay
    return replay


def _between_events(torch: Any, call: Callable[[], Any]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e6

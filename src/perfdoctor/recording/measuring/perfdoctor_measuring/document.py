"""Which parts are measured on this machine, and how do they become one document?

GPU, processor and all-reduce are measured in processes of their own: what crashes or hangs costs its own parts only,
and the process that starts them never initialises CUDA, which a forked process could not use any more.
"""

from __future__ import annotations

import platform
import time
from functools import partial
from typing import Any, Dict, List

from perfdoctor_measuring import all_reduce, gpu, workers
from perfdoctor_measuring import processor as host
from perfdoctor_measuring.apart import Row, rows_of

FORMAT = 1
#: Ten times what the parts take on a fast machine: whoever takes longer hangs.
_LONGEST_S = {"quick": 40.0, "full": 120.0}


def measured(quick: bool, processor: str = "") -> Dict[str, Any]:
    """The document. `processor`: what the processor is to be called."""
    import torch

    begun, limit_s = time.monotonic(), _LONGEST_S["quick" if quick else "full"]
    rows = rows_of([partial(gpu.measure, torch, quick)], limit_s)
    machine = _machine(rows)
    if not machine.get("gpus"):
        machine = {"device": processor or platform.processor() or platform.machine(), "kind": "processor", "gpus": 0}
        rows = rows_of([partial(host.measure, torch, quick)], limit_s)
        machine["threads"] = _machine(rows).get("threads", 0)
    rows += rows_of([partial(workers.measure, torch, quick)], limit_s)
    rows += _all_reduced(torch, machine["gpus"], quick, limit_s)
    return {
        "format": FORMAT, "measured_on": time.strftime("%Y-%m-%d"), "quick": quick,
        "seconds": round(time.monotonic() - begun, 2),
        "machine": {
            **machine, "torch": str(torch.__version__), "cuda": str(torch.version.cuda or torch.version.hip or ""),
            "python": platform.python_version(),
        },
        "measurements": [row for row in rows if "median" in row],
        "failed": [row for row in rows if "error" in row],
    }  # fmt: skip


def _all_reduced(torch: Any, gpus: int, quick: bool, limit_s: float) -> List[Row]:
    """All-reduces of all GPUs, or of two processes without any; none with one GPU, or in a hurry with NCCL."""
    if gpus == 1 or (gpus and quick):
        return []
    backend, ranks = ("nccl", gpus) if gpus else ("gloo", 2)
    return all_reduce.measured(torch, backend, ranks, quick, limit_s)


def _machine(rows: List[Row]) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for row in rows:
        found.update(row.get("machine", {}))
    return found

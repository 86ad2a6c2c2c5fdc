"""What does the processor give where there is no GPU: arithmetic in fp32 and bf16, and memory?"""

from __future__ import annotations

from functools import partial
from typing import Any

from perfdoctor_measuring.apart import Emit, Row, tried
from perfdoctor_measuring.timing import host_ns, rates

SIZES = (128, 512, 2048)
TYPES = {"bf16": "bfloat16", "fp32": "float32"}
#: Larger than the caches of most processors.
_COPIED_BYTES = 256 << 20
_SAMPLES = {"quick": 3, "full": 9}
#: Of one part: a processor without units for bf16 may take seconds for one large product.
_BUDGET_S = {"quick": 0.15, "full": 1.0}
#: Above this the next size, with 64 times the work, is left out.
_SLOWEST_NS = 20e6


def measure(torch: Any, quick: bool, emit: Emit) -> None:
    """Send the rates of the processor, with as many threads as torch uses."""
    how = "quick" if quick else "full"
    emit({"machine": {"threads": torch.get_num_threads()}})
    for data_type in TYPES:
        last_ns = 0.0
        for size in SIZES:
            labels = {"what": "matmul", "unit": "flop_per_second", "data_type": data_type, "size": size}
            if last_ns > _SLOWEST_NS:
                emit({**labels, "error": "RuntimeError: left out: it would take too long"})
                continue
            row = tried(emit, labels, partial(_matmul, torch, data_type, size, _SAMPLES[how], _BUDGET_S[how]))
            last_ns = 2.0 * size**3 / row["median"] * 1e9 if "median" in row else last_ns
    labels = {"what": "memory_copy", "unit": "bytes_per_second", "bytes": _COPIED_BYTES}
    tried(emit, labels, partial(_memory_copy, torch, _SAMPLES[how], _BUDGET_S[how]))


def _matmul(torch: Any, data_type: str, size: int, samples: int, budget_s: float) -> Row:
    a, b = (torch.randn(size, size).to(getattr(torch, TYPES[data_type])) for _ in range(2))
    c = torch.empty_like(a)
    return rates(2.0 * size**3, host_ns(lambda: torch.mm(a, b, out=c), samples, budget_s))


def _memory_copy(torch: Any, samples: int, budget_s: float) -> Row:
    """The rate of a copy in memory, whose bytes count twice, as they are read and written."""
    source = torch.ones(_COPIED_BYTES, dtype=torch.uint8)
    target = torch.zeros_like(source)
    return rates(2.0 * _COPIED_BYTES, host_ns(lambda: target.copy_(source), samples, budget_s))

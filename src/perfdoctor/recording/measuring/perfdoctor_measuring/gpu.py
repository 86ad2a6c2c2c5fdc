"""What does the first GPU give: arithmetic by type and size, memory, copies, launches?

Numbers are drawn at random: a GPU needs less power for zeros, and would keep higher clocks than in a training.
"""

from __future__ import annotations

import ctypes
import re
import time
from functools import partial
from typing import Any, List

from perfdoctor_measuring.apart import Emit, Row, tried
from perfdoctor_measuring.timing import device_ns, rates, spread

#: Rows and columns of the square matrices: limited by launches, by memory and sizes, and by arithmetic alone.
SIZES = (512, 2048, 8192)
#: By name: torch's type, and the precision in which fp32 is multiplied.
TYPES = {"bf16": ("bfloat16", ""), "fp16": ("float16", ""), "tf32": ("float32", "high"), "fp32": ("float32", "highest")}
#: bfloat16 and TF32 units came with Ampere: before it bf16 is emulated, and TF32 is fp32.
_AMPERE = (8, 0)
_SINCE_AMPERE = ("bf16", "tf32")
#: At most so much of the GPU's memory, in bytes: another program may be using the rest.
MOST_BYTES = 2_000_000_000
#: Larger than the L2 of any GPU, which has 126 MB at most (B200).
_COPIED_BYTES = 512 << 20
_HOST_BYTES = {"quick": 32 << 20, "full": 128 << 20}
#: A GPU queues about a thousand launches; behind more the host would wait.
_LAUNCHES = 400
#: 20 ms at 2 GHz: longer than the host takes for all these launches.
_QUEUE_CYCLES = 40_000_000
_SAMPLES = {"quick": 3, "full": 9}


def measure(torch: Any, quick: bool, emit: Emit) -> None:
    """Send the facts and rates of the first GPU; where there is none, only that."""
    if not torch.cuda.is_available():
        emit({"machine": {"gpus": 0}})
        return
    emit({"machine": {
        "device": str(torch.cuda.get_device_name(0)), "kind": "gpu", "gpus": torch.cuda.device_count(),
        "driver": _driver(), "compute_capability": list(torch.cuda.get_device_capability(0)),
    }})  # fmt: skip
    how = "quick" if quick else "full"
    memory_bytes = int(torch.cuda.get_device_properties(0).total_memory)
    torch.cuda.set_per_process_memory_fraction(min(1.0, MOST_BYTES / memory_bytes), 0)
    for size in SIZES:
        for data_type in TYPES:
            labels = {"what": "matmul", "unit": "flop_per_second", "data_type": data_type, "size": size}
            _tried(torch, emit, labels, partial(_matmul, torch, data_type, size, _SAMPLES[how]))
    labels = {"what": "memory_copy", "unit": "bytes_per_second", "bytes": _COPIED_BYTES}
    _tried(torch, emit, labels, partial(_memory_copy, torch, _SAMPLES[how]))
    for direction in ("h2d", "d2h"):
        for memory in ("pinned", "pageable"):
            size = _HOST_BYTES[how]
            labels = {"what": f"{direction}_{memory}", "unit": "bytes_per_second", "bytes": size}
            _tried(torch, emit, labels, partial(_host_copy, torch, direction, memory, size, _SAMPLES[how]))
    _tried(torch, emit, {"what": "launch", "unit": "ns"}, partial(_launch, torch, _SAMPLES[how]))
    _tried(torch, emit, {"what": "kernel_floor", "unit": "ns"}, partial(_kernel_floor, torch, _SAMPLES[how]))


def _tried(torch: Any, emit: Emit, labels: Row, part: Any) -> None:
    tried(emit, labels, part)
    tried(lambda _: None, {}, lambda: torch.cuda.empty_cache() or {})


def _driver() -> str:
    """The version of NVIDIA's driver, by its library, else by its module; "" where neither says."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        text = ctypes.create_string_buffer(80)
        library.nvmlInit_v2()
        found = library.nvmlSystemGetDriverVersion(text, 80)
        library.nvmlShutdown()
        if found == 0:
            return text.value.decode()
    except Exception:
        pass
    try:
        with open("/proc/driver/nvidia/version") as file:
            version = re.search(r"Module\s+([\d.]+)", file.read())
    except OSError:
        return ""
    return version.group(1) if version else ""


def _matmul(torch: Any, data_type: str, size: int, samples: int) -> Row:
    """The rate of C = A · B with square matrices of `size` rows, 2 · size³ FLOP."""
    if data_type in _SINCE_AMPERE and not torch.version.hip and torch.cuda.get_device_capability(0) < _AMPERE:
        raise RuntimeError("this GPU has no units for it")
    name, precision = TYPES[data_type]
    if precision:
        torch.set_float32_matmul_precision(precision)
    a, b = (torch.randn(size, size, device="cuda", dtype=getattr(torch, name)) for _ in range(2))
    c = torch.empty_like(a)
    return rates(2.0 * size**3, device_ns(torch, lambda: torch.mm(a, b, out=c), samples))


def _memory_copy(torch: Any, samples: int) -> Row:
    """The rate of a copy inside the GPU, whose bytes count twice, as they are read and written."""
    source = torch.empty(_COPIED_BYTES, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return rates(2.0 * _COPIED_BYTES, device_ns(torch, lambda: target.copy_(source), samples))


def _host_copy(torch: Any, direction: str, memory: str, size: int, samples: int) -> Row:
    """The rate of a copy between host and GPU, one way. Pageable memory is written to before, so that it has pages."""
    host = torch.ones(size, dtype=torch.uint8, pin_memory=memory == "pinned")
    device = torch.ones(size, dtype=torch.uint8, device="cuda")
    target, source = (device, host) if direction == "h2d" else (host, device)

    def copy() -> None:
        target.copy_(source, non_blocking=memory == "pinned")

    copy()
    torch.cuda.synchronize()
    found = []
    for _ in range(samples):
        start = time.perf_counter_ns()
        copy()
        torch.cuda.synchronize()
        found.append(float(time.perf_counter_ns() - start))
    return rates(float(size), found)


def _launch(torch: Any, samples: int) -> Row:
    """The time in which the host launches a kernel that ends at once, through one thin call of torch."""
    call = partial(torch.cuda._sleep, 0)
    found: List[float] = []
    for _ in range(samples + 1):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(_LAUNCHES):
            call()
        found.append((time.perf_counter_ns() - start) / _LAUNCHES)
    torch.cuda.synchronize()
    return spread(found[1:])


def _kernel_floor(torch: Any, samples: int) -> Row:
    """The time from one such kernel to the next while the queue is full: the least that any kernel takes."""
    found: List[float] = []
    for _ in range(samples + 1):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(_QUEUE_CYCLES)
        start.record()
        for _ in range(_LAUNCHES):
            torch.cuda._sleep(0)
        end.record()
        end.synchronize()
        found.append(float(start.elapsed_time(end)) * 1e6 / _LAUNCHES)
    return spread(found[1:])

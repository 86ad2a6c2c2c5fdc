"""Documents of measured rates, as the script that measures a machine prints them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec.structs import replace

from perfdoctor.hardware.measured import MeasuredRates, parsed
from perfdoctor.model.timeline import Timeline

H100 = "NVIDIA H100 80GB HBM3"
_UNITS = {"matmul": "flop_per_second", "launch": "ns", "kernel_floor": "ns", "all_reduce_latency": "ns"}


def measurement(what: str, median: float, *, spread: float = 0.05, **labels: object) -> dict[str, object]:
    """`spread`: least to most, as a share of the median."""
    ends = {"least": median * (1 - spread / 2), "most": median * (1 + spread / 2)}
    return {
        "what": what,
        "unit": _UNITS.get(what, "bytes_per_second"),
        "median": median,
        **ends,
        "samples": 9,
        **labels,
    }


def document(*measurements: Mapping[str, object], device: str = H100, **machine: object) -> dict[str, object]:
    return {
        "format": 1,
        "measured_on": "2026-11-22",
        "quick": False,
        "seconds": 9.5,
        "machine": {
            "device": device, "kind": "gpu", "gpus": 1, "driver": "550.54.15", "torch": "2.9.0+cu128", "cuda": "12.8",
            **machine,
        },
        "measurements": list(measurements),
        "failed": [],
    }  # fmt: skip


def rates(*measurements: Mapping[str, object], device: str = H100, **machine: object) -> MeasuredRates:
    return parsed(json.dumps(document(*measurements, device=device, **machine)), "built")


def matmuls(**by_type: Mapping[int, float]) -> list[dict[str, object]]:
    """`matmuls(bf16={8192: 700e12})`: by type and size, in FLOP/s."""
    return [
        measurement("matmul", rate, data_type=data_type, size=size)
        for data_type, sizes in by_type.items()
        for size, rate in sizes.items()
    ]


def with_rates(drawn: Timeline, *measurements: Mapping[str, object], device: str = H100) -> Timeline:
    return replace(drawn, measured=(rates(*measurements, device=device),))

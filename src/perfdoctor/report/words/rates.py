"""What did a machine give when it was measured, in one line?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfdoctor.report.words import wording

if TYPE_CHECKING:
    from perfdoctor.hardware.measured import MeasuredRates

_BYTES = {"memory": "memory", "host_link": "pinned copies"}
_LATENCIES = {"launch": "a launch takes", "kernel_floor": "a kernel at least", "all_reduce_latency": "an all-reduce"}


def line(rates: MeasuredRates) -> str:
    """`bf16 712 TFLOP/s, memory 4.10 TB/s, a launch takes 2.10 µs (2026-11-22)`, and how much failed."""
    parts = [
        f"{_BYTES[name]} {wording.rate(rate)}" if name in _BYTES else f"{name} {wording.flop_rate(rate)}"
        for name, rate in rates.as_peaks().items()
    ]
    parts += [f"{words} {wording.duration(rates.one(what))}" for what, words in _LATENCIES.items() if rates.one(what)]
    failed = f"; {wording.counted(len(rates.failed), 'part')} failed" if rates.failed else ""
    return f"{', '.join(parts) or 'nothing steady'} ({rates.measured_on}{failed})"

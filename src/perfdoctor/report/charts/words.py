"""How is a number on a chart written? As in the rest of the report; on an axis with as few digits as possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from perfdoctor.records.views import Chart, Heat, Unit
from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean_name

_SIMPLE = {"watt": "W", "celsius": "°C", "flop_per_byte": "FLOP/B"}
_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")
_SECONDS = ((1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s"))
_BYTES = tuple((1024.0**power, unit) for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB")))
#: Further decimals would only show rounding errors.
_MOST_DECIMALS = 6


def _thousands(unit: str) -> tuple[tuple[float, str], ...]:
    return tuple((1000.0**power, prefix + unit) for power, prefix in enumerate(_PREFIXES))


_SCALES: Mapping[str, Sequence[tuple[float, str]]] = {
    "ns": _SECONDS,
    "bytes": _BYTES,
    "bytes_per_second": _thousands("B/s"),
    "flop": _thousands("FLOP"),
    "flop_per_second": _thousands("FLOP/s"),
    "hertz": _thousands("Hz"),
    "share": ((0.01, "%"),),
    **{unit: ((1.0, word),) for unit, word in _SIMPLE.items()},
}
_WORDS: Mapping[str, Callable[[float], str]] = {
    "ns": wording.duration,
    "bytes": wording.size,
    "bytes_per_second": wording.rate,
    "flop": wording.flop,
    "flop_per_second": wording.flop_rate,
    "share": wording.fine_share,
}


def said(value: float | str, unit: Unit) -> str:
    """A number in its unit, as in the rest of the report; text from a recording is cleaned."""
    if isinstance(value, str):
        return clean_name(value)
    if not math.isfinite(value):
        return wording.NO_NUMBER
    if unit in _WORDS:
        return _WORDS[unit](value)
    if unit == "hertz":
        return _rounded(value, unit, 3)
    return wording.count(value) + (f" {_SIMPLE[unit]}" if unit in _SIMPLE else "")


def description(picture: Chart | Heat) -> str:
    """The chart's description with its numbers filled in."""
    return picture.description.format(**{name: said(value, unit) for name, (value, unit) in picture.numbers.items()})


def scale_of(largest: float, unit: Unit) -> tuple[float, str]:
    """The unit for an axis up to this number: its size, and its name ("" for plain numbers)."""
    steps = _SCALES.get(unit, ((1.0, ""),))
    return next(((size, name) for size, name in reversed(steps) if abs(largest) >= size * 0.9995), steps[0])


def tick_labels(ticks: Sequence[float], unit: Unit) -> list[str]:
    """Label of each tick, all in one unit and with enough decimals to distinguish neighbours; zero is `0`."""
    largest = max((abs(tick) for tick in ticks), default=0.0)
    size, name = scale_of(largest, unit)
    step = min((b - a for a, b in pairwise(ticks) if b > a), default=largest or 1.0) / size
    decimals = min(max(-math.floor(math.log10(step) + 1e-9), 0), _MOST_DECIMALS) if step > 0 else 0
    if any(abs(tick / size * 10**decimals - round(tick / size * 10**decimals)) > 1e-6 for tick in ticks):
        decimals = min(decimals + 1, _MOST_DECIMALS)  # steps of 2.5 need one more
    return [f"{tick / size:,.{decimals}f}{name and ' ' + name}" if tick else "0" for tick in ticks]


def power_label(tick: float, unit: Unit) -> str:
    """A tick of a logarithmic axis in its own unit: `100 GFLOP/s`; only `0.1` for FLOP a byte, which the axis names."""
    if unit == "flop_per_byte":
        return f"{tick:,.12g}"
    return _rounded(tick, unit, 1)


def _rounded(value: float, unit: Unit, digits: int) -> str:
    size, name = scale_of(value, unit)
    return f"{float(f'{value / size:.{digits}g}'):,.12g}{name and ' ' + name}"

"""How long does a fused attention kernel take, by figures that were published for its GPU?

```
seconds = FLOP ÷ rate        rate: of the figure for head size, length, mask, direction and numbers (attention.toml)
1 ÷ rate = a + b ÷ length    between two lengths, and for shorter ones: each row of blocks begins and ends once
```
FLOP are counted as the authors of the figures do. A head smaller than the smallest that was measured takes as long as
that one: exponentials and loads of the scores are as many. Lengths below a tile are a tile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfdoctor.hardware.peaks import Peaks
from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import shipped_table

#: Rows of queries, and of keys, that a block takes at once at the least (FlashAttention-2, section 3.3: 64 or 128).
_TILE = 64
_BACKWARD = 2.5
#: Which kernel stands for a case where no figure of its own was published, the nearest first.
_INSTEAD = {"low": ("low", "likely"), "likely": ("likely",), "high": ("high", "likely")}


class Attention(Struct, frozen=True):
    """The shape of one attention. `batch` counts heads as well, `size` is that of a head; `bits` are 16 or 32."""

    batch: int
    queries: int
    keys: int
    size: int
    backward: bool = False
    bits: int = 16

    @property
    def is_wide(self) -> bool:
        """Are its numbers of more than 16 bits?"""
        return self.bits > 16

    @property
    def moved_bytes(self) -> int:
        """Bytes of queries, keys, values and result, each once; backward with those of their gradients."""
        numbers = 2 * self.batch * self.size * (self.queries + self.keys)
        return numbers * (2 if self.backward else 1) * self.bits // 8

    def flop(self, size: int) -> float:
        """FLOP of whole tiles, counted as the figures do, with heads of `size` numbers."""
        queries, keys = (-(-each // _TILE) * _TILE for each in (self.queries, self.keys))
        forward = 4.0 * self.batch * queries * keys * size
        return forward * (_BACKWARD if self.backward else 1.0)


class FusedKernel(Struct, frozen=True):
    """A published figure. `rates` in FLOP/s by (head size, causal, backward), by ascending `lengths`."""

    name: str
    case: str
    match: re.Pattern[str]
    numbers: str
    peak_flop_per_second: float
    rates: Mapping[tuple[int, bool, bool], tuple[tuple[int, float], ...]]
    source: str

    def seconds(self, work: Attention, causal: bool, peak_flop_per_second: float) -> float:
        """Predicted time of the attention in seconds, on a GPU with this peak. `causal`: the upper half is masked."""
        masked = causal and any(key[1] for key in self.rates)
        size = max(work.size, min(key[0] for key in self.rates))
        flop = work.flop(size) / (2 if masked else 1)
        known = [key for key in self.rates if key[1] == masked and key[2] == work.backward] or [
            key for key in self.rates if key[1] == masked
        ]
        nearest = min(known, key=lambda key: (abs(key[0] - size), key[0]))
        share = peak_flop_per_second / self.peak_flop_per_second
        return flop / (_at_length(self.rates[nearest], max(work.keys, _TILE)) * share)


def _at_length(points: Sequence[tuple[int, float]], length: int) -> float:
    """The rate at this length: its inverse is linear in the inverse length, and constant beyond the longest one."""
    if length >= points[-1][0] or len(points) == 1:
        return points[-1][1]
    above = next(at for at, (each, _) in enumerate(points) if each > length)
    (short, slower), (long, faster) = points[max(above - 1, 0)], points[max(above, 1)]
    slope = (1 / slower - 1 / faster) / (1 / short - 1 / long)
    return 1 / (1 / slower + slope * (1 / length - 1 / short))


@lru_cache(maxsize=1)
def _kernels() -> tuple[FusedKernel, ...]:
    return tuple(_kernel(entry) for entry in shipped_table(Path(__file__).with_name("attention.toml"))["kernel"])


def _kernel(entry: Mapping[str, Any]) -> FusedKernel:
    """The published figure of one entry in attention.toml."""
    rates = {}
    for rate in entry["rate"]:
        for name, backwards in (("both", (False, True)), ("forward", (False,)), ("backward", (True,))):
            for backward in backwards if name in rate else ():
                points = zip(entry["lengths"][-len(rate[name]) :], rate[name], strict=True)
                key = rate["size"], bool(rate.get("causal")), backward
                rates[key] = tuple((length, each * 1e12) for length, each in points)
    match = regex(str(entry["match"]), re.IGNORECASE)
    return FusedKernel(
        entry["name"], entry["case"], match, entry["numbers"], entry["peak"] * 1e12, rates, entry["source"]
    )


@lru_cache(maxsize=256)
def _figure(gpu: str, numbers: str, case: str) -> FusedKernel | None:
    """The figure for this GPU, else the A100's: the same kernels run on all GPUs with its matrix instructions."""
    of_case = [[each for each in _kernels() if (each.numbers, each.case) == (numbers, name)] for name in _INSTEAD[case]]
    own = next((each for kernels in of_case for each in kernels if each.match.search(gpu)), None)
    return own or next((each for kernels in of_case for each in kernels if each.match.search("A100")), None)


def fused_attention(work: Attention, peaks: Peaks, case: str, *, causal: bool) -> tuple[float, str] | None:
    """Seconds of the fused kernel in one of `savings.CASES`, and the source of the figure; None where no peak is known.

    Never less than its bytes take. `low` is the slowest kernel, `high` the fastest that was published for the GPU.
    """
    numbers, peak = "half", peaks.half_flop_per_second
    if work.is_wide:
        numbers, peak = "fp32", peaks.tf32_flop_per_second or peaks.fp32_flop_per_second
    figure = _figure(peaks.name, numbers, case)
    if figure is None or not peak:
        return None
    moved = work.moved_bytes / peaks.memory_bytes_per_second if peaks.memory_bytes_per_second else 0.0
    return max(figure.seconds(work, causal, peak), moved), figure.source

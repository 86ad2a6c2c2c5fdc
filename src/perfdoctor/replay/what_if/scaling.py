"""How long do collectives take among another number of ranks, and how much later does the last rank come?

Transfer takes latency and bandwidth (alpha-beta model; R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective
Communication Operations in MPICH, 2005; bytes a link carries as in nccl-tests, doc/PERFORMANCE.md):

```
ring    T = hops · α + volume · bytes / B      hops = 2(n − 1) of an all-reduce, n − 1 of the others
tree    the same with hops = 2·log2 n and log2 n
volume  2(n − 1)/n of an all-reduce, (n − 1)/n of gather, scatter and all-to-all, 1 of a broadcast
```

α and B are those that fit the recorded sizes best, each relative to its time. From one size alone latency cannot
be separated from bandwidth: then all is bandwidth, and at worst all is latency.

A step goes on when its last rank has come. Of n independent draws from recorded times x(1) ≤ … ≤ x(m) the largest is
expected to be Σ x(i) · ((i/m)^n − ((i − 1)/m)^n) (H. A. David, H. N. Nagaraja, Order Statistics, 3rd ed., chapter 3).
That never exceeds what was recorded: at worst times are taken to be normally distributed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.metrics.communication.collectives import bus_factor
from perfdoctor.model.columns import Floats

#: Kinds whose time the model has. A barrier is an all-reduce of nothing.
MODELLED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "barrier")
_TWICE = ("all_reduce", "barrier")
#: Beyond so many deviations a normal distribution adds nothing.
_DEVIATIONS = 9.0


def hops(kind: str, ranks: int, *, tree: bool) -> float:
    """The number of link latencies that one message waits for in sequence."""
    if ranks < 2:
        return 0.0
    return (2 if kind in _TWICE else 1) * (math.log2(ranks) if tree else ranks - 1)


class LinkRates(Struct, frozen=True):
    """Link rates fitted to collectives. `latency_ns`: of one hop; bandwidth is infinite if none shows."""

    latency_ns: float
    bytes_per_second: float
    tree: bool = False

    def latency_part_ns(self, kind: str, ranks: int) -> float:
        return hops(kind, ranks, tree=self.tree) * self.latency_ns

    def transfer_ns(self, kind: str, size_bytes: float, ranks: int) -> float:
        """Transfer time of a message in ns among so many ranks, once all have arrived."""
        carried = 0.0 if kind == "barrier" else bus_factor(kind, ranks) * size_bytes
        return self.latency_part_ns(kind, ranks) + carried / self.bytes_per_second * 1e9


class Message(Struct, frozen=True):
    """Collectives of one kind and size: how long one takes among the recorded ranks when all are there."""

    kind: str
    size_bytes: int
    transfer_ns: float


def fitted(messages: Sequence[Message], ranks: int, *, tree: bool) -> LinkRates:
    """Latency and bandwidth with the smallest sum of squares of relative errors, neither below zero."""
    took = np.array([each.transfer_ns for each in messages])
    waits = np.array([hops(each.kind, ranks, tree=tree) for each in messages]) / took
    carried = [0 if each.kind == "barrier" else bus_factor(each.kind, ranks) * each.size_bytes for each in messages]
    loads = np.array(carried) / took
    if len({each.size_bytes for each in messages}) > 1:
        (latency, per_byte), *_ = np.linalg.lstsq(np.stack((waits, loads), axis=1), np.ones(took.size), rcond=None)
        if latency >= 0 and per_byte > 0:
            return LinkRates(float(latency), 1e9 / float(per_byte), tree)
        if per_byte <= 0 or not loads.any():
            return LinkRates(_alone(waits), math.inf, tree)
    return LinkRates(0.0, 1e9 / _alone(loads), tree) if loads.any() else LinkRates(_alone(waits), math.inf, tree)


def _alone(column: Floats) -> float:
    """The best coefficient of this column by itself for a column of ones."""
    return float(column.sum() / (column @ column))


def grown(
    message: Message, messages: Sequence[Message], before: int, after: int, at_most: float = math.inf
) -> tuple[float, float, float]:
    """The factor by which the message's transfer time changes: the smallest, the likely and the largest.

    `at_most`: what the links among `after` ranks give at most, in bytes/s. NCCL sends small messages over trees and
    large ones over rings: likely a message that is mostly latency goes over a tree.
    """
    ring, tree = fitted(messages, before, tree=False), fitted(messages, before, tree=True)
    factors = []
    for links in (ring, tree):
        then = replace(links, bytes_per_second=min(links.bytes_per_second, at_most))
        was, will_be = (
            each.transfer_ns(message.kind, message.size_bytes, ranks)
            for each, ranks in ((links, before), (then, after))
        )
        factors.append(will_be / was if was else 1.0)
    of_latency = tree.latency_part_ns(message.kind, before)
    small = 2 * of_latency >= tree.transfer_ns(message.kind, message.size_bytes, before)
    likely = factors[1] if small else factors[0]
    if len({each.size_bytes for each in messages}) < 2:
        factors.append(hops(message.kind, after, tree=True) / hops(message.kind, before, tree=True))
    return min(factors), likely, max(factors)


def expected_last_ns(times_ns: npt.ArrayLike, draws: int) -> float:
    """The expected largest of so many independent draws from these times, in ns."""
    ordered = np.sort(np.asarray(times_ns, np.float64))
    below = np.arange(ordered.size + 1) / ordered.size
    return float(ordered @ np.diff(below**draws))


def expected_deviations(draws: int) -> float:
    """Expected maximum of so many draws from a normal distribution, in standard deviations above its mean.

    ∫ (1 − Φⁿ) over the positive numbers less ∫ Φⁿ over the negative ones.
    """
    at = np.linspace(0.0, _DEVIATIONS, 9_001)
    above = np.array([0.5 * math.erfc(x / math.sqrt(2)) for x in at.tolist()])
    step = float(at[1])
    integrand = -np.expm1(draws * np.log1p(-above)) - above**draws
    return float((integrand.sum() - (integrand[0] + integrand[-1]) / 2) * step)


def later_ns(times_ns: npt.ArrayLike, before: int, after: int) -> tuple[float, float, float]:
    """Ns by which the last of `after` ranks comes later than of `before`: the least, the likely, the most, in order."""
    times = np.asarray(times_ns, np.float64)
    if times.size < 2 or before == after:
        return 0.0, 0.0, 0.0
    likely = expected_last_ns(times, after) - expected_last_ns(times, before)
    normal = float(times.std(ddof=1)) * (expected_deviations(after) - expected_deviations(before))
    return (0.0, likely, max(likely, normal)) if after > before else (min(likely, normal), likely, 0.0)

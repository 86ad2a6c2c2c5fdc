"""What did the collectives of one kind cost, among groups of ranks that are for the same?"""

from __future__ import annotations

from msgspec import Struct


class CollectiveUse(Struct, frozen=True):
    """Collectives of one `kind` in groups of as many ranks that are for the same; sums a step, mean of the ranks.

    `parallelism`: what the groups are for (`kinds.PARALLELISM`), "" where that is unknown; `by_name`: their name says
    so. `ranks`: in each group. `groups`: how many there are; `group`: the name of the only one, else "". `bytes`: the
    sum of the messages. `waiting_ns`: until the last rank came, or what no transfer of so few bytes takes;
    `transfer_ns`: the rest. `bus_bytes_per_second`: all messages over all transfers, as in nccl-tests;
    `link_bytes_per_second`: what bounds it, by `link_source`. None where not known.
    """

    parallelism: str
    by_name: bool
    kind: str
    ranks: int | None
    groups: int
    group: str
    count: float
    bytes: float | None
    ns: float
    exposed_ns: float
    waiting_ns: float | None
    transfer_ns: float | None
    bus_bytes_per_second: float | None
    link_bytes_per_second: float | None
    link_source: str

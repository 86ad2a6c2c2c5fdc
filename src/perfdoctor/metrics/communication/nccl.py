"""Which transports did NCCL use, by its log, and which were there and not used?"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.readers.nccl.job import communicators
from perfdoctor.records.findings import Rows


class NcclLog(Struct, frozen=True):
    """The facts and ways of all logs together."""

    facts: Frame
    ways: Frame

    @classmethod
    def of(cls, timeline: Timeline) -> NcclLog:
        return cls(timeline["nccl_facts"], timeline["transports"])

    def rows(self, *names: str) -> Frame:
        return self.facts.take(self.facts.name.equals(*names))

    def has(self, *names: str) -> bool:
        return len(self.rows(*names)) > 0

    def values(self, name: str) -> list[str]:
        """The different values of a fact, the most frequent first."""
        rows, counts = self.rows(name), Counter[str]()
        for value, count in zip(rows.text("value"), rows["count"].tolist(), strict=True):
            counts[value] += count
        return [value for value, _ in counts.most_common()]

    def amounts(self, name: str) -> list[float]:
        """The numbers of a fact."""
        amounts = self.rows(name).floats("amount")
        return [float(amount) for amount in amounts[~np.isnan(amounts)]]

    def settings(self, *settings: str) -> list[str]:
        """Which of these (NAME=value) were set in the environment of any rank, in this order."""
        # NCCL ends the line of a number with a full stop, that of a word without.
        known = {value.removesuffix(".") for value in self.values("environment")}
        return [setting for setting in settings if setting in known]

    @property
    def machines(self) -> int:
        """How many machines the job's largest communicator spans; the number of hosts in the log, where unknown."""
        spanned = self.amounts("machines")
        hosts = {int(host) for frame in (self.facts, self.ways) for host in frame["host"].tolist() if host >= 0}
        return max(int(max(spanned, default=0)), len(hosts))

    def communicators(self) -> dict[int, int]:
        """How many communicators of each size the job built, by size, the largest first."""
        return communicators(self.facts)

    def pairs(self, prefix: str, without: str | None = None) -> int:
        """How many (ordered) pairs of members go this way, and not in the manner `without` (GDRDMA)."""

        def is_such(way: str) -> bool:
            return way.startswith(prefix) and (without is None or without not in way)

        chosen = self.ways.take(self.ways.name.where(is_such))
        columns = (chosen[column].tolist() for column in ("host", "process", "member", "peer"))
        return len(set(zip(*columns, strict=True)))

    def table(self) -> Rows:
        """Which ways are taken, and by how many pairs."""
        rows = tuple(Counter(self.ways.name).most_common(8))
        return Rows("Ways that NCCL took", ("way", "pairs"), ("text", "count"), rows)


class LoggedCollective(Struct, frozen=True):
    """Calls of one kind on communicators of one size. `calls`: of one rank, the mean; `bytes_a_rank`: of its messages.

    NaN bytes where the log has a type that is not known.
    """

    kind: str
    ranks: int
    calls: float
    bytes_a_rank: float
    largest_bytes: float


def logged_collectives(log: NcclLog) -> list[LoggedCollective]:
    """What was called by NCCL's log (NCCL_DEBUG_SUBSYS=COLL), of most bytes first.

    Each call of a rank is a line; a process with several communicators of a size stands for as many ranks.
    """
    calls, callers = log.rows("collective"), log.rows("callers")
    ranks = Counter[str]()
    for value, amount in zip(callers.text("value"), callers.floats("amount").tolist(), strict=True):
        ranks[value] += int(amount)
    found: dict[str, list[tuple[int, float]]] = {}
    for value, count, size in zip(
        calls.text("value"), calls["count"].tolist(), calls.floats("amount").tolist(), strict=True
    ):
        found.setdefault(value, []).append((count, size))
    rows = []
    for value, each in found.items():
        kind, _, size = value.rpartition(" of ")
        of = max(ranks[value], 1)
        total = sum(count * own for count, own in each)
        rows.append(
            LoggedCollective(kind, int(size), sum(n for n, _ in each) / of, total / of, max(own for _, own in each))
        )
    return sorted(rows, key=lambda row: -row.bytes_a_rank if row.bytes_a_rank == row.bytes_a_rank else 0.0)

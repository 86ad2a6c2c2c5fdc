"""Which transports did NCCL use, by its log, and which were there and not used?"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.readers.nccl.job import LoggedCollective, communicators, logged_collectives
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

    def machines_of(self, ranks: int) -> int:
        """How many machines communicators of so many ranks span; as many as the job, where that is not known."""
        rows = self.rows("machines")
        spanned = rows.floats("amount")[rows.text("value").equals(str(ranks))]
        return int(spanned.max()) if spanned.size else self.machines

    def rings(self) -> dict[int, float]:
        """Planned GB/s of rings by the number of their ranks; of several communicators of a size the most."""
        rows, found = self.rows("graph"), dict[int, float]()
        for value, speed in zip(rows.text("value"), rows.floats("amount").tolist(), strict=True):
            pattern, _, ranks = value.partition(" of ")
            if pattern.startswith("4 ") and ranks.isdecimal():
                found[int(ranks)] = max(speed, found.get(int(ranks), 0.0))
        return found

    def communicators(self) -> dict[int, int]:
        """How many communicators of each size the job built, by size, the largest first."""
        return communicators(self.facts)

    def collectives(self) -> list[LoggedCollective]:
        """What a rank called, of most bytes first."""
        return logged_collectives(self.facts)

    def pairs(self, prefix: str, without: str | None = None, *, but_sends: bool = False) -> int:
        """How many (ordered) pairs of members go this way, and not in the manner `without` (GDRDMA).

        `but_sends`: leaving out what the sending ends write.
        """

        def is_such(way: str) -> bool:
            return way.startswith(prefix) and (without is None or without not in way)

        chosen = self.ways.take(self.ways.name.where(is_such))
        if but_sends:
            chosen = chosen.take(~chosen.text("direction").equals("send"))
        columns = (chosen[column].tolist() for column in ("host", "process", "member", "peer"))
        return len(set(zip(*columns, strict=True)))

    def table(self) -> Rows:
        """Which ways are taken, and by how many pairs."""
        rows = tuple(Counter(self.ways.name).most_common(8))
        return Rows("Ways that NCCL took", ("way", "pairs"), ("text", "count"), rows)

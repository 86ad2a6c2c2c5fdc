"""Work of one kind between the steps of the whole run: the shape of findings about what comes every so many steps."""

from __future__ import annotations

from msgspec import Struct

from perfdoctor.metrics.units import percent
from perfdoctor.metrics.whole_run.partition import run_time
from perfdoctor.model.run import Run
from perfdoctor.records.findings import CodeLine, Evidence, Measure, Value
from perfdoctor.records.run_time import RunTime

#: What came once may not come again: a library is loaded, a cache is filled.
_SEVERAL = 2
#: A share that so many samples show is known to a few points.
_SURE_SAMPLES = 20


class Between(Struct, frozen=True):
    """One kind of work between steps. `kind`: a row of vocabulary/pauses.toml."""

    kind: str
    time: RunTime

    @property
    def total_ns(self) -> int:
        """All of it, in ns of the run."""
        return self.time.between_ns[self.kind]

    @property
    def share(self) -> float:
        """Its share of the training's time, from 0 to 1."""
        return self.time.share[self.kind]

    @property
    def every(self) -> int:
        """How many steps lie from one to the next; 0 where it comes unevenly."""
        return self.time.every_steps.get(self.kind, 0)

    @property
    def per_step_ns(self) -> int:
        """Its time spread over all steps, in ns."""
        return self.total_ns // max(self.time.steps, 1)

    @property
    def is_sure(self) -> bool:
        """Is it periodic, and do many samples show it?"""
        return bool(self.every) and self.time.samples[self.kind] >= _SURE_SAMPLES

    @property
    def lines(self) -> tuple[CodeLine, ...]:
        """The line in which the training thread is meanwhile, and the line that calls it."""
        found = (self.time.lines.get(self.kind), self.time.callers.get(self.kind))
        return tuple(line for line in found if line is not None)

    @property
    def situation(self) -> str:
        """`uneven` where it comes in no fixed number of steps; else ""."""
        return "" if self.every else "uneven"

    def between_values(self) -> dict[str, Value]:
        """Values of rules about it: its share, its time, how often it comes, and what one of it takes."""
        line = self.lines[0] if self.lines else None
        times = self.time.count[self.kind]
        return {
            "share_percent": percent(self.share),
            "total_s": self.total_ns / 1e9,
            "training_s": self.time.training_ns / 1e9,
            "every": self.every or round(self.time.steps / times),
            "times": times,
            "each_s": self.total_ns / times / 1e9,
            "usual_ms": self.time.usual_step_ns / 1e6,
            "spread_ms": self.per_step_ns / 1e6,
            "line": f"{line.file}:{line.line} {line.function}" if line else "",
        }

    def between_evidence(self, label: str) -> tuple[Evidence, ...]:
        """The evidence for these values.

        Args:
            label: What the time of the whole run is called.

        Returns:
            Its time, how often it came, and how many samples show it.
        """
        return (
            Measure(label, self.total_ns, "ns"),
            Measure("of the time from the first step to the last", self.share, "share"),
            Measure("times in the run, at least", self.time.count[self.kind], "count"),
            Measure("samples of the training thread that show it", self.time.samples[self.kind], "count"),
            Measure("a usual step without it", self.time.usual_step_ns, "ns"),
        )


def of_kind(run: Run, kind: str, least_share: float) -> Between | None:
    """One kind of work between steps.

    Args:
        run: The run.
        kind: A row of vocabulary/pauses.toml.
        least_share: The least share of the training's time that counts, from 0 to 1.

    Returns:
        What is known of it; None where the whole run was not noted, or it takes less.
    """
    time = run_time(run)
    if time is None or time.share.get(kind, 0.0) < least_share or time.count[kind] < _SEVERAL:
        return None
    return Between(kind, time)

"""What does a cure bring? The difference of two replays: of the step as it was, and of the step with the cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfdoctor.findings import Finding, Saving
from perfdoctor.metrics.loader import loader
from perfdoctor.metrics.run import Run
from perfdoctor.replay.graph import Graph
from perfdoctor.replay.levers import Edit, edit_of, pulled_ns, shares
from perfdoctor.replay.play import play
from perfdoctor.replay.ranks import graphs_of


@dataclass(frozen=True)
class Cure:
    """A lever, and how far it goes at least, likely and at most."""

    rule: str
    edit: Edit
    shares: tuple[float, float, float]


@dataclass(frozen=True)
class Stage:
    """A recorded run that can be played: its graphs, and the step that they give unchanged."""

    run: Run
    graphs: tuple[Graph, ...]
    base_ns: float

    @property
    def error(self) -> float:
        """By how much the replay of the unchanged step misses the recorded one, as a share of it."""
        recorded = sum(graph.period_ns / graph.units for graph in self.graphs) / len(self.graphs)
        return self.base_ns / recorded - 1

    def can_play(self, lever: str) -> bool:
        """Of collectives whose other ranks were not recorded nobody knows what their end waited for."""
        timeline = self.run.timeline
        return bool(lever) and (lever != "collectives" or len(timeline.ranks) >= max(timeline.world_size, 2))

    def cure(self, rule: str, lever: str, finding: Finding) -> Cure:
        saving = finding.saving_ns_per_step
        low, likely, high = shares((saving.low, saving.likely, saving.high), pulled_ns(lever, finding, self.run))
        return Cure(rule, edit_of(lever, finding), (low, likely, high))

    def played_ns(self, cures: Sequence[Cure], case: int = 1) -> float:
        """The step with these cures together. `case`: 0 at least, 1 likely, 2 at most."""
        graphs = self.graphs
        for cure in cures:
            graphs = tuple(cure.edit(graph, cure.shares[case]) for graph in graphs)
        return play(graphs).step_ns

    def step_ns(self, cures: Sequence[Cure]) -> tuple[int, int, int]:
        """The recorded step with these cures together: at best, likely, at worst; never longer than it was."""
        recorded = self.run.step_ns
        won = [max(self.base_ns - self.played_ns(cures, case), 0.0) for case in (0, 1, 2)]
        low, likely, high = (round(recorded - ns) for ns in won)
        return min(high, likely), likely, max(low, likely)

    def saving(self, cure: Cure, most_ns: int) -> Saving:
        """What one cure wins, in ns a step: not less than nothing, and not more than `most_ns`.

        A cure may also win what was not counted as its own: a host that is faster sends gradients sooner, and hides
        them better. That is not promised: it is seldom as simple.
        """
        won = [min(max(round(self.base_ns - self.played_ns([cure], case)), 0), most_ns) for case in (0, 1, 2)]
        low, likely, high = won
        return Saving(min(low, likely), likely, max(high, likely))


#: A replay that misses the unchanged step by more has not understood it.
_LARGEST_ERROR = 0.05


def stage(run: Run) -> Stage | None:
    """None where the run has no steps or no device, or where its replay is not true to it."""
    if not run.per_step:
        return None
    graphs = graphs_of(run, paced=loader(run) != "single-process")
    if not graphs:
        return None
    set_up = Stage(run, graphs, play(graphs).step_ns)
    return set_up if abs(set_up.error) <= _LARGEST_ERROR else None

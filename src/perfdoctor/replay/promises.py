"""What does a cure bring? The difference of two replays: of the step as it was, and of the step with the cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfdoctor.findings import Finding, Saving
from perfdoctor.metrics.loader import loader
from perfdoctor.metrics.run import Run
from perfdoctor.replay.graph import Graph
from perfdoctor.replay.levers import WORK, Edit, edit_of, pulled_ns, shares
from perfdoctor.replay.play import play
from perfdoctor.replay.ranks import graphs_of


@dataclass(frozen=True)
class Cure:
    """A lever, how far it goes at least, likely and at most, and what it may win then, in ns a step.

    A cure may also win what was not counted as its own: a host that is faster sends gradients sooner, and hides them
    better. That is not promised: it is seldom as simple. `cause` is the rule whose cure takes this finding along: such
    findings count the same time.
    """

    rule: str
    cause: str
    edit: Edit
    shares: tuple[float, float, float]
    most_ns: tuple[int, int, int]

    def going(self, share: float, most_ns: int) -> Cure:
        """The same cure, going just so far."""
        return replace(self, shares=(share, share, share), most_ns=(most_ns, most_ns, most_ns))


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
        # Shorter work wins no more than it is shorter; of the host's time nobody knows how much hides other waits.
        most_ns = (saving.low, saving.likely, saving.high) if lever in WORK else (saving.high,) * 3
        return Cure(rule, rule, edit_of(lever, finding), (low, likely, high), most_ns)

    def played_ns(self, cures: Sequence[Cure], case: int = 1) -> float:
        """The step with these cures together. `case`: 0 at least, 1 likely, 2 at most."""
        graphs = self.graphs
        for cure in cures:
            graphs = tuple(cure.edit(graph, cure.shares[case]) for graph in graphs)
        return play(graphs).step_ns

    def step_ns(self, cures: Sequence[Cure], case: int = 1) -> int:
        """The recorded step with these cures together: never longer than it was, nor shorter than they may make it."""
        won = round(self.base_ns - self.played_ns(cures, case))
        most_ns: dict[str, int] = {}
        for cure in cures:
            most_ns[cure.cause] = max(most_ns.get(cure.cause, 0), cure.most_ns[case])
        return self.run.step_ns - min(max(won, 0), sum(most_ns.values()))

    def saving(self, cure: Cure, most_ns: int) -> Saving:
        """What one cure wins, in ns a step: not less than nothing, and not more than `most_ns`."""
        played = {share: self.played_ns([cure], case) for case, share in enumerate(cure.shares)}
        low, likely, high = (min(max(round(self.base_ns - played[share]), 0), most_ns) for share in cure.shares)
        return Saving(min(low, likely), likely, max(high, likely))


#: A replay that misses the unchanged step by more has not understood it.
_LARGEST_ERROR = 0.05


def stage(run: Run) -> Stage | None:
    """None where the run cannot be played again; `unplayable` says why."""
    set_up = _set_up(run)
    return None if isinstance(set_up, str) else set_up


def unplayable(run: Run) -> str:
    """Why the run cannot be played again, as half a sentence; "" where it can."""
    set_up = _set_up(run)
    return set_up if isinstance(set_up, str) else ""


def _set_up(run: Run) -> Stage | str:
    """The stage, or why there is none: no steps or no device, or a replay that is not true to the recording."""
    if not run.per_step:
        return "no steps were found in it"
    if any(place.device is None for place in run.places):
        return "it holds no work of a GPU"
    graphs = graphs_of(run, paced=loader(run) != "single-process")
    if not graphs:
        return "its steps hold no work of a GPU that could be ordered"
    ready = Stage(run, graphs, play(graphs).step_ns)
    if abs(ready.error) > _LARGEST_ERROR:
        return f"the replay of its unchanged steps is off by {100 * abs(ready.error):.0f} %"
    return ready

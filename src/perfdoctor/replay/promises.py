"""What does a cure bring? The difference of two replays: of the step as it was, and of the step with the cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfdoctor.findings import Finding, Saving
from perfdoctor.metrics.loader import loader
from perfdoctor.metrics.run import Run
from perfdoctor.replay.graph import Graph
from perfdoctor.replay.levers import Edit, edit_of, most_ns, pulled_ns, shares
from perfdoctor.replay.play import play
from perfdoctor.replay.ranks import graphs_of
from perfdoctor.replay.spread import spread


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

    def can_play(self, lever: str, finding: Finding) -> bool:
        """Of collectives whose other ranks were not recorded nobody knows what their end waited for.

        A rank that is late can come in time where it is one, and where its lateness reaches the others.
        """
        timeline = self.run.timeline
        if lever == "lateness":
            return bool(finding.work) and all(graph.meetings.size for graph in self.graphs)
        return bool(lever) and (lever != "collectives" or len(timeline.ranks) >= max(timeline.world_size, 2))

    def cure(self, rule: str, lever: str, finding: Finding) -> Cure:
        saving = finding.saving_ns_per_step
        low, likely, high = shares((saving.low, saving.likely, saving.high), pulled_ns(lever, finding, self.run))
        most = most_ns(lever, finding, self.run, self.graphs)
        return Cure(rule, rule, edit_of(lever, finding, self.run), (low, likely, high), most)

    def played_ns(self, cures: Sequence[Cure], case: int = 1) -> float:
        """The step with these cures together. `case`: 0 at least, 1 likely, 2 at most."""
        return play(self._with(cures, case)).step_ns

    def spread(self, cures: Sequence[Cure]) -> tuple[float, float]:
        """How far single steps are from their mean with these cures, as factors (see `spread`)."""
        graphs = self._with(cures, 1)
        return spread(graphs, play(graphs))

    def _with(self, cures: Sequence[Cure], case: int) -> tuple[Graph, ...]:
        graphs = self.graphs
        for cure in cures:
            graphs = tuple(cure.edit(graph, cure.shares[case]) for graph in graphs)
        return graphs

    def step_ns(self, cures: Sequence[Cure], case: int = 1) -> int:
        """The recorded step with these cures together: never longer than it was, nor shorter than they may make it."""
        won = round(self.base_ns - self.played_ns(cures, case))
        most_ns: dict[str, int] = {}
        for cure in cures:
            most_ns[cure.cause] = max(most_ns.get(cure.cause, 0), cure.most_ns[case])
        return self.run.step_ns - min(max(won, 0), sum(most_ns.values()))

    def saving(self, cure: Cure) -> Saving:
        """What one cure wins, in ns a step: not less than nothing, and not more than it may."""
        played = {share: self.played_ns([cure], case) for case, share in enumerate(cure.shares)}
        won = [max(round(self.base_ns - played[share]), 0) for share in cure.shares]
        low, likely, high = (min(ns, most) for ns, most in zip(won, cure.most_ns, strict=True))
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

"""What does a fix bring? The difference of two replays: of the step as it was, and of the step with the fix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.host.feeding import loader
from perfdoctor.metrics.host.pace import FEWEST_STEPS
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving
from perfdoctor.replay.edits.actions import WHOLLY, Edit, affected_ns, edit_of, most_ns, own_ns, shares
from perfdoctor.replay.graph.graph import Graph
from perfdoctor.replay.graph.order import SimulationOrder, order_of
from perfdoctor.replay.graph.ranks import graphs_of
from perfdoctor.replay.graph.simulate import Simulation, mean_of, simulate
from perfdoctor.replay.what_if.spread import range_of_later
from perfdoctor.vocabulary.parts import IDLE_CAUSES

#: Edits in the order in which they are applied, each with the share it takes away.
_Changes = tuple[tuple[Edit, float], ...]


class SimulatedFix(Struct, frozen=True):
    """A fix as the replay applies it: its action, and how far that goes at least, likely and at most.

    `most_ns`: the most that it may save in each case, in ns a step. What is not counted as its own is not predicted: a
    faster host also sends gradients sooner, and hides them better. `cause`: the rule whose fix also fixes this finding,
    as both count the same time. `is_whole`: it is made in a share of the steps (`WHOLLY`). `of_step`: a replay of all
    ranks by themselves gave what it saves; beside other fixes that is the same share of what they leave of the step,
    since they shorten the work of late and of waiting ranks alike.
    """

    rule: str
    cause: str
    edit: Edit
    shares: tuple[float, float, float]
    most_ns: tuple[int, int, int]
    is_whole: bool = False
    of_step: bool = False

    def going(self, share: float, most_ns: int) -> SimulatedFix:
        """This fix, limited to one share and one saving in all cases. `most_ns`: the most it may save, in ns a step."""
        return replace(self, shares=(share, share, share), most_ns=(most_ns, most_ns, most_ns))


class RunReplay(Struct, frozen=True):
    """A recorded run that can be replayed: its graphs, in which order to simulate them, and what they give unchanged.

    Results are kept: nothing is simulated twice.
    """

    run: Run
    graphs: tuple[Graph, ...]
    orders: tuple[SimulationOrder, ...]
    unchanged: Simulation
    _fixes: dict[tuple[str, str, Finding], SimulatedFix] = field(default_factory=dict)
    _steps_ns: dict[_Changes, float] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, graphs: tuple[Graph, ...]) -> RunReplay:
        orders = tuple(order_of(graph) for graph in graphs)
        return cls(run, graphs, orders, simulate(graphs, orders))

    @property
    def base_ns(self) -> float:
        """The recorded step in ns, simulated without a change."""
        return self.unchanged.step_ns

    @property
    def error(self) -> float:
        """By how much the replay of the unchanged step misses the recorded one, as a share of it."""
        return self.base_ns / self.recorded_ns - 1

    @property
    def recorded_ns(self) -> float:
        """The recorded step of the graphs, mean over all ranks that they stand for."""
        if any(graph.stands_for > 1 for graph in self.graphs):
            return mean_of([graph.step_ns for graph in self.graphs], self.graphs)
        return sum(graph.step_ns for graph in self.graphs) / len(self.graphs)

    @property
    def is_of_last_steps(self) -> bool:
        """Are fewer steps simulated than the window has?"""
        return any(graph.units < graph.place.steps.used for graph in self.graphs)

    def can_replay(self, action: str, finding: Finding) -> bool:
        """Can this action of a finding be simulated on this run?"""
        return not self.why_not(action, finding)

    def gives_saving(self, action: str, finding: Finding) -> bool:
        """Is it this replay that says what the action saves, and not the one of all ranks together?"""
        return not finding.by_all_ranks and self.can_replay(action, finding)

    def why_not(self, action: str, finding: Finding) -> str:
        """Why this action of a finding cannot be simulated on this run, as half a sentence; "" where it can.

        Collectives need their other ranks, for which their end waited. Lateness needs a late rank, collectives that
        carry it to the others, and as many steps as show a pace. On a run without a GPU, actions on device work need a
        finding that names the time of the training thread. What a replay of all ranks gave is known already.
        """
        if finding.by_all_ranks:
            return ""
        if not action:
            return "its rule does not say which work gets shorter"
        if host_places(self.run) and action not in (*IDLE_CAUSES, "collectives", "lateness"):
            return "" if finding.thread_time else "it does not say which time of the training thread gets shorter"
        if action == "lateness":
            return self._why_not_in_time(finding)
        if action == "collectives" and (why := self._why_no_shorter_collectives()):
            return why
        return self._why_not_of_all_steps(action, finding)

    def _why_not_in_time(self, finding: Finding) -> str:
        if not finding.work:
            return "no single rank is late in it"
        if not all(graph.collectives.size for graph in self.graphs):
            return "no collectives carry a late rank's lateness to the others"
        enough = all(graph.units >= min(FEWEST_STEPS, graph.place.steps.used) for graph in self.graphs)
        return "" if enough else "too few steps can be replayed, and a rank is later in some than in others"

    def _why_no_shorter_collectives(self) -> str:
        read, ranks = len(self.run.timeline.ranks), max(self.run.timeline.world_size, len(self.run.ranks))
        if read >= max(ranks, 2):
            return ""
        if ranks < 2:
            return "collectives wait for other ranks, and none of them was recorded"
        return f"collectives wait for all {ranks:,} ranks, and only {read:,} of them can be replayed"

    def _why_not_of_all_steps(self, action: str, finding: Finding) -> str:
        """What comes in some steps alone is known from all of them, and only the last ones may be simulated."""
        if not self.is_of_last_steps:
            return ""
        last_ns, all_ns = np.mean([own_ns(action, finding, graph) for graph in self.graphs], axis=0)
        if abs(last_ns - all_ns) <= max(_ALIKE * all_ns, _SAME * self.run.step_ns):
            return ""
        least = min(self.graphs, key=lambda graph: graph.units / graph.place.steps.used)
        steps = f"{least.units:,} of {least.place.steps.used:,} steps"
        return f"only the last {steps} can be replayed, and they have another share of it"

    def fix(self, rule: str, action: str, finding: Finding) -> SimulatedFix:
        """The fix of a finding, as the replay applies it."""
        key = (rule, action, finding)
        if key not in self._fixes and finding.by_all_ranks:
            saving = finding.saving_ns_per_step
            self._fixes[key] = SimulatedFix(
                rule, rule, _unchanged, (0.0, 0.0, 0.0), (saving.low, saving.likely, saving.high), of_step=True
            )
        if key not in self._fixes:
            parts = shares(finding.saving_ns_per_step, affected_ns(action, finding, self.run))
            most, edit = most_ns(action, finding, self.run, self.graphs), edit_of(action, finding, self.run)
            self._fixes[key] = SimulatedFix(rule, rule, edit, parts, most, action in WHOLLY)
        return self._fixes[key]

    def simulated_ns(self, fixes: Sequence[SimulatedFix], case: int = 1) -> float:
        """The step with these fixes together. `case`: 0 at least, 1 likely, 2 at most."""
        for number, fix in enumerate(fixes):
            share, before, behind = fix.shares[case], fixes[:number], fixes[number + 1 :]
            if fix.is_whole and 0 < share < 1:  # the mean of the steps with it and of those without
                wholly = fix.going(1.0, fix.most_ns[case])
                with_it = self.simulated_ns([*before, wholly, *behind], case)
                return share * with_it + (1 - share) * self.simulated_ns([*before, *behind], case)
        changes = tuple((fix.edit, fix.shares[case]) for fix in fixes)
        if not changes:
            return self.base_ns
        if changes not in self._steps_ns:
            self._steps_ns[changes] = simulate(self._with(changes), self.orders).step_ns
        return self._steps_ns[changes]

    def spread(self, fixes: Sequence[SimulatedFix]) -> tuple[float, float]:
        """The shortest and longest step with these fixes, as factors of their mean (see `what_if/spread.py`)."""
        graphs = self._with([(fix.edit, fix.shares[1]) for fix in fixes])
        return range_of_later(graphs, simulate(graphs, self.orders))

    def _with(self, changes: Sequence[tuple[Edit, float]]) -> tuple[Graph, ...]:
        graphs = self.graphs
        for edit, share in changes:
            graphs = tuple(edit(graph, share) for graph in graphs)
        return graphs

    def step_ns(self, fixes: Sequence[SimulatedFix], case: int = 1) -> int:
        """The recorded step with these fixes together: never longer than it was, nor shorter than they may make it."""
        most_ns: dict[str, int] = {}
        of_step: dict[str, int] = {}
        for fix in fixes:
            of = of_step if fix.of_step else most_ns
            of[fix.cause] = max(of.get(fix.cause, 0), fix.most_ns[case])
        won = round(self.base_ns - self.simulated_ns([fix for fix in fixes if not fix.of_step], case))
        left_ns = float(self.run.step_ns - min(max(won, 0), sum(most_ns.values())))
        for cause, ns in of_step.items():  # a cause and its symptom count the same time
            left_ns *= 1 - max(ns - most_ns.get(cause, 0), 0) / self.run.step_ns
        return round(left_ns)

    def saving(self, fix: SimulatedFix) -> Saving:
        """The saving of one fix in ns a step: at least 0, and at most what it may save."""
        won = [max(round(self.base_ns - self.simulated_ns([fix], case)), 0) for case in range(3)]
        low, likely, high = (min(ns, most) for ns, most in zip(won, fix.most_ns, strict=True))
        return Saving(min(low, likely), likely, max(high, likely))

    def longer_ns(self, fix: SimulatedFix, case: int) -> int:
        """By how much the simulated step is longer with this fix than without, in ns a step; 0 if it is not."""
        return max(round(self.simulated_ns([fix], case) - self.base_ns), 0)


def _unchanged(graph: Graph, _share: float) -> Graph:
    return graph


#: A replay that misses the unchanged step by more does not model it.
LARGEST_ERROR = 0.05
#: The last steps stand for all where what a fix makes shorter differs by less, as a share of it, or of the step.
_ALIKE, _SAME = 0.2, 0.01


def replay_of(run: Run) -> RunReplay | None:
    """The replay of the run; None if it cannot be replayed (`why_not_replayable` says why)."""
    ready = _ready(run)
    return ready if isinstance(ready, RunReplay) else None


def why_not_replayable(run: Run) -> str:
    """Why the run cannot be replayed, as half a sentence; "" where it can."""
    ready = _ready(run)
    return "" if isinstance(ready, RunReplay) else ready


@once_per_run
def _ready(run: Run) -> RunReplay | str:
    """The replay, or why there is none: no steps, no work in them, or a replay that is not true to the recording."""
    if not run.per_step:
        return "no steps were found in it"
    if run.selection.range_name:
        return "only a range of it is analysed, and what follows it would move as well"
    graphs = graphs_of(run, paced=loader(run) != "single-process")
    if not graphs:
        return "its steps hold no work that could be ordered"
    ready = RunReplay.of(run, graphs)
    if abs(ready.error) > LARGEST_ERROR:
        return f"the replay of its unchanged steps is off by {100 * abs(ready.error):.0f} %"
    return ready

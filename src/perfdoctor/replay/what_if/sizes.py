"""How long is a step when the run has another size, and some findings may be fixed as well?

All steps of the window are simulated, not only the last ones: a size may change every one of them. Fixes never save
more than their findings count, times the batch factors asked for before them; sizes have no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.host.feeding import loader
from perfdoctor.model.run import Run
from perfdoctor.records.predictions import PredictedStep, Prediction, Scaling
from perfdoctor.records.savings import Range
from perfdoctor.replay.edits.batch_size import with_batch
from perfdoctor.replay.edits.other_ranks import askable, recorded_ranks, with_ranks
from perfdoctor.replay.edits.synthetic_data import without_loading
from perfdoctor.replay.graph.graph import Graph
from perfdoctor.replay.graph.ranks import graphs_of
from perfdoctor.replay.graph.simulate import Simulation, simulate
from perfdoctor.replay.what_if.run_replay import LARGEST_ERROR, RunReplay, SimulatedFix, replay_of
from perfdoctor.replay.what_if.spread import range_of_later

#: Of all ranks together; simulating as much takes some seconds.
_MOST_WORK = 200_000

#: From the graphs of all ranks and a case (0 the worst, 2 the best) to changed graphs, and ns to add to the step.
Apply = Callable[[Sequence[Graph], int], tuple[tuple[Graph, ...], float]]


class SizeChange(Struct, frozen=True):
    """A change of size, or a fix. `samples`: by which factor a step has more samples; `batch`: a rank's batch."""

    name: str
    choice: str
    apply: Apply
    fix: SimulatedFix | None = None
    samples: float = 1.0
    batch: float = 1.0
    ranks: int = 0


def size_change(name: str, choice: str, amount: float, run: Run, network_bytes_per_second: float = 0.0) -> SizeChange:
    """The change to a size that the run can be asked for (see `why_not`). `amount`: the factor, or number of ranks."""
    if name == "synthetic-data":
        return SizeChange(name, "", _each(without_loading))
    if name == "batch":
        larger = _each(lambda graph, case: with_batch(graph, amount, case))
        return SizeChange(name, choice, larger, samples=amount, batch=amount)

    def among(graphs: Sequence[Graph], case: int) -> tuple[tuple[Graph, ...], float]:
        return with_ranks(graphs, run, ranks, case, network_bytes_per_second)

    ranks, before = int(amount), recorded_ranks(run)
    return SizeChange(name, choice, among, samples=ranks / before if before else 1.0, ranks=ranks)


def why_not(name: str, amount: float, run: Run, network_bytes_per_second: float = 0.0) -> str:
    """Why this run cannot answer such a question, as half a sentence; "" where it can."""
    known = askable(run)
    if name != "ranks" or known.holds(int(amount), network_known=network_bytes_per_second > 0):
        return ""
    return known.why_not if amount > 1 else "it holds no communication that could be removed"


def fix_change(fix: SimulatedFix, choice: str) -> SizeChange:
    """The change that a rule's fix makes, as far as it goes in each case."""
    return SizeChange(fix.rule, choice, _each(lambda graph, case: fix.edit(graph, fix.shares[case])), fix)


def _each(edit: Callable[[Graph, int], Graph]) -> Apply:
    return lambda graphs, case: (tuple(edit(graph, case) for graph in graphs), 0.0)


def replay_of_all_steps(run: Run) -> RunReplay:
    """All steps of the window, ready to be simulated. Raises PerfdoctorError where no replay reproduces them."""
    if host_places(run):
        raise PerfdoctorError(
            "--what-if: a recording without a GPU shows nothing about another size",
            do="Name rules only, or record the training on a GPU.",
        )
    graphs = graphs_of(run, paced=loader(run) != "single-process", most_work=_MOST_WORK)
    ready = RunReplay.of(run, graphs)
    if abs(ready.error) > LARGEST_ERROR:
        raise PerfdoctorError(
            f"--what-if: the replay of all its unchanged steps is off by {100 * abs(ready.error):.0f} %",
            do="Name rules only: their fixes are simulated on the last steps.",
        )
    return ready


def simulated(changes: Sequence[SizeChange], run: Run) -> Prediction:
    """The step with all of these changes, and after each of them."""
    replay = replay_of_all_steps(run)
    ways = [_way(replay, changes, case) for case in range(3)]
    way_ns = [way.steps_ns for way in ways]
    shorter, longer = range_of_later(ways[1].graphs, ways[1].simulation)
    likely = way_ns[1]
    # A case is the best or the worst only all in all: one that begins better may end where the likely one does.
    best, worst = (round(pick(ns[-1] for ns in way_ns) * by) for pick, by in ((min, shorter), (max, longer)))
    if not any(change.samples > 1 for change in changes):  # nothing asked for makes a step longer
        worst = min(worst, max(run.step_ns, likely[-1]))
    steps, samples = [], 1.0
    for change, ns in zip(changes, likely[1:], strict=True):
        samples *= change.samples
        steps.append(PredictedStep(change.name, ns, change.choice, samples))
    step_ns = Range(best, likely[-1], worst)
    return Prediction(
        fixed=tuple(change.name for change in changes),
        step_ns=step_ns,
        speedup=Range(*(run.step_ns * samples / max(ns, 1) for ns in reversed([*step_ns]))),
        recorded_ns=run.step_ns,
        steps=tuple(steps),
        replay_error=replay.error,
        asked=True,
        samples=samples,
        scaling=_scaling(changes, way_ns, recorded_ranks(run)),
    )


class _Way(Struct, frozen=True):
    """The step as recorded, and after each change, in ns; and how the graphs with all changes were simulated."""

    steps_ns: list[int]
    graphs: tuple[Graph, ...]
    simulation: Simulation


def _way(replay: RunReplay, changes: Sequence[SizeChange], case: int) -> _Way:
    graphs, simulated_ns, later_ns, sized_ns, batch = replay.graphs, replay.base_ns, 0.0, 0.0, 1.0
    most_ns: dict[str, float] = {}
    steps_ns, simulation = [replay.run.step_ns], replay.unchanged
    for change in changes:
        graphs, later = change.apply(graphs, case)
        before_ns, later_ns = simulated_ns, later_ns + later
        simulation = simulate(graphs, replay.orders)
        simulated_ns = simulation.step_ns + later_ns
        if change.fix is None:
            sized_ns, batch = sized_ns + simulated_ns - before_ns, batch * change.batch
        else:
            own_ns = batch * change.fix.most_ns[case]
            most_ns[change.fix.cause] = max(most_ns.get(change.fix.cause, 0.0), own_ns)
        won_ns = replay.base_ns + sized_ns - simulated_ns
        steps_ns.append(max(replay.run.step_ns + round(sized_ns - min(max(won_ns, 0.0), sum(most_ns.values()))), 1))
    return _Way(steps_ns, graphs, simulation)


def _scaling(changes: Sequence[SizeChange], way_ns: Sequence[Sequence[int]], before: int) -> Scaling | None:
    """The efficiency: the step among the fewer ranks over that among more of them, each rank with the same work."""
    place = next((number for number, change in enumerate(changes) if change.ranks), None)
    if place is None:
        return None
    ranks = changes[place].ranks
    ratios = [ns[place] / max(ns[place + 1], 1) for ns in way_ns]
    efficiency = ratios if ranks >= before else [1 / ratio for ratio in ratios]
    return Scaling(before or None, ranks, Range(min(efficiency), efficiency[1], max(efficiency)))


def throughput(run: Run, batch_factor: float) -> tuple[float, float, float] | None:
    """How many times as many samples a second with a batch so many times as large: at least, likely, at most.

    Of a step the fixed cost is spread over more samples (`edits.batch_size`). None where the run cannot be replayed.
    """
    if replay_of(run) is None or host_places(run):
        return None
    try:
        low, likely, high = simulated([size_change("batch", "", batch_factor, run)], run).speedup
    except PerfdoctorError:  # its last steps can be replayed, and all of them together cannot
        return None
    return low, likely, high

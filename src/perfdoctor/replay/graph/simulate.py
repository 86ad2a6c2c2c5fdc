"""How long does a step take when the graph is simulated?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.model.columns import Floats, Ints
from perfdoctor.replay.graph.graph import NOTHING, WORK, Graph
from perfdoctor.replay.graph.order import Positions, SimulationOrder, Streak, order_of, positions

#: After so many repetitions the unchanged graph and most changed ones have their steady pace.
REPETITIONS = 3
#: A host that is far ahead holds a slower pace of its own back until its lead is used up. So many repetitions of what
#: each node gains or loses are skipped at once to see that, and so often.
_SKIPPED, _SKIPS = 1_000, 3
#: No node may fall behind the work by more than this share of the step.
_STEADY = 1e-4
#: So many nodes are asked before all are.
_SOME = 16
#: Before everything; far enough from the end of the numbers that some can be added.
_NEVER = -(1 << 62)


class Simulation(Struct, frozen=True):
    """`step_ns`: the steady step, mean over all ranks that the graphs stand for. `end_ns`: per graph, each node's end.

    Ends are those of the last repetition, counted from a moment shortly before the first, the same for all ranks.
    """

    step_ns: float
    end_ns: tuple[Floats, ...]


def simulate(graphs: Sequence[Graph], orders: Sequence[SimulationOrder] = ()) -> Simulation:
    """Simulate all ranks together, several times in a row; the step is the last repetition, to the end of its work.

    Where the pace is not steady yet, repetitions are skipped, in which each node goes on at its own pace (`skip`).
    `orders`: those of the unchanged graphs, where they are known.
    """
    begin_ns = min(int(graph.recorded_end_ns.min()) - graph.period_ns - graph.clock_ns for graph in graphs)
    known = [own if own.fits(graph) else order_of(graph) for own, graph in zip(orders, graphs, strict=False)]
    known += [order_of(graph) for graph in graphs[len(known) :]]
    ranks = [_SimulatedRank(graph, own, begin_ns) for graph, own in zip(graphs, known, strict=True)]
    for left in reversed(range(REPETITIONS)):
        _together(ranks)
        by = ranks[0].first_gain
        # All nodes of all ranks equally later than in the repetition before: then each further one is too, exactly,
        # as nodes end at a maximum of sums of other ends and what stays as it is.
        if left and all(rank.first_gain == by and rank.gains_alike() for rank in ranks):
            for rank in ranks:
                rank.shift(left)
            break
    for _ in range(_SKIPS):
        if all(rank.is_steady() for rank in ranks):
            break
        for rank in ranks:
            rank.skip(_SKIPPED)
        _together(ranks)
        _together(ranks)
    return Simulation(mean_of([rank.took / rank.units for rank in ranks], graphs), tuple(rank.ends for rank in ranks))


def mean_of(values: Sequence[float], graphs: Sequence[Graph]) -> float:
    """The mean over all ranks that the graphs stand for. `values`: one number a graph."""
    weights = [graph.stands_for for graph in graphs]
    return float(np.average(values, weights=weights) if max(weights) > 1 else np.mean(values))


def _together(ranks: Sequence[_SimulatedRank]) -> None:
    """Simulate one repetition. A collective ends on all ranks once the last has come and the transfer is done."""
    for rank in ranks:
        rank.begin()
    for number in range(ranks[0].collectives.size):
        arrived = max(rank.arrives(number) for rank in ranks)
        over = arrived + min(int(rank.transfer_ns[number]) for rank in ranks)
        for rank in ranks:
            rank.times[rank.size + rank.collectives[number]] = over
    for rank in ranks:
        rank.until(rank.collectives.size)


class _SimulatedRank:
    """One graph being simulated.

    `times` are the ends of all nodes in the repetition before, then those of this one, both in the order of simulation,
    then never. Along a streak a node ends at max(end of the one before + lag, end of what else it waits for) +
    duration. Less the running sum of lags and durations that is a running maximum, so numpy computes a whole streak at
    once.
    """

    def __init__(self, graph: Graph, order: SimulationOrder, begin_ns: int) -> None:
        self.order, self.size, self.units = order, len(graph), graph.units
        nodes, begins = order.nodes, order.begins
        ahead = (graph.extra_ns + graph.duration_ns)[nodes]
        self.sums = graph.lag_ns[0][nodes]
        self.sums[begins] = 0
        self.sums += ahead
        np.cumsum(self.sums, out=self.sums)
        ahead -= self.sums
        self.first, self.first_lag = self._positions(graph, 0), self._lags(graph, 0, ahead)
        self.second, self.second_lag = self._positions(graph, 1), self._lags(graph, 1, ahead)
        self.third, self.third_lag = self.second, self.second_lag
        if (graph.depends[2] != NOTHING).any():
            self.third, self.third_lag = self._positions(graph, 2), self._lags(graph, 2, ahead)
        del ahead
        self.times = np.full(2 * self.size + 1, _NEVER)
        self.times[self.size : -1] = graph.recorded_end_ns[nodes]
        self.times[self.size : -1] -= graph.period_ns + graph.clock_ns + begin_ns
        #: The same memory, for access to single numbers.
        columns = (
            self.times, self.first, self.first_lag, self.second, self.second_lag, self.third, self.third_lag, self.sums
        )  # fmt: skip
        self.single = [each.data for each in columns]
        self.works = np.flatnonzero(graph.kind[nodes] == WORK)
        self.collectives = order.at[graph.collectives]
        self.transfer_ns = graph.transfer_ns
        #: The ranks arrive at a collective before it is sent: its duration is not part of that.
        self.early = self.sums[self.collectives] - graph.duration_ns[graph.collectives]

    def _positions(self, graph: Graph, which: int) -> Positions:
        """Positions in `times` of what each node depends on, in the order of simulation."""
        if graph.depends[which] is self.order.depends[which]:
            return self.order.on[which]
        return positions(graph.depends[which], graph.before[which], self.order.nodes, self.order.at)

    def _lags(self, graph: Graph, which: int, ahead: Ints) -> Ints:
        lags: Ints = graph.lag_ns[which][self.order.nodes]
        lags += ahead
        return lags

    def until(self, collective: int) -> None:
        """Simulate what comes before a collective, or after the last. Most of the runtime is spent here."""
        done, end, streaks = self.order.until[collective]
        for streak in streaks:
            self._one_by_one(done, streak.begin)
            self._at_once(streak)
            done = streak.end
        self._one_by_one(done, end)

    def _one_by_one(self, begin: int, end: int) -> None:
        if begin == end:
            return
        times, *columns = self.single
        at = self.size + begin
        for first, first_lag, second, second_lag, third, third_lag, behind in zip(
            *(column[begin:end] for column in columns), strict=True
        ):
            latest = times[first] + first_lag
            other = times[second] + second_lag
            if other > latest:  # noqa: PLR1730 max() takes three times as long
                latest = other
            other = times[third] + third_lag
            if other > latest:  # noqa: PLR1730
                latest = other
            times[at] = latest + behind
            at += 1

    def _at_once(self, streak: Streak) -> None:
        begin, end, second, third = streak
        times, sums, size = self.times, self.sums, self.size
        behind = times[self.first[begin]] + self.first_lag[begin]
        if not second and not third:
            np.add(sums[begin:end], behind, out=times[size + begin : size + end])
            return
        latest = times[self.second[begin:end]] + self.second_lag[begin:end]
        if third:
            np.maximum(latest, times[self.third[begin:end]] + self.third_lag[begin:end], out=latest)
        latest[0] = max(behind, latest[0])
        np.maximum.accumulate(latest, out=latest)
        np.add(latest, sums[begin:end], out=times[size + begin : size + end])

    def arrives(self, collective: int) -> int:
        """Simulate up to a collective, without it; returns when it can start."""
        self.until(collective)
        node, start = self.collectives[collective], _NEVER
        of_one = ((self.first, self.first_lag), (self.second, self.second_lag), (self.third, self.third_lag))
        for on, lag in of_one:
            start = max(start, self.times[on[node]] + lag[node])
        return int(start + self.early[collective])

    def begin(self) -> None:
        """Begin the next repetition: this one becomes the one before."""
        self.times[: self.size] = self.times[self.size : -1]

    @property
    def _ends(self) -> Ints:
        """Each node's end in this repetition, in the order of simulation."""
        return self.times[self.size : -1]

    @property
    def ends(self) -> Floats:
        """Each node's end in this repetition."""
        return self._ends[self.order.at].astype(np.float64)

    @property
    def took(self) -> int:
        """Ns from the end of all work of the repetition before to the end of all work of this one."""
        return int(self._ends[self.works].max() - self.times[self.works].max())

    def is_steady(self) -> bool:
        """Does no node fall further behind the work with each repetition? Such a node delays it eventually."""
        took = self.took
        return bool((self._ends - self.times[: self.size]).max() <= took + _STEADY * abs(took))

    @property
    def first_gain(self) -> int:
        """Ns by which the first node ends later than in the repetition before."""
        return int(self.times[self.size] - self.times[0])

    def gains_alike(self) -> bool:
        """Does every node end later by the same time? Some are asked first, as mostly one of these already does not."""
        before, now = self.times[: self.size], self._ends
        few = slice(None, None, max(self.size // _SOME, 1))
        return all(bool((now[of] - before[of] == self.first_gain).all()) for of in (few, slice(None)))

    def shift(self, repetitions: int) -> None:
        """Advance by so many repetitions that are like this one."""
        self.times[:-1] += repetitions * self.first_gain

    def skip(self, repetitions: int) -> None:
        """Advance by so many repetitions in which each node keeps its own pace."""
        ends = self._ends
        ends += repetitions * (ends - self.times[: self.size])

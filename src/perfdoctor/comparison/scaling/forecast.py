"""How long would the step be among more ranks, and how far off is that way of predicting?

Two ways: a replay of the recording with most ranks (`--what-if ranks=N`; with strong scaling its batch is divided as
well), and the law that fits all recordings: t = a + b·log2 ranks with weak scaling, t = s + p / ranks with strong. Each
first predicts the largest recording from the others; as far as it is off there it may be off beyond.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.comparison.scaling.laws import error_at, line
from perfdoctor.comparison.scaling.records import Forecast, Kind, Recorded, Way
from perfdoctor.errors import PerfdoctorError
from perfdoctor.replay.edits.other_ranks import askable
from perfdoctor.replay.what_if.run_replay import replay_of, why_not_replayable
from perfdoctor.replay.what_if.sizes import simulated, size_change

#: A way that was off by more says nothing about twice as many.
_MOST_ERROR = 0.5
#: From ranks and a step in ns to what is counted a second.
Throughput = Callable[[int, float], float]
#: Low, likely, high, in ns.
_Range = tuple[float, float, float]


class KnownSteps(Struct, frozen=True):
    """Recordings by ranks, ascending, and the step of each in ns. `network`: bytes/s that a network gives each rank."""

    kind: Kind
    series: Mapping[int, Sequence[Recorded]]
    steps_ns: tuple[float, ...]
    network: float = 0.0

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(self.series)

    def without_largest(self) -> KnownSteps:
        return replace(self, series=dict(list(self.series.items())[:-1]), steps_ns=self.steps_ns[:-1])


#: The step among so many ranks, or why that cannot be said.
Predict = Callable[[KnownSteps, int], "_Range | str"]


def forecasts(known: KnownSteps, throughput: Throughput) -> tuple[tuple[Forecast, ...], tuple[Forecast, ...], str]:
    """Forecasts of the largest recording, from the others; of twice as many ranks; and why no replay says anything.

    A way that cannot be checked here predicts nothing.
    """
    checked: list[Forecast] = []
    ahead: list[Forecast] = []
    why = ""
    others, largest = known.without_largest(), known.ranks[-1]
    ways: tuple[tuple[Way, Predict], ...] = (("replay", _replayed), ("fit", _fitted))
    for by, predict in ways:
        back, on = predict(others, largest), predict(known, 2 * largest)
        if isinstance(back, str) or isinstance(on, str):
            why = why or next(each for each in (back, on) if isinstance(each, str))
            continue
        error = back[1] / known.steps_ns[-1] - 1
        missed = abs(error) * on[1]
        wider = (min(on[0], on[1] - missed), on[1], max(on[2], on[1] + missed))
        then = _forecast(by, others, largest, back, throughput)
        checked.append(replace(then, measured_ns=known.steps_ns[-1], error=error))
        if abs(error) <= _MOST_ERROR:
            ahead.append(_forecast(by, known, 2 * largest, wider, throughput))
    return tuple(checked), tuple(ahead), why


def _forecast(by: Way, known: KnownSteps, ranks: int, step_ns: _Range, throughput: Throughput) -> Forecast:
    low, likely, high = step_ns
    return Forecast(by, known.ranks, ranks, likely, low, high, throughput(ranks, likely))


def _fitted(known: KnownSteps, ranks: int) -> _Range | str:
    """The step that the fitted law predicts, or why there is none; it needs two or more numbers of ranks."""
    if len(known.ranks) < 2 or not known.kind:
        return "a law needs three numbers of ranks, of which it predicts the largest from the others"
    across = [_across(known.kind, each / known.ranks[0]) for each in known.ranks]
    at = _across(known.kind, ranks / known.ranks[0])
    step_ns, error_ns = line(across, known.steps_ns).at(at), error_at(across, known.steps_ns, at)
    if step_ns <= 0:
        return f"the steps follow no law: a fit of them is below zero at {ranks}"
    return max(step_ns - error_ns, 0.0), step_ns, step_ns + error_ns


def _across(kind: Kind, more: float) -> float:
    return 1 / more if kind == "strong" else math.log2(more)


def _replayed(known: KnownSteps, ranks: int) -> _Range | str:
    """The step that a replay of the recording with most ranks predicts, or why there is none.

    Links are taken to be as fast as they were there, or as the given network.
    """
    if not known.kind:
        return "it is not known how the work of a rank changes"
    recorded = next((each for each in known.series[known.ranks[-1]] if each.run is not None), None)
    if recorded is None or recorded.run is None:
        return f"of {known.ranks[-1]} there is a diagnosis.json alone, which holds nothing to replay"
    run = recorded.run
    if recorded.snapshot.without_gpu:
        return "a recording without a GPU shows nothing about another size"
    can = askable(run)
    if can.recorded != known.ranks[-1] or not can.with_network:
        return f"{recorded.snapshot.name}: {can.why_not or 'it does not record how many ranks there were'}"
    if replay_of(run) is None:
        return f"{recorded.snapshot.name} cannot be replayed: {why_not_replayable(run)}"
    more = ranks / known.ranks[-1]
    changes = [size_change("ranks", str(ranks), ranks, run, known.network)]
    if known.kind == "strong":
        changes.insert(0, size_change("batch", "", 1 / more, run))
    try:
        predicted = simulated(changes, run)
    except PerfdoctorError as error:
        return f"{recorded.snapshot.name}: {error.what.removeprefix('--what-if: ')}"
    scale = known.steps_ns[-1] / run.step_ns
    low, likely, high = (ns * scale for ns in predicted.step_ns)
    return low, likely, high

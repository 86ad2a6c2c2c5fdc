"""What does one training gain from more GPUs? All of a series, from its recordings in any order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from perfdoctor.comparison.compare import FEW_STEPS, MOST_WORK, alike, step_between
from perfdoctor.comparison.matching import USUALLY_IN_COMMON, by_names, changes, in_common, merged
from perfdoctor.comparison.promise import finding_changes
from perfdoctor.comparison.records import Changed, Snapshot, StepChange
from perfdoctor.comparison.refusal import refuse_series
from perfdoctor.comparison.scaling.forecast import KnownSteps, Throughput, forecasts
from perfdoctor.comparison.scaling.laws import growth, karp_flatt, serial, share_of_first
from perfdoctor.comparison.scaling.recorded import items, kind_of
from perfdoctor.comparison.scaling.records import Counted, Kind, Recorded, Rung, ScalingResult, SettingOver
from perfdoctor.comparison.settings import SETTINGS, same_clock
from perfdoctor.records.time_split import MOSTLY_RECORDING

#: They differ in every series.
_EXPECTED = ("ranks", "number of GPUs", "steps analysed", "program", "recorded")
_NS = 1e9
STATED = "stated"


def scaling(recorded: Sequence[Recorded], kind: Kind = "", network: float = 0.0) -> ScalingResult:
    """The scaling of a series of recordings. `kind`: weak or strong, if known beforehand. Raises PerfdoctorError.

    `network`: bytes/s that a network gives each rank beyond the recorded ones; 0: links as they were recorded.
    """
    refuse_series(recorded)
    ordered = sorted(recorded, key=lambda each: each.ranks)
    alikes = alike([each.snapshot for each in ordered])
    if not all(each.unrecorded_ns for each in alikes):  # the steps of all are recorded ones, or of none
        alikes = [replace(each, unrecorded_ns=None) for each in alikes]
    ordered = [replace(each, snapshot=snapshot) for each, snapshot in zip(ordered, alikes, strict=True)]
    found, kind_from = (kind, STATED) if kind else kind_of(ordered)
    series = {n: [each for each in ordered if each.ranks == n] for n in dict.fromkeys(each.ranks for each in ordered)}
    snapshots = {n: [each.snapshot for each in group] for n, group in series.items()}
    known_items = items(series)
    counted: Counted = "items" if known_items else "steps" if found == "strong" else "rank steps"
    first = next(iter(snapshots.values()))
    steps = [step_between(first, group) for group in snapshots.values()]
    steps_ns = tuple(each.after.mean_ns for each in steps)

    def throughput(ranks: int, step_ns: float) -> float:
        """Units of work a second among so many ranks; NaN if it is not known how much a step does."""
        known = bool(found) or counted == "items"
        return _in_a_step(counted, ranks, found, known_items) / step_ns * _NS if known else math.nan

    without_gpu = ordered[0].snapshot.without_gpu
    causes, whole = growth(found, snapshots, steps_ns, without_gpu=without_gpu)
    checked, ahead, unpredicted = forecasts(KnownSteps(found, series, steps_ns, network), throughput)
    work, rest_ns, rest_count = _work(found, list(snapshots.items()))
    changed = finding_changes(first, snapshots[max(snapshots)], None)  # of the most ranks against the fewest
    return ScalingResult(
        kind=found,
        kind_from=kind_from,
        counted=counted,
        basis=ordered[0].snapshot.basis,
        without_gpu=without_gpu,
        settings=tuple(_settings(ordered, found)),
        rungs=tuple(_rungs(found, snapshots, steps, throughput)),
        growth=causes,
        whole=whole,
        work=work,
        work_rest_ns=rest_ns,
        work_rest_count=rest_count,
        serial=serial(found, tuple(series), whole, causes),
        checked=checked,
        ahead=ahead,
        unpredicted=unpredicted,
        findings=tuple(each for each in changed if each.fate == "new" and each.after_ns),
        notes=tuple(_notes(ordered, found, len(series))),
    )


def _in_a_step(counted: Counted, ranks: int, kind: Kind, items: Mapping[int, float] | None) -> float:
    """What a step of all ranks together does, in `counted`."""
    if counted == "items" and items:
        largest = max(items)
        of_one = items.get(ranks, items[largest] * share_of_first(kind, ranks, largest))
        return of_one * ranks
    return 1.0 if counted == "steps" else float(ranks)


def _rungs(
    kind: Kind, series: Mapping[int, Sequence[Snapshot]], steps: Sequence[StepChange], throughput: Throughput
) -> Iterator[Rung]:
    ranks = list(series)
    base = throughput(ranks[0], steps[0].after.mean_ns)
    for n, step in zip(ranks, steps, strict=True):
        step_ns = step.after.mean_ns
        speedup = throughput(n, step_ns) / base
        efficiency, is_first = speedup * ranks[0] / n, n == ranks[0]
        known = step.low is not None and step.high is not None and not is_first
        low, high = (
            efficiency * (1 + step.change) / (1 + end) if known and end is not None else None
            for end in (step.high, step.low)
        )
        yield Rung(
            ranks=n,
            names=tuple(each.name for each in series[n]),
            step_ns=step_ns,
            steps=step.after.steps,
            throughput=throughput(n, step_ns),
            speedup=speedup,
            efficiency=efficiency,
            efficiency_low=low,
            efficiency_high=high,
            serial_share=karp_flatt(speedup, n / ranks[0]) if kind == "strong" else None,
        )


def _work(kind: Kind, series: Sequence[tuple[int, Sequence[Snapshot]]]) -> tuple[tuple[Changed, ...], int, int]:
    """The changes of work from its share of a step of the fewest ranks to a step of the most, as `matching.changes`."""
    (first, ours), (last, theirs) = series[0], series[-1]
    share = share_of_first(kind, last, first)
    shared = [replace(each, ns=each.ns * share) for each in merged([run.work for run in ours])]
    steps_ns = [sum(run.step_ns for run in side) / len(side) for side in (ours, theirs)]
    whole = (round(share * steps_ns[0]), round(steps_ns[1]))
    return changes(shared, merged([run.work for run in theirs]), whole, MOST_WORK)


def _settings(series: Sequence[Recorded], kind: Kind) -> Iterator[SettingOver]:
    """Settings beside the number of ranks that differ and that all recordings know, those that matter first."""
    for name, matters in sorted(SETTINGS.items(), key=lambda each: not each[1]):
        values: dict[str, list[int]] = {}
        for each in series:
            values.setdefault(each.snapshot.settings.get(name, ""), []).append(each.ranks)
        expected = name in _EXPECTED or (name == "batch" and kind == "strong")
        if len(values) < 2 or "" in values or expected:
            continue
        first, *others = ([value] for value in values)
        if not all(same_clock(name, first, other) for other in others):
            yield SettingOver(name, tuple((value, tuple(dict.fromkeys(n))) for value, n in values.items()), matters)


def _notes(series: Sequence[Recorded], kind: Kind, rungs: int) -> Iterator[str]:
    first = series[0].snapshot
    for each in series[1:]:
        share = in_common(first, each.snapshot) if by_names(first, each.snapshot) else 1.0
        if share < USUALLY_IN_COMMON:
            yield (
                f"Only {100 * share:.0f} % of the compute time of {first.name} and {each.snapshot.name} has the "
                "same names: make sure that they are one model."
            )
    few = [each.snapshot.name for each in series if each.snapshot.steps.steps_ns.size < FEW_STEPS]
    if few:
        yield f"{', '.join(few)}: fewer than {FEW_STEPS} steps. Record 20 or more."
    steps = [(each.snapshot.name, each.snapshot.steps) for each in series]
    slowed = [name for name, each in steps if each.scale < (1 - each.contended) / MOSTLY_RECORDING]
    if slowed:
        yield f"{', '.join(slowed)}: recording made most of the step, so its parts say little of the training."
    contended = max(each.snapshot.steps.contended for each in series)
    if contended:
        yield (
            f"Other programs had the cores of a training thread for up to {100 * contended:.0f} % of its time: record "
            "on a machine that runs nothing else."
        )
    if rungs == 2:
        yield "Two numbers of ranks show a difference, but neither its error nor how a law holds: give three or more."
    if not kind:
        yield (
            "Weak or strong scaling? The recordings do not show how the work of a rank changes: say --weak (each has "
            "as much) or --strong (they share it)."
        )

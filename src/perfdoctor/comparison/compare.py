"""What changed from BEFORE to AFTER? All of a comparison, from the runs of both sides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from perfdoctor.comparison.contributions import contributions
from perfdoctor.comparison.matching import SAME_SHARE, by_names, changes, in_common, mean_of, merged
from perfdoctor.comparison.promise import finding_changes, own_times, promises
from perfdoctor.comparison.records import (
    Comparison,
    CounterChange,
    LineChange,
    Snapshot,
    StepChange,
    StepSample,
    StepsCompared,
)
from perfdoctor.comparison.refusal import not_comparable, refuse
from perfdoctor.comparison.settings import differing
from perfdoctor.comparison.snapshot import by_listed_kernels, without_kernels
from perfdoctor.comparison.statistics import (
    NO_CHANGE_WITHIN,
    USUAL_SPREAD,
    USUAL_SPREAD_ON_CPU,
    paired_change,
    step_change,
)
from perfdoctor.comparison.without_steps import LAUNCH, memory_changes, of_memory
from perfdoctor.vocabulary.gpu_counters import COUNTERS

#: The runs of BEFORE and those of AFTER, as many, which alternated.
Reruns = tuple[Sequence[StepSample], Sequence[StepSample]]
#: More rows are not read; the others are one row, the rest.
MOST_WORK = 40
MOST_LINES = 15
#: Whole percents are what counters give.
LEAST_COUNTED = 0.01
#: Fewer steps say little about their spread.
FEW_STEPS = 8
#: Batches that vary from step to step differ in their means by less; with more items the device is used otherwise.
SAME_BATCH = 0.1


def compare(
    before: Sequence[Snapshot], after: Sequence[Snapshot], within: float = NO_CHANGE_WITHIN, *,
    reruns: Reruns | None = None, anyway: bool = False,
) -> Comparison:  # fmt: skip
    """Compare the runs of both sides. `within`: the change that matters, as a share. `reruns`: later runs of both
    sides that alternated: what became of the step is judged by these. `anyway`: judge the step, or where batches
    are known an item of the job's work, also where a difference says nothing of the program (another GPU, number of
    ranks, or program).

    Raises PerfdoctorError if they cannot be compared.
    """
    if (of_snapshots := of_memory(before, after)) is not None:
        return of_snapshots
    refuse(before, after)
    both = alike([*before, *after])
    before, after = both[: len(before)], both[len(before) :]
    without_gpu = before[0].without_gpu
    settings, unknown = differing(before, after)
    reasons = () if anyway else not_comparable(before, after, settings)
    step = _paired(reruns, within) if reruns else step_between(before, after, within)
    parts = [
        (mean_of([each.parts for each in side]), mean_of([each.compute for each in side])) for side in (before, after)
    ]
    before_ns, after_ns = (round(sum(each.step_ns for each in side) / len(side)) for side in (before, after))
    difference_ns = after_ns - before_ns
    causes = contributions(parts[0], parts[1], (before_ns, after_ns), without_gpu=without_gpu)
    every = [merged([each.work for each in side]) for side in (before, after)]
    work, rest_ns, rest_count = changes(every[0], every[1], (before_ns, after_ns), MOST_WORK)
    own = own_times(causes, every[0], every[1], without_gpu=without_gpu)
    findings = finding_changes(before, after, None if reasons else own)
    if not any(each.label for each in work):  # nothing is known by name: the causes say it all
        work, rest_ns = (), difference_ns
    ours, theirs = (_items(side, of_job=anyway) for side in (before, after))
    item = _item(before, after, within, reruns, (ours, theirs))
    same_items = ours / theirs if ours and theirs and ours != theirs else None
    # What of the difference of unrecorded steps the recorded ones do not show: recording stretched one side more.
    apart_ns = round(step.after.mean_ns) - round(step.before.mean_ns)
    recording_ns = apart_ns - difference_ns if step.unrecorded else 0
    return Comparison(
        before=tuple(each.name for each in before),
        after=tuple(each.name for each in after),
        step=step,
        basis=before[0].basis,
        without_gpu=without_gpu,
        settings=settings,
        unknown_settings=unknown,
        before_ns=before_ns,
        after_ns=after_ns,
        difference_ns=difference_ns,
        recording_ns=recording_ns,
        causes=causes,
        work=work,
        work_rest_ns=rest_ns,
        work_rest_count=rest_count,
        findings=findings,
        not_comparable=reasons,
        promises=()
        if reasons
        else promises(before, findings, step, item or step, own, settings, recording_ns, same_items),
        counters=tuple(_counters(before, after)),
        memory=tuple(memory_changes(before, after)),
        items_before=ours,
        items_after=theirs,
        item=item,
        common_share=_common_share(before[0], after[0]),
        lines=_lines(before, after, before_ns),
        notes=tuple(_notes(before, after, step)),
    )


def alike(runs: Sequence[Snapshot]) -> list[Snapshot]:
    """The runs, all reduced to what the least detailed of them knows: names of the longest kernels, or the parts of
    the step.
    """
    if not all(each.by_kernel for each in runs):
        return [without_kernels(each) for each in runs]
    return list(runs) if all(each.by_op for each in runs) else by_listed_kernels(runs)


def _common_share(one: Snapshot, other: Snapshot) -> float | None:
    """The share of the compute time that both have by name; None if one of them has no names."""
    return min(in_common(one, other), 1.0) if by_names(one, other) else None


def _paired(reruns: Reruns, within: float, items: tuple[float, float] = (1.0, 1.0)) -> StepChange:
    sides = ([_shared(run, each) for run in side] for side, each in zip(reruns, items, strict=True))
    return paired_change(*sides, within=within)


def _item(
    before: Sequence[Snapshot], after: Sequence[Snapshot], within: float, reruns: Reruns | None,
    items: tuple[float | None, float | None],
) -> StepChange | None:  # fmt: skip
    """The change of the time of one item if the `items` of a step are known and differ, else None."""
    ours, theirs = items
    if not ours or not theirs or ours == theirs:
        return None
    if reruns:
        return _paired(reruns, within, (ours, theirs))

    def of_one(side: Sequence[Snapshot], items: float) -> list[Snapshot]:
        return [
            replace(each, steps=_shared(each.steps, items), timed=each.timed and _shared(each.timed, items))
            for each in side
        ]

    return step_between(of_one(before, ours), of_one(after, theirs), within)


def _shared(steps: StepSample, items: float) -> StepSample:
    return replace(steps, steps_ns=steps.steps_ns / items)


def step_between(before: Sequence[Snapshot], after: Sequence[Snapshot], within: float = NO_CHANGE_WITHIN) -> StepChange:
    """The change of the unrecorded steps if all runs know them, else of the recorded ones."""
    which = steps_compared(before, after)
    sides = [samples(side, which) for side in (before, after)]
    return step_change(sides[0], sides[1], usual_spread(before[0]), basis=which, within=within)


def steps_compared(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> StepsCompared:
    """Which steps all runs of both sides know: all timed ones, else the mean of unrecorded ones, else recorded ones."""
    if all(each.timed is not None for each in (*before, *after)):
        return "timed"
    return "unrecorded" if all(each.unrecorded_ns for each in (*before, *after)) else "recorded"


def samples(runs: Sequence[Snapshot], which: StepsCompared) -> list[StepSample]:
    if which == "timed":
        return [each.timed for each in runs if each.timed is not None]
    return [each.steps if which == "unrecorded" else replace(each.steps, scale=1.0) for each in runs]


def usual_spread(run: Snapshot) -> float:
    return USUAL_SPREAD_ON_CPU if run.without_gpu else USUAL_SPREAD


def _counters(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> Iterator[CounterChange]:
    """The counters that were recorded in every run, but for those that show next to nothing on both sides."""
    runs = (*before, *after)
    ours, theirs = (mean_of([each.counters for each in side]) for side in (before, after))
    for counted in COUNTERS.values():
        metric = counted.metric
        if all(metric in each.counters for each in runs) and max(ours[metric], theirs[metric]) >= LEAST_COUNTED:
            yield CounterChange(metric, counted.label, ours[metric], theirs[metric])


def _lines(before: Sequence[Snapshot], after: Sequence[Snapshot], step_ns: int) -> tuple[LineChange, ...]:
    """The user's own functions that changed notably; empty unless both sides recorded them."""
    if not all(each.lines for each in (*before, *after)):
        return ()
    ours, theirs = (mean_of([each.lines for each in side]) for side in (before, after))
    every = [LineChange(name, ours.get(name, 0.0), theirs.get(name, 0.0)) for name in dict.fromkeys((*ours, *theirs))]
    every.sort(key=lambda each: -abs(each.after_ns - each.before_ns))
    return tuple(each for each in every[:MOST_LINES] if abs(each.after_ns - each.before_ns) >= SAME_SHARE * step_ns)


def _items(runs: Sequence[Snapshot], *, of_job: bool = False) -> float | None:
    """What a rank trains on in a step, or all ranks of the job together, on the mean of the runs.

    None where it is not known of all, or where they are of several batches.
    """
    known = [(each.items_per_step or 0.0) * (int(each.settings.get("ranks", 1)) if of_job else 1) for each in runs]
    least, most = min(known), max(known)
    if not least or most - least > SAME_BATCH * most:
        return None
    return least if least == most else math.fsum(known) / len(known)


def _notes(before: Sequence[Snapshot], after: Sequence[Snapshot], step: StepChange) -> Iterator[str]:
    if not before[0].basis:
        yield "No steps were found: the whole recordings are compared, and nothing is known of their spread."
    if before[0].basis == LAUNCH:
        yield (
            "Kernels that Nsight Compute measured are compared, one launch of each: what one side alone has measured "
            "counts as new or gone. Their share of the program is unknown."
        )
    few = [
        f"{name} has {'a single step' if side.steps == 1 else f'{side.steps} steps'}"
        for side, name in ((step.before, "BEFORE"), (step.after, "AFTER"))
        if before[0].basis not in ("", LAUNCH) and side.steps < FEW_STEPS
    ]
    if few:
        yield f"{', '.join(few)}: record 20 or more, or several runs, to see small differences."
    if {each.settings.get("ranks", "") for each in before} != {each.settings.get("ranks", "") for each in after}:
        yield "The number of ranks differs: perfdoctor compare --scaling says what more of them bring."
    if both := sorted({each.name for each in before} & {each.name for each in after}):
        yield f"On both sides: {', '.join(both)}."
    common = set.intersection(*(set(each.notes) for each in (*before, *after)))
    for runs, name in ((before, "BEFORE"), (after, "AFTER")):
        for note in dict.fromkeys(note for each in runs for note in each.notes):
            if note not in common:
                yield f"{name}: {note}"
    if not all(each.by_kernel for each in (*before, *after)):
        known = "parts" if all(each.parts for each in (*before, *after)) else "length"
        yield f"Of one side only the {known} of a step is known: kernels, ops, lines and memory were not compared."
    elif not all(each.by_op for each in (*before, *after)):
        yield "A diagnosis.json has no ops, lines and shapes: kernels were matched by their names alone."

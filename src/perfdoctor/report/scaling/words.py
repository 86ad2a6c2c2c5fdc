"""How is a series over numbers of GPUs put into words?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from perfdoctor.comparison.scaling.records import CauseGrowth, Forecast, Rung, ScalingResult, SettingOver
from perfdoctor.comparison.scaling.series import STATED
from perfdoctor.report.comparison.words import delta, finding, percent
from perfdoctor.report.words.foreign_text import clean, clean_name
from perfdoctor.report.words.wording import NO_NUMBER, between, count, duration, fine_share

KINDS = {
    "weak": "Weak scaling: each {one} has the same work, so a step would ideally stay as long.",
    "strong": "Strong scaling: the {many} share the work, so a step would ideally get shorter by their number.",
    "": "Whether each {one} has the same work or all share it is not known.",
}
UNITS = {"items": "items/s", "rank steps": "steps/s", "steps": "steps/s"}
#: Efficiencies as the field judges them: above 90 % on one machine, above 70 % over a network, is good.
GOOD, BAD = 0.9, 0.7
#: Smaller growth is not worth a sentence.
_WORTH_SAYING = 0.005
#: A serial share that is larger by more with most ranks is none.
_RISES = 0.02
#: Causes of a serial part that are named.
_NAMED = 3


def unit(scaling: ScalingResult) -> str:
    return "rank" if scaling.without_gpu else "GPU"


def on(scaling: ScalingResult, ranks: int) -> str:
    """`1 GPU`, `8 GPUs`."""
    return f"{ranks:,} {unit(scaling)}{'' if ranks == 1 else 's'}"


def verdict(scaling: ScalingResult) -> str:
    """The first line: what more ranks brought, and how much of what they could have."""
    first, last = scaling.rungs[0], scaling.rungs[-1]
    if math.isnan(last.efficiency):
        more = last.ranks / first.ranks
        kept = first.step_ns / last.step_ns
        return (
            f"A mean {noun(scaling)} of {duration(first.step_ns)} on {on(scaling, first.ranks)} takes "
            f"{duration(last.step_ns)} on {last.ranks:,}: {fine_share(kept)} efficiency if each has as much work as "
            f"before, {fine_share(kept / more)} if they share it."
        )
    if is_too_noisy(last):
        return (
            f"Too noisy to say: {on(scaling, last.ranks)} bring {last.speedup:.2f}× the throughput of "
            f"{on(scaling, first.ranks)}, but any efficiency from {fine_share(last.efficiency_low or 0.0)} to "
            f"{fine_share(last.efficiency_high or 0.0)} fits."
        )
    return (
        f"{on(scaling, last.ranks)} bring {last.speedup:.2f}× the throughput of {on(scaling, first.ranks)}: "
        f"efficiency {efficiency(last)}."
    )


def is_too_noisy(each: Rung) -> bool:
    """Does the interval hold both good and bad?"""
    low, high = each.efficiency_low, each.efficiency_high
    return low is not None and high is not None and low < BAD and high > GOOD


def time(ns: float) -> str:
    """A time; negative ones with the sign that differences have."""
    return duration(ns) if ns >= 0 else delta(ns)


def noun(scaling: ScalingResult) -> str:
    return scaling.basis or "recording"


def kind(scaling: ScalingResult) -> str:
    """What kind of scaling it is, and how that is known."""
    said = KINDS[scaling.kind].format(one=unit(scaling), many=f"{unit(scaling)}s")
    if not scaling.kind or not scaling.kind_from:
        return said
    how = "as you say" if scaling.kind_from == STATED else f"as the {scaling.kind_from} show"
    head, _, rest = said.partition(":")
    return f"{head}, {how}:{rest}"


def most_lost(scaling: ScalingResult) -> str:
    """Which cause grows most with each doubling; "" where none does notably."""
    worst = scaling.growth[0] if scaling.growth else None
    if worst is None or worst.per_doubling_ns < _WORTH_SAYING * scaling.rungs[0].step_ns:
        return ""
    return f"What grows most is {worst.label}: {per_doubling(worst)} {each_doubling(scaling)}."


def each_doubling(scaling: ScalingResult) -> str:
    beyond = "more than its share of the step" if scaling.kind == "strong" else "a step"
    return f"{beyond}, with each doubling of the {unit(scaling)}s"


def efficiency(each: Rung) -> str:
    """`83 % (81 % to 85 %)`."""
    likely = fine_share(each.efficiency)
    if each.efficiency_low is None or each.efficiency_high is None or math.isnan(each.efficiency):
        return likely
    return f"{likely} ({fine_share(each.efficiency_low)} to {fine_share(each.efficiency_high)})"


def throughput(scaling: ScalingResult, number: float) -> str:
    return f"{count(number)} {UNITS[scaling.counted]}" if math.isfinite(number) else NO_NUMBER


def speedup(each: Rung) -> str:
    return f"{each.speedup:.2f}×" if math.isfinite(each.speedup) else NO_NUMBER


def rung(scaling: ScalingResult, each: Rung) -> tuple[str, ...]:
    """A row of the table: ranks, step, throughput, speed-up and efficiency."""
    return (
        f"{each.ranks:,}", duration(each.step_ns), throughput(scaling, each.throughput), speedup(each), efficiency(each)
    )  # fmt: skip


def counted(scaling: ScalingResult) -> str:
    """What the throughput counts."""
    if math.isnan(scaling.rungs[0].throughput):
        return "--weak (each has as much) or --strong (they share it) shows throughput and efficiency."
    if scaling.counted == "items":
        return f"Throughput: items of all {unit(scaling)}s, which are the targets of the loss."
    if scaling.counted == "steps":
        return "Throughput: steps, each of the same work."
    return f"Throughput: each {unit(scaling)}'s step counts as one, since the batch is not known."


def setting(scaling: ScalingResult, each: SettingOver) -> str:
    values = ", ".join(
        f"{clean_name(value)} ({', '.join(f'{n:,}' for n in ranks)} {unit(scaling)}{'' if ranks == (1,) else 's'})"
        for value, ranks in each.values
    )
    return f"{each.name}: {values}"


def per_doubling(growth: CauseGrowth) -> str:
    """`+2.1 ms ± 0.2 ms`; without an error where two numbers of ranks show none."""
    error = f" ± {duration(growth.error_ns)}" if growth.error_ns is not None else ""
    return f"{delta(growth.per_doubling_ns)}{error}"


def fitted(scaling: ScalingResult) -> str:
    """How the numbers of a doubling were computed."""
    beyond = "beyond an equal share of the first" if scaling.kind == "strong" else "a step"
    if len(scaling.rungs) < 3:
        return f"Each doubling: time {beyond}, the difference over the doublings between."
    return (
        f"Each doubling: time {beyond}, a least squares fit over log2 of the {len(scaling.rungs)} numbers of "
        f"{unit(scaling)}s; ± is its standard error."
    )


def serial(scaling: ScalingResult) -> Iterator[str]:
    """What acts as if it were serial, and by which causes."""
    found = scaling.serial
    if found is None:
        return
    one = on(scaling, scaling.rungs[0].ranks)
    share = _share(found.share, found.error)
    if found.share <= (found.error or 0.0):
        yield f"Nothing serial is seen beyond the error of the fit: {share} of the step."
        return
    if found.law == "amdahl":
        yield f"{share} of the step on {one} is not shared (Amdahl's law, t = s + p / k)."
        if found.limit is not None and found.limit > 1:
            yield f"However many there are, they bring at most {found.limit:.1f}× the throughput of {one}."
    else:
        yield f"It scales as if {share} of the step were serial (Gustafson's law, speed-up = k − α·(k − 1))."
    grown = [each for each in found.causes if each.share > 0][:_NAMED]
    if grown and found.share > 0:
        yield f"Of that: {', '.join(f'{each.label} {_share(each.share, each.error)}' for each in grown)}."
    rungs = [(each.ranks, each.serial_share) for each in scaling.rungs if each.serial_share is not None]
    if len(rungs) > 1:
        shares = ", ".join(f"{fine_share(value)} at {ranks:,}" for ranks, value in rungs)
        rises = rungs[-1][1] - rungs[0][1] > _RISES
        why = f"; a share that rises is no serial work, but costs that grow with the {unit(scaling)}s" if rises else ""
        yield f"By each alone (Karp and Flatt): {shares}{why}."


def _share(share: float, error: float | None) -> str:
    likely = percent(share).removeprefix("+")
    return likely if error is None else f"{likely} ± {percent(error).removeprefix('+')}"


def settings_heading(scaling: ScalingResult) -> str:
    return f"What differs beside the number of {unit(scaling)}s"


def serial_heading(scaling: ScalingResult) -> str:
    return "What is not shared" if scaling.kind == "strong" else "What acts as if it were serial"


def work_heading(scaling: ScalingResult) -> str:
    first, last = scaling.rungs[0].ranks, scaling.rungs[-1].ranks
    if scaling.kind == "strong":
        return f"Which work takes more than its share: {on(scaling, last)} against {first:,}"
    return f"Which work takes more: {on(scaling, last)} against {first:,}"


def findings_heading(scaling: ScalingResult) -> str:
    first, last = scaling.rungs[0].ranks, scaling.rungs[-1].ranks
    return f"Found on {on(scaling, last)}, not on {first:,}"


def prediction_heading(scaling: ScalingResult) -> str:
    return f"Predicted for {on(scaling, 2 * scaling.rungs[-1].ranks)}" if scaling.ahead else "Prediction"


def way(each: Forecast) -> str:
    known = ", ".join(f"{n:,}" for n in (each.known[-1:] if each.by == "replay" else each.known))
    return f"{'replay' if each.by == 'replay' else 'fit'} of {known}"


def missed(each: Forecast) -> str:
    """`2.9 % too long`."""
    if each.error is None:
        return ""
    size = percent(abs(each.error)).removeprefix("+")
    return "exact" if size == "0 %" else f"{size} too {'long' if each.error > 0 else 'short'}"


def checked(scaling: ScalingResult, each: Forecast) -> str:
    """Prediction and measurement for a number of ranks that was recorded."""
    measured = duration(each.measured_ns) if each.measured_ns is not None else NO_NUMBER
    return (
        f"{way(each)}: {duration(each.step_ns)} predicted for {on(scaling, each.ranks)}, {measured} measured: "
        f"{missed(each)}"
    )


def ahead(scaling: ScalingResult, each: Forecast) -> str:
    """Prediction for more ranks than were recorded."""
    return (
        f"{way(each)}: {duration(each.step_ns)} ({between(each.low_ns, each.high_ns)}) on "
        f"{on(scaling, each.ranks)}, {throughput(scaling, each.throughput)}"
    )


def assumed(scaling: ScalingResult) -> Iterator[str]:
    """What predictions take for granted, or why there is none."""
    for each in scaling.checked:
        if each.by not in [one.by for one in scaling.ahead]:
            yield f"The {way(each)} is off by too much to predict more."
    if any(each.by == "replay" for each in scaling.ahead):
        most = scaling.rungs[-1].ranks
        yield (
            f"Ranges are at least as wide as each was off. Links among {2 * most:,} are taken to be as fast as among "
            f"{most:,}; --network says what a slower network gives."
        )
    elif scaling.ahead:
        yield "The range is at least as wide as the fit was off."
    if scaling.unpredicted:
        yield f"{'No replay' if scaling.ahead else 'None'}: {clean(scaling.unpredicted)}."


def findings(scaling: ScalingResult) -> list[str]:
    return [f"{clean(each.title)} ({each.rule}) {finding(each)}" for each in scaling.findings]


def shown_rungs(scaling: ScalingResult, most: int) -> Sequence[int]:
    """Positions of the rungs that fit into so many columns: the first, the last, and those between evenly."""
    size = len(scaling.rungs)
    return range(size) if size <= most else sorted({round(at * (size - 1) / (most - 1)) for at in range(most)})

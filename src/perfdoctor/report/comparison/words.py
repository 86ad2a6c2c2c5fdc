"""How is a comparison put into words?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from perfdoctor.comparison.records import Changed, Comparison, FindingChange, Promise, Setting, StepChange, StepSide
from perfdoctor.comparison.scaling.records import ScalingResult
from perfdoctor.comparison.statistics import CONFIDENCE
from perfdoctor.report.words.foreign_text import PROSE_LIMIT, clean, clean_name, names_apart
from perfdoctor.report.words.wording import between, counted, duration, factor, share, size
from perfdoctor.vocabulary.parts import PARTS

SPREAD_FROM = {
    "runs": "as its runs show",
    "contended": "as other programs had its cores",
    "drift": "as its own steps drift",
    "other side": "as the other side's runs show",
    "usual": "as is usual",
}  # fmt: skip
FATES = {"came": "new", "went": "gone", "grew": "longer", "shrank": "shorter", "same": "as before"}
#: Parts whose work says itself what it is.
_NAMED_ALONE = ("compute", "exposed_copy")
_ALTERNATE = ", as `perfdoctor compare --rerun 5 BEFORE AFTER` makes them"
#: A change that may reach this factor is said as one besides: below, per cent say as much. Beyond the other factor
#: nothing is left of the step.
_LARGE, _NOTHING_LEFT = 1.2, 1000.0
RECORDING, OTHER_STEPS = "what recording added, taken off", "what the recorded steps do not show"
STEPS = {
    "recorded": "recorded steps", "unrecorded": "unrecorded steps", "timed": "all timed steps but the recorded ones",
    "paired": "steps",
}  # fmt: skip
KEPT = {
    "kept": "kept",
    "more": "more than predicted",
    "less": "less than predicted",
    "unknown": "the noise hides whether that was kept",
}
FINDINGS = "Findings, and what fixing each likely saves a step"
COUNTERS = "The GPU's counters"
FINDING_FATES = {
    "fixed": "fixed", "partly fixed": "partly fixed", "no longer found": "no longer found", "new": "new",
    "remaining": "remaining", "not checked": "not checked in AFTER",
}  # fmt: skip


def percent(fraction: float | None) -> str:
    """A share with its sign: `−4.2 %`, `+0.31 %`."""
    if fraction is None or not math.isfinite(fraction):
        return "–"
    number = abs(fraction) * 100
    digits = 0 if number >= 99.5 else 1 if number >= 9.95 else 2
    sign = "−" if fraction < 0 else "+"
    return f"{sign}{number:.{digits}f} %" if round(number, 2) else "0 %"


def delta(ns: float) -> str:
    """`−12.3 ms`, `+4 ns`."""
    return f"{'−' if ns < 0 else '+'}{duration(abs(ns))}" if ns else "0"


def verdict(comparison: Comparison) -> str:
    """The first line: what became of the step (of an item, where batches differ), and between which bounds."""
    if comparison.peaks is not None:
        was, now = map(size, comparison.peaks)
        said = {"more memory": "More memory", "less memory": "Less memory"}.get(comparison.verdict, "No change")
        return f"{said}: a peak of {was} became {now}, {percent(comparison.step.change)}. No timeline was recorded."
    judged = comparison.judged
    noun, times = unit(comparison), times_of(comparison)
    bounds = bounds_of(judged)
    if comparison.not_comparable:
        return f"Not comparable: {clean('; '.join(comparison.not_comparable), PROSE_LIMIT)}."
    if judged.low is None:
        return f"Too little to say: {times} ({percent(judged.change)}), and one {noun} shows no spread."
    sure = {"faster": "Faster", "slower": "Slower", "no change": "No change beyond the noise"}
    if judged.verdict in sure:
        return f"{sure[judged.verdict]}{_by_factor(judged)}: {times}, {percent(judged.change)} ({bounds})."
    return f"Too noisy to say: {times}, {percent(judged.change)}, but anything from {bounds} fits."


def _by_factor(judged: StepChange) -> str:
    """`, by 1.4 to 2.1×` of a change that may be large; "" of another, and where nothing may be left of a step."""
    assert judged.low is not None
    assert judged.high is not None
    if judged.verdict == "faster":
        least, most = 1 / (1 + judged.high), 1 / max(1 + judged.low, 1e-9)
    else:
        least, most = 1 + judged.low, 1 + judged.high
    if judged.verdict == "no change" or most < _LARGE or most > _NOTHING_LEFT:
        return ""
    low, high = factor(least), factor(most)
    return f", by {low}×" if low == high else f", by {low} to {high}×"


def unit(comparison: Comparison) -> str:
    """Whose time is judged: `step`, `item` …"""
    return "item" if comparison.item else comparison.basis or "recording"


def times_of(comparison: Comparison) -> str:
    """`a mean step of 27.6 ms became 5.50 ms`"""
    judged = comparison.judged
    was, now = duration(judged.before.mean_ns), duration(judged.after.mean_ns)
    return f"a mean {unit(comparison)} of {was} became {now}"


def bounds_of(judged: StepChange) -> str:
    return f"{percent(judged.low)} to {percent(judged.high)}"


def per_item(comparison: Comparison) -> str:
    """What became of the step where batches differ, as the verdict is then about an item; "" elsewhere."""
    if comparison.not_comparable:
        times = times_of(comparison)
        return f"The difference would say nothing of the program: {times}. `perfdoctor compare --anyway` judges it."
    if comparison.item is None:
        return ""
    step = comparison.step
    return (
        f"The work of a step differs, so the time of one item is judged. A step has {comparison.items_before:,.0f} "
        f"items before and {comparison.items_after:,.0f} after; it took {duration(step.before.mean_ns)}, then "
        f"{duration(step.after.mean_ns)} ({percent(step.change)}). What follows is of the step."
    )


def interval(comparison: Comparison) -> Iterator[str]:
    """What the interval is made of, and what would narrow it."""
    step = comparison.judged
    if comparison.not_comparable or comparison.peaks is not None:
        return
    if comparison.may_be_two_programs:
        common = f"Only {share(comparison.common_share)}" if comparison.common_share else "Nothing"
        yield (
            f"{common} of the compute time has names that both sides have: another program, or one that was compiled "
            "or runs other kernels throughout."
        )
    if step.low is None:
        return
    if step.steps_compared == "paired":
        yield (
            f"{share(CONFIDENCE)} interval of the ratio of two means, from {step.before.runs} pairs of runs without a "
            f"recorder, BEFORE and AFTER in turn: BEFORE {_sample(step.before)}, AFTER {_sample(step.after)}. From "
            f"pair to pair the ratio differs by {step.before.spread * 100:.1f} %, as a standard deviation."
        )
        return
    yield (
        f"{share(CONFIDENCE)} interval of the mean, by drawing blocks of {STEPS[step.steps_compared]}: BEFORE "
        f"{_sample(step.before)}, AFTER {_sample(step.after)}."
    )
    if 1 in (step.before.runs, step.after.runs):
        yield (
            f"Runs of one program differ by themselves; one run cannot show by how much. Taken here: {_spreads(step)}. "
            f"Several runs of each side measure it{_ALTERNATE}."
        )
    else:
        yield f"From run to run the mean differs by {_spreads(step)}, as a standard deviation."
    if step.contended:
        yield (
            f"Other programs had the cores of the training thread for up to {share(step.contended)} of its time: the "
            f"interval is wider by what that may have cost. Record on a machine that runs nothing else, or in "
            f"turn{_ALTERNATE}."
        )
    if step.hidden_by_long_steps:
        yield (
            f"The median step is {percent(step.median_change)} ({percent(step.median_low)} to "
            f"{percent(step.median_high)}): a few long steps hide it in the mean."
        )
    elif step.verdict == "too noisy" and step.detectable is not None:
        more = "" if step.contended else ": give more steps, or several runs"
        yield f"A change below {share(step.detectable)} cannot be seen here{more}."


def _sample(side: StepSide) -> str:
    return f"{counted(side.steps, 'step')} of {counted(side.runs, 'run')}"


def _spreads(step: StepChange) -> str:
    before, after = _spread(step.before), _spread(step.after)
    return before if before == after else f"{before} BEFORE, {after} AFTER"


def _spread(side: StepSide) -> str:
    return f"{side.spread * 100:.1f} % ({SPREAD_FROM[side.spread_from]})"


def setting(each: Setting) -> str:
    return f"{each.name}: {clean_name(each.before)} → {clean_name(each.after)}"


def works(rows: Sequence[Changed], limit: int = 140, *, without_gpu: bool = False) -> list[str]:
    """Name and place of each row, of idle time what the host did meanwhile; different rows have different names."""
    return names_apart([_work(each, without_gpu=without_gpu) for each in rows], limit)


def work_rows(found: Comparison | ScalingResult) -> list[tuple[Changed, str]]:
    """All listed work, each with its name."""
    return list(zip(found.work, works(found.work, without_gpu=found.without_gpu), strict=True))


def _work(each: Changed, *, without_gpu: bool) -> str:
    if each.part == "compute" and not each.label and not without_gpu:
        return "kernels that are not listed"
    name = clean_name(each.label, PROSE_LIMIT) if each.label else "host work not known"
    name = f"{name} ({clean(each.where)})" if each.where else name
    return name if each.part in _NAMED_ALONE and each.label else f"{PARTS[each.part].short}: {name}"


def renamed(each: Changed, most: int = 2) -> str:
    """`a, b → c`: names on the device, where both sides have some and they differ; else ""."""
    if not each.was or not each.now:
        return ""
    was, now = each.was[:most], each.now[:most]
    names = names_apart([*was, *now], 48)
    return f"{_listed(names[: len(was)], each.was)} → {_listed(names[len(was) :], each.now)}"


def _listed(shown: Sequence[str], names: Sequence[str]) -> str:
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(dict.fromkeys(shown)) + more


def count(each: Changed) -> str:
    """How often it runs in a step, where that changed; else ""."""
    was, now = each.before_count, each.after_count
    if math.isclose(was, now, rel_tol=0.01) or not was or not now:
        return ""
    return f"{was:,.3g} → {now:,.3g} a step"


def prediction(each: Promise) -> str:
    """What was predicted and what is seen; `kept`, `more` or `less`, and why."""
    because = f"; likely reason: {clean(each.because)}" if each.because else ""
    what = "the step" if each.whole else "its part of the step"
    what = f"{what}, for as many items," if each.same_items else what
    shown = f"{what} got {duration(abs(each.shown_ns))} {'shorter' if each.shown_ns > 0 else 'longer'}"
    shown = shown if round(each.shown_ns) else f"{what} is as long as before"
    return f"predicted {duration(each.likely)} ({between(each.low, each.high)}); {shown}: {KEPT[each.kept]}{because}"


def finding(each: FindingChange) -> str:
    if each.fate in ("remaining", "partly fixed") and (each.before_ns or each.after_ns):
        was, now = (duration(ns) if ns else "–" for ns in (each.before_ns, each.after_ns))  # no saving is likely
        return f"{was} → {now}"
    ns = each.after_ns if each.fate == "new" else each.before_ns
    return duration(ns) if ns else ""


def memory(comparison: Comparison) -> Iterator[str]:
    for each in comparison.memory:
        change = percent(each.after_bytes / each.before_bytes - 1) if each.before_bytes else "new"
        where = "" if each.device < 0 else f", GPU {each.device}"
        yield f"Peak memory, rank {each.rank}{where}: {size(each.before_bytes)} → {size(each.after_bytes)} ({change})"
        for line in each.holders:
            held = " → ".join(
                size(held) if held >= 0 else "not among the largest" for held in (line.before_bytes, line.after_bytes)
            )
            yield f"of it {clean_name(line.line) or 'lines that are not known'}: {held}"


def counters(comparison: Comparison) -> Iterator[str]:
    """The GPU's own counters on both sides."""
    for each in comparison.counters:
        label = each.label[0].upper() + each.label[1:]
        yield f"{label} while kernels ran: {share(each.before)} → {share(each.after)}"


def lines(comparison: Comparison) -> Iterator[str]:
    """Own functions, each with the change of the time of what it launches itself."""
    for each in comparison.lines:
        change = delta(each.after_ns - each.before_ns)
        yield f"{clean_name(each.name)}: {duration(each.before_ns)} → {duration(each.after_ns)} ({change})"


def lines_heading(comparison: Comparison) -> str:
    return "Your code, own time" if comparison.without_gpu else "Your code, by the work that it launches"


def recording(comparison: Comparison) -> str:
    """What the difference is called between the steps that are compared and those whose parts are known."""
    return OTHER_STEPS if comparison.step.steps_compared in ("timed", "paired") else RECORDING


def rest_of_causes(many: int) -> str:
    return f"the rest: {counted(many, 'cause')}"


def sums(comparison: Comparison, most: int) -> Iterator[tuple[str, str, str, int]]:
    """Rows below the first `most` causes, so that each column sums to its step: the other causes, and what recording
    added. Each has its label, its time before and after, and their difference in ns.
    """
    hidden = comparison.causes[most:]
    if hidden:
        before, after = sum(each.before_ns for each in hidden), sum(each.after_ns for each in hidden)
        yield rest_of_causes(len(hidden)), duration(before), duration(after), after - before
    if comparison.recording_ns:
        step = comparison.step
        before, after = (
            round(side.mean_ns) - ns
            for side, ns in ((step.before, comparison.before_ns), (step.after, comparison.after_ns))
        )
        yield recording(comparison), delta(before), delta(after), comparison.recording_ns


def cause_rows(comparison: Comparison, most: int) -> Iterator[tuple[str, str, str, str]]:
    """Label, time before and after, and difference of the first causes, of the other ones and of all together."""
    for each in comparison.causes[:most]:
        yield each.label, duration(each.before_ns), duration(each.after_ns), delta(each.delta_ns)
    for label, was, now, ns in sums(comparison, most):
        yield label, was, now, delta(ns)
    total = delta(comparison.difference_ns + comparison.recording_ns)
    yield "together", duration(comparison.step.before.mean_ns), duration(comparison.step.after.mean_ns), total


def sides(comparison: Comparison) -> Iterator[str]:
    """What was compared, by the names that were given."""
    for title, names in (("Before", comparison.before), ("After", comparison.after)):
        yield f"{title}: {', '.join(clean_name(name) for name in names)}"


def rest(comparison: Comparison | ScalingResult) -> str:
    return f"the rest: {counted(comparison.work_rest_count, 'smaller change')}"

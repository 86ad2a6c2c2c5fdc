"""How is a number, or a whole diagnosis, put into words? The only place that rounds."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from perfdoctor.hardware.generations import NVIDIA, vendor
from perfdoctor.patterns import regex
from perfdoctor.records.time_split import MOSTLY_RECORDING
from perfdoctor.report.words.foreign_text import NAME_LIMIT, clean, clean_name, clean_note
from perfdoctor.vocabulary.kinds import MATH_PATHS
from perfdoctor.vocabulary.sentences import IN_GRAPHS, LOST_LAUNCHES, NO_KERNEL, OF_MEASURED
from perfdoctor.vocabulary.signals import NEEDS, needs_gpu, needs_nvidia

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.findings import Advice, Fix, Span, Value
    from perfdoctor.records.savings import Range
    from perfdoctor.records.time_split import StepStats
    from perfdoctor.vocabulary.rulebook import RuleFix

NO_NUMBER = "–"

FOUND_BY = {
    "profiler-step": "profiler steps",
    "user-range": "a user range",
    "optimizer-hook": "optimizer hooks",
    "optimizer-kernels": "optimizer kernels",
    "xla-module": "XLA modules",
    "periodicity": "repetition",
}
#: What `perfdoctor run` took for the end of a step, by the name that its agent reports.
MARKED_BY = {
    "optimizer": "optimizer updates",
    "backward": "backward passes",
    "forward": "forward passes",
    "range": "your perfdoctor.step marks",
}
#: Sources that describe a machine and hold no timeline.
_OF_THE_MACHINE = frozenset(("cpu", "nvml", "topology", "nccl", "nccl-tests", "flight-recorder"))
#: Sources of single kernels, without a timeline.
_KERNELS_ALONE = frozenset(("ncu",))
#: A version says several: `schemaVersion 1, CUDA 12.6, HIP 7.2`. Only a hostile one is longer.
_VERSION_LIMIT = NAME_LIMIT
#: What is said of how to record what each of these tools records by itself, wherever there is any.
_BY_ITSELF = {"kineto": "record with torch.profiler"}
EFFORT = {"minutes": "minutes of work", "hours": "hours of work", "days": "days of work"}
#: Programs of which it is said: a rule about PyTorch is not checked there.
_FRAMEWORKS = {"jax": "JAX (XLA)", "triton": "Triton kernels, no framework", "cuda": "CUDA, no framework"}


# --- numbers ---------------------------------------------------------------------------------------------------------


def _three_digits(number: float) -> str:
    size = abs(number)
    return f"{number:,.0f}" if size >= 99.95 else f"{number:.1f}" if size >= 9.995 else f"{number:.2f}"


def _scaled(number: float, steps: Sequence[tuple[float, str]]) -> str:
    """The number in the largest unit that fits. `steps` ascend; 0.9995 of a unit is enough, so 1000 is never shown."""
    if not math.isfinite(number):
        return NO_NUMBER
    if number == 0:
        return "0"
    size, unit = next(((s, u) for s, u in reversed(steps) if abs(number) >= s * 0.9995), steps[0])
    return f"{_three_digits(number / size)} {unit}"


def duration(ns: float) -> str:
    if abs(ns) < 999.5 and ns == int(ns) != 0:
        return f"{int(ns)} ns"
    return _scaled(ns, ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")))


def share(fraction: float) -> str:
    if not math.isfinite(fraction):
        return NO_NUMBER
    if fraction == 0:
        return "0"
    if 0 < fraction < 0.01:
        return "<1 %"
    return ">99 %" if 0.99 < fraction < 1 else f"{fraction * 100:.0f} %"


def fine_share(fraction: float) -> str:
    """A share, with a decimal where it is small: `0.4 %`, `41 %`."""
    if not 0.0005 <= fraction < 0.0995:
        return "<0.1 %" if 0 < fraction < 0.0005 else share(fraction)
    return f"{fraction * 100:.1f} %"


def share_of(part: float, whole: float) -> str:
    return share(part / whole) if whole else NO_NUMBER


def size(number: float) -> str:
    """Bytes in powers of 1024, as usual for memory."""
    if abs(number) < 1023.5:
        return count(number) + " B"
    return _scaled(number, [(1024**power, f"{letter}iB") for power, letter in enumerate("KMGTP", 1)])


def rate(bytes_per_second: float) -> str:
    """Bytes a second in powers of 1000, as in data sheets of links and memories."""
    return _scaled(bytes_per_second, [(1, "B/s"), *((1000**p, f"{letter}B/s") for p, letter in enumerate("kMGTP", 1))])


def flop(number: float) -> str:
    """FLOP in powers of 1000."""
    return _scaled(number, [(1, "FLOP"), *((1000**p, f"{letter}FLOP") for p, letter in enumerate("kMGTPEZ", 1))])


def flop_rate(flop_per_second: float) -> str:
    return f"{flop(flop_per_second)}/s"


def count(number: float) -> str:
    if not math.isfinite(number):
        return NO_NUMBER
    if number == int(number):
        return f"{int(number):,}"
    return _three_digits(number)


def money(amount: float, currency: str = "") -> str:
    """`2.50 USD`, `23,300 EUR`, `0.000123`: three digits, and the currency where it is known."""
    if not math.isfinite(amount):
        return NO_NUMBER
    size = abs(amount)
    if size >= 999.5:
        rounded = round(amount, 2 - math.floor(math.log10(size)))
        said = f"{rounded:,.0f}"
    else:
        digits = 2 - math.floor(math.log10(size)) if 0 < size < 1 else 0 if size >= 99.95 else 2
        said = f"{amount:.{digits}f}"
    return f"{said} {currency}".rstrip()


#: A hundredth of the step is less than any recording's steps differ by.
_NEXT_TO_NOTHING = 100.0
#: Where less than a tenth of the step may be left, some per cent more or less double it: its share says all there is.
_MOST_KNOWN = 10.0
#: A range whose ends lie farther apart, as a factor, says not how much.
_MOST_RANGE = 2.0


def factor(number: float) -> str:
    """A speedup without the multiplication sign: 1.05, 2.6, 12."""
    if not math.isfinite(number):
        return NO_NUMBER
    if 1 < number < 1.005:
        return "<1.01"
    return f"{number:.2f}" if number < 1.195 else f"{number:.1f}" if number < 9.95 else f"{number:.0f}"


def speedup(times: Range[float]) -> str:
    """`2.6× (1.9–2.7)`; without the range where all three round to the same.

    Where next to nothing may be left of the step it is `2.6× (1.9 or more)`: no range can say how much that is. Where
    less than a tenth is likely left, and how much is not known, it is `more than 10×`.
    """
    low, likely, high = map(factor, times)
    if times.likely > _MOST_KNOWN and times.high > _MOST_RANGE * times.low:
        least = f" ({low} or more)" if times.low < _MOST_KNOWN else ""
        return f"more than {factor(_MOST_KNOWN)}×{least}"
    if times.high >= _NEXT_TO_NOTHING > times.likely:
        return f"{likely}× ({low} or more)"
    return f"{likely}×" if low == high else f"{likely}× ({low}–{high})"


def ranged(low: str, likely: str, high: str) -> str:
    """`3 ms (2 ms to 4 ms)`; without the range where its ends read the same."""
    return likely if low == high else f"{likely} ({low} to {high})"


def durations(low: float, likely: float, high: float) -> str:
    """`3 ms (2 ms to 4 ms)` of times in ns; see `between`."""
    return duration(likely) if duration(low) == duration(high) else f"{duration(likely)} ({between(low, high)})"


def between(low: float, high: float) -> str:
    """`2 ms to 4 ms`; `up to 4 ms` where next to nothing may be left, which no range can say."""
    return f"up to {duration(high)}" if low * _NEXT_TO_NOTHING < high else f"{duration(low)} to {duration(high)}"


def quantity(value: Value, unit: str, limit: int = NAME_LIMIT) -> str:
    """A value of evidence in its unit; a text stays text, whatever the unit."""
    if isinstance(value, str):
        return clean_name(value, limit)
    words = {"ns": duration, "bytes": size, "bytes_per_second": rate, "share": share, "count": count}
    return words.get(unit, count)(value)


def counted(number: int, noun: str) -> str:
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


# --- sentences -------------------------------------------------------------------------------------------------------


def the_base(diagnosis: Diagnosis) -> str:
    length = duration(diagnosis.base_ns)
    basis = diagnosis.basis
    return f"each {length} {basis.noun}{basis.of}" if basis.noun else f"the {length} recorded"


_SENTENCE = regex(r"(?<=[.!?]) (?=[A-Z`])")


def verdict(diagnosis: Diagnosis) -> str:
    """The first line of a report: the costliest finding and its predicted saving, or why there is none."""
    if diagnosis.gpu_not_recorded and any(source.cut_off for source in diagnosis.sources):
        return "The file is cut off in front of its GPU activity: only the host can be judged. Copy or record it again."
    if diagnosis.gpu_not_recorded:
        return "No GPU activity was recorded, although the program has a GPU: only its host can be judged."
    worth_fixing = [advice for advice in diagnosis.findings if advice.saving_ns_per_step.high or says_more(advice)]
    if worth_fixing:
        first = _no_clear_limit(diagnosis) or _worst(diagnosis, worth_fixing[0])
        return _partly_lost(diagnosis) + _mostly_recording(diagnosis) + first
    return _partly_lost(diagnosis) + _nothing_found(diagnosis) if diagnosis.time else _without_time(diagnosis)


def _without_time(diagnosis: Diagnosis) -> str:
    """The first line where no timeline was recorded."""
    if _is_of(diagnosis, _KERNELS_ALONE):
        limits = [_SENTENCE.split(note, maxsplit=1)[0] for note in diagnosis.notes if OF_MEASURED in note]
        found = [_of_measured(each) for each in diagnosis.findings[:1]]
        first = [*found, *limits, _first_note(diagnosis)][0]
        return f"{clean(first).rstrip('.')}. Single kernels were measured: their share of the whole is unknown."
    if diagnosis.memory:
        fullest = max(diagnosis.memory, key=lambda use: use.peak_bytes)
        reserved = f", {size(fullest.peak_reserved_bytes)} reserved" if fullest.peak_reserved_bytes >= 0 else ""
        return f"Memory peaks at {size(fullest.peak_bytes)} in use{reserved}. No timeline was recorded."
    if diagnosis.findings:
        return f"{clean(diagnosis.findings[0].title).rstrip('.')}. No timeline was recorded."
    if any(note.startswith(NO_KERNEL) for note in diagnosis.notes):
        return f"{NO_KERNEL}: what the GPU did is not known. Record CUDA as well: nsys profile --trace=cuda,nvtx."
    if describes_machine(diagnosis):
        return f"{_first_note(diagnosis)}. No problem found; no timeline was recorded."
    return "Nothing to diagnose: the recording contains neither GPU work nor a thread that runs ops."


def _nothing_found(diagnosis: Diagnosis) -> str:
    """The first line where nothing is worth fixing: because it is so, or because too little was seen."""
    others = len(nothing_to_record(diagnosis))
    unchecked = sum(outcome.status in ("skipped", "failed") for outcome in diagnosis.outcomes) - others
    rules = counted(len(diagnosis.outcomes) - others, "rule")
    if unchecked == len(diagnosis.outcomes) - others:
        return f"Nothing was diagnosed: none of {rules} could be checked on this recording."
    steps = diagnosis.steps
    if not steps.used and any(source.cut_off for source in diagnosis.sources):
        left = duration(diagnosis.time[0].window_ns)
        return f"Too little to say: the file is cut off, and {left} of it hold no whole step. Copy or record it again."
    if diagnosis.is_too_little:
        return (
            f"Too little to say: {counted(steps.used, 'step')} between {duration(steps.p10_ns)} and "
            f"{duration(steps.p90_ns)}, and no finding in them. Record more: perfdoctor run --steps 20."
        )
    limitation = f"; {unchecked} of {rules} could not be checked" if unchecked else ""
    largest, limit = _limit(diagnosis)
    # A step that is mostly idle or communication has a problem, even if no rule can prove its cause.
    said = "Nothing worth fixing" if largest == "compute" else "No cause was proven"
    if largest == "compute":
        said = next((note.partition(":")[0] for note in diagnosis.notes if note.startswith(IN_GRAPHS)), said)
    return f"{_mostly_recording(diagnosis)}{said}: {limit}{limitation}."


def _partly_lost(diagnosis: Diagnosis) -> str:
    """The warning that the file is cut off within its GPU activity, and how much of it is lost; else ""."""
    lost = next((note.partition(":")[0] for note in diagnosis.notes if note.startswith(LOST_LAUNCHES)), "")
    return f"{lost}. " if lost else ""


def _mostly_recording(diagnosis: Diagnosis) -> str:
    """The warning that more of the recorded step is recording than training, and what to do; else ""."""
    real = diagnosis.stretched
    if real is None or real.recorders_stretch <= MOSTLY_RECORDING:
        return ""
    do = "Give a step more work, a larger batch, or record fewer signals"
    do = "Record without --stacks" if real.has_stacks else do
    if not real.is_explained:
        return (
            f"Recorded steps are {factor(real.recorders_stretch)} times as long, "
            f"{duration(real.recorded_ns - real.by_others_ns)} instead of {duration(real.unrecorded_ns)}; "
            f"recording itself explains {duration(real.explained_ns)} of it: how they are divided says little of the "
            "training. "
        )
    return (
        f"Recording made this step {factor(real.recorders_stretch)} times as long, "
        f"{duration(real.recorded_ns - real.by_others_ns)} instead of "
        f"{duration(real.unrecorded_ns)}: how it is divided says little of the training. {do}. "
    )


def _no_clear_limit(diagnosis: Diagnosis) -> str:
    """The two findings that may be the costliest, where it is not clear which; else ""."""
    candidates = [
        f"{clean(each.title).rstrip('.')} ({share(each.saved.likely / (each.run_ns or diagnosis.base_ns))})"
        for each in diagnosis.contenders
    ]
    whole = "the training's time" if any(each.run_ns for each in diagnosis.contenders) else the_base(diagnosis)
    what = f"of {whole}, by ranges that overlap"
    return f"No clear limit: {' or '.join(candidates)} {what}." if candidates else ""


def _worst(diagnosis: Diagnosis, advice: Advice) -> str:
    title, saving, base = clean(advice.title).rstrip("."), advice.saved.likely, advice.run_ns or diagnosis.base_ns
    whole = of_training(advice) if advice.run_ns else the_base(diagnosis)
    if advice.run_ns:  # how much of the training it is says more than what to save of it
        title = _first_sentence(advice).rstrip(".")
    if says_more(advice):
        return _first_sentence(advice)
    if not saving or not base:
        return f"{title}. How much time a fix saves is unknown."
    if advice.confidence == "low":
        return f"{title}. Fixing it may take about {share(saving / base)} off {whole}, or much less (low confidence)."
    left = duration(max(base - saving, 0))
    gain = f"{share(saving / base)} off {whole}, to about {left}"
    times = f" ({factor(advice.speedup[1])}×)" if advice.speedup[1] <= _MOST_KNOWN else ""
    return f"{title}. Fixing it takes {gain}{times}."


def _first_sentence(advice: Advice) -> str:
    return _SENTENCE.split(clean_note(advice.summary), maxsplit=1)[0].replace("`", "")


def _of_measured(advice: Advice) -> str:
    """`Uncoalesced memory access: 75 % of the measured time`; the title alone of a finding that says no share."""
    title = clean(advice.title).rstrip(".")
    percents = [advice.values[name] for name in ("kernels_percent", "compute_percent") if name in advice.values]
    return f"{title}: {percents[0]:.0f} % of the measured time" if percents else title


def says_more(advice: Advice) -> bool:
    """Does the sentence of the finding say more than its saving, which is 0?"""
    return advice.is_verdict or costs_no_time(advice)


def costs_no_time(advice: Advice) -> bool:
    """Does it cost memory, and no time? Growing memory ends the run, but makes no step longer."""
    return advice.category == "memory" and not advice.saving_ns_per_step.high


def _limit(diagnosis: Diagnosis) -> tuple[str, str]:
    """The largest part, and the clause that says how much of the step it is."""
    window = sum(split.window_ns for split in diagnosis.time)
    outside = "time outside of ops" if without_gpu(diagnosis) else "idle time"
    sizes = {
        "compute": sum(split.compute_ns for split in diagnosis.time),
        "exposed communication": sum(split.exposed_communication_ns for split in diagnosis.time),
        "exposed copies": sum(split.exposed_copy_ns for split in diagnosis.time),
        outside: sum(split.idle_ns for split in diagnosis.time),
    }
    largest = max(sizes, key=lambda part: sizes[part])
    verb = {"compute": "fills", "exposed copies": "take"}.get(largest, "takes")
    whole = the_base(diagnosis)
    if diagnosis.stretched:
        whole = f"each {duration(diagnosis.recorded_ns)} {diagnosis.basis.noun} as recorded"
    return largest, f"{largest} {verb} {share_of(sizes[largest], window)} of {whole}"


def bar_heading(diagnosis: Diagnosis) -> str:
    one = diagnosis.basis.one
    what = f"{one[0].upper()}{one[1:]}" if diagnosis.per_step else "What was recorded"
    number, ranks = len(diagnosis.time), len({split.rank for split in diagnosis.time})
    mean = f", mean of {counted(number, 'rank' if number == ranks else 'device')}" if number > 1 else ""
    real = diagnosis.stretched
    recorded = f" as recorded ({duration(real.unrecorded_ns)} without)" if real else ""
    return f"{what}, {duration(diagnosis.recorded_ns)}{recorded}{mean}"


def saving(diagnosis: Diagnosis, advice: Advice) -> str:
    """`saves 431 ms of 701 ms a step, 2.6× (1.9–2.7)`."""
    likely = advice.saved.likely
    if costs_no_time(advice):
        return "costs memory, no time"
    if not advice.saving_ns_per_step.high:
        if diagnosis.time:
            return "note: saves nothing by itself"
        alone = _is_of(diagnosis, _KERNELS_ALONE)
        return "share of the program unknown" if alone else "saving unknown: no timeline was recorded"
    if not likely:
        return f"saving unknown, at most {duration(advice.saving_ns_per_step.high)} {saved_of(diagnosis, advice)}"
    return f"saves {duration(likely)} {saved_of(diagnosis, advice)}, {speedup(advice.speedup)}"


def confidence(word: str) -> str:
    return f"{word} confidence"


def rule_name(advice: Advice) -> str:
    """Id of the rule; `acme/slow-tokenizer from perf/rules` where it does not come with perfdoctor."""
    return f"{clean(advice.rule)} from {clean(advice.origin)}" if advice.origin else clean(advice.rule)


def certainty(advice: Advice) -> str:
    """The reasons for the confidence in one sentence; "" where none is given."""
    because = clean(advice.confidence_because)
    return f"{confidence(advice.confidence).capitalize()}: {because[0].lower()}{because[1:]}" if because else ""


def doubt(advice: Advice) -> str:
    """What lowers the confidence: all after the first semicolon (see `diagnosis/certainty.py`); "" where it is high."""
    against = clean(advice.confidence_because).partition("; ")[2]
    return f"Uncertain: {against}" if against and advice.confidence != "high" else ""


def fix_terms(fix: Fix | RuleFix) -> str:
    """`minutes of work, numerics unchanged; needs torch 2.0`"""
    numerics = "changes numerics" if fix.changes_numerics else "numerics unchanged"
    caution = f"; {clean(fix.caution)}" if fix.caution else ""
    return f"{EFFORT.get(fix.effort, fix.effort)}, {numerics}{caution}"


def recorded(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What was recorded, in a few short pieces: GPUs, ranks, steps, tools."""
    pieces = [*machines(diagnosis), _work(diagnosis), _steps(diagnosis)]
    tools = dict.fromkeys(clean(f"{source.kind} {source.tool_version}", _VERSION_LIMIT) for source in diagnosis.sources)
    return (*(piece for piece in pieces if piece), *tools)


def _work(diagnosis: Diagnosis) -> str:
    """`inference with vLLM`, `JAX (XLA)`; nothing is said of training with PyTorch, which is what people expect."""
    if diagnosis.kind_of_work != "inference":
        return _FRAMEWORKS.get(diagnosis.framework, "")
    return f"inference with {diagnosis.server}" if diagnosis.server else "inference"


def machines(diagnosis: Diagnosis) -> tuple[str, str]:
    """The GPUs by name, and how many of the job's ranks were recorded ("" if unknown)."""
    names = Counter(clean_name(gpu.name, 48) or "unnamed GPU" for gpu in diagnosis.gpus)
    gpus = ", ".join(name if number == 1 else f"{number} × {name}" for name, number in names.items())
    named = {use.rank for use in diagnosis.memory} | {gpu.rank for gpu in diagnosis.gpus}
    ranks = len({split.rank for split in diagnosis.time} | named)
    of_all = f" of {count(diagnosis.world_size)} ranks" if diagnosis.world_size > ranks else ""
    if diagnosis.memory and not diagnosis.time:  # a snapshot names none
        gpus = counted(len(diagnosis.memory), "GPU")
    if not (diagnosis.memory or diagnosis.time) and _is_of(diagnosis, _OF_THE_MACHINE | _KERNELS_ALONE):
        return gpus, ""
    none = "no GPU activity recorded" if diagnosis.gpu_not_recorded else "no GPU used"
    return gpus or none, f"{count(ranks)}{of_all}" if of_all else _ranks(diagnosis, ranks)


def _ranks(diagnosis: Diagnosis, ranks: int) -> str:
    """`2 ranks`; of several trainings of one command which one it is: `process 2 of 3`."""
    shown = next((process for process in diagnosis.processes if process.diagnosed), None)
    of_several = f"process {shown.number} of {len(diagnosis.processes)}" if shown else ""
    if ranks < 2 and of_several:
        return of_several
    return ", ".join(part for part in (counted(ranks, "rank") if ranks else "", of_several) if part)


def _steps(diagnosis: Diagnosis) -> str:
    steps = diagnosis.steps
    if not steps.count:
        if not diagnosis.time and _is_of(diagnosis, _OF_THE_MACHINE | _KERNELS_ALONE):
            return "no timeline recorded"
        nothing = f"no {diagnosis.basis.sought} found"
        return nothing if diagnosis.time or not diagnosis.memory else "memory only"
    doubt = "" if steps.confidence == "high" else f" ({confidence(steps.confidence)})"
    of_all = counted(steps.count, diagnosis.basis.noun or "step")
    return f"{count(steps.used)} of {of_all} used, found by {found_by(steps)}{doubt}"


def found_by(steps: StepStats) -> str:
    """`profiler steps` where the program marked them; of a recorder's own marks what each of them stands for."""
    if steps.marked_by in MARKED_BY:
        return f"perfdoctor run: {MARKED_BY[steps.marked_by]}"
    return FOUND_BY.get(steps.found_by, steps.found_by)


def without_gpu(diagnosis: Diagnosis) -> bool:
    """Did the program use no GPU, so that its training thread was judged?"""
    none = bool(diagnosis.time) and all(split.device is None for split in diagnosis.time)
    return none and not diagnosis.gpu_not_recorded


def about_gpus(diagnosis: Diagnosis) -> tuple[str, ...]:
    """The rules that were skipped since the program uses no GPU: nothing is to be recorded for them."""
    if not without_gpu(diagnosis):
        return ()
    return tuple(
        outcome.rule
        for outcome in diagnosis.outcomes
        if outcome.status == "skipped" and any(map(needs_gpu, outcome.missing))
    )


def of_nvidia(diagnosis: Diagnosis) -> tuple[str, ...]:
    """The rules that were skipped for lack of what NVIDIA's tools record, where every GPU is of another maker."""
    makers = {vendor(gpu.name) for gpu in diagnosis.gpus} or {""}
    if makers & {"", NVIDIA}:
        return ()
    return tuple(
        outcome.rule
        for outcome in diagnosis.outcomes
        if outcome.status == "skipped" and any(map(needs_nvidia, outcome.missing))
    )


def _recorded_in_vain(diagnosis: Diagnosis) -> tuple[str, ...]:
    """The rules that were skipped for lack of what the tool had nothing of: it records that by itself."""
    hints = {_BY_ITSELF[source.kind] for source in diagnosis.sources if source.kind in _BY_ITSELF}
    skipped = [outcome for outcome in diagnosis.outcomes if outcome.status == "skipped"]
    return tuple(
        outcome.rule
        for outcome in skipped
        if any(need in NEEDS and NEEDS[need].hint in hints for need in outcome.missing)
    )


def nothing_to_record(diagnosis: Diagnosis) -> frozenset[str]:
    """The skipped rules for which nothing is to be recorded: they count neither as checked nor as not checked."""
    return frozenset((*about_gpus(diagnosis), *of_nvidia(diagnosis), *_recorded_in_vain(diagnosis)))


def describes_machine(diagnosis: Diagnosis) -> bool:
    """Was anything read that describes the machine and holds no timeline?"""
    return _is_of(diagnosis, _OF_THE_MACHINE)


def _is_of(diagnosis: Diagnosis, kinds: frozenset[str]) -> bool:
    return any(source.kind in kinds for source in diagnosis.sources)


def _first_note(diagnosis: Diagnosis) -> str:
    """The reader's note on the first file, and how many more files there are."""
    files = list(dict.fromkeys(source.file for source in diagnosis.sources))
    heads = [(note, f"{file}: ") for file in files for note in diagnosis.notes]
    first = next((note.removeprefix(head) for note, head in heads if note.startswith(head)), "One file")
    more = f" ({counted(len(files) - 1, 'more file')})" if len(files) > 1 else ""
    return clean(first, 160).rstrip(".") + more


def where(span: Span) -> str:
    """`512 ms on rank 0, from 4.40 s to 4.91 s of the window`"""
    length, begin, end = (duration(ns) for ns in (span.end_ns - span.start_ns, span.start_ns, span.end_ns))
    where = f"at {begin}" if begin == end else f"from {begin} to {end}"
    return f"{length} on rank {span.rank}, {where} of the window"


def of_training(advice: Advice) -> str:
    """The time that a saving of the whole run is part of."""
    return f"the {duration(advice.run_ns)} of training"


def saved_of(diagnosis: Diagnosis, advice: Advice) -> str:
    """The time that a saving is part of: `of 701 ms a step`, `of the 42.0 s of training`."""
    if advice.run_ns:
        return f"of {of_training(advice)}"
    base = duration(diagnosis.base_ns)
    return f"of {base}{diagnosis.basis.each}" if diagnosis.per_step else f"of the {base} recorded"


def math_path(path: str) -> str:
    return MATH_PATHS[path] if path in MATH_PATHS else clean_name(path, 24)

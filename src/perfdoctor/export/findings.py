"""Which time intervals is a finding about, and how are they shown as tracks?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfdoctor.diagnosis.records import Examination, Found
from perfdoctor.export.slices import Slices
from perfdoctor.export.trace import Trace, Value
from perfdoctor.metrics.accounting.longest import analysed_span
from perfdoctor.metrics.finding_rows import thread_time
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.records.findings import Advice, Span, with_symptoms
from perfdoctor.replay.edits.actions import WORK_SIGNALS
from perfdoctor.replay.edits.chosen_work import chosen_of
from perfdoctor.vocabulary.basis import Basis
from perfdoctor.vocabulary.parts import IDLE_CAUSES, SHRINKS

#: The first track of the file, which identifies a file of perfdoctor.
FIRST_TRACK = "perfdoctor findings"
#: The category of the moments in a finding's evidence.
EVIDENCE = "evidence"
_MILLISECOND_NS = 1e6


def place_name(place: Place) -> str:
    return f"rank {place.rank}" + ("" if place.device is None else f" GPU {place.device}")


def add_findings(trace: Trace, examination: Examination) -> None:
    """Add to `trace` the analysed window, and a track a finding: a slice of the window, and its subject inside."""
    run, diagnosis = examination.run, examination.diagnosis
    top = trace.track(FIRST_TRACK, place=0)
    if run.places:
        name = "analysed window"
        track = trace.track(name, top, place=0)
        for number, place in enumerate(run.places):
            _add(trace, run, place, number, (name, track, top), slices_of(trace, name, place.window, "window"))
    ascending = sorted(examination.found, key=lambda found: found.saving.expected.likely)
    by_rule = {found.rule.id: found for found in ascending}
    for advice in with_symptoms(diagnosis.findings):
        name = f"{advice.rank}. {advice.rule}: {advice.title}"
        parent = trace.track(name, top, place=advice.rank)
        arguments = trace.arguments(_arguments(advice, diagnosis.basis))
        for number, place in enumerate(run.places):
            pieces = _pieces(place, by_rule[advice.rule])
            around = Intervals.single(int(place.window.starts[0]), int(place.window.ends[-1]))
            rows = Slices.join([
                slices_of(trace, advice.title, around, "finding", arguments, 0),
                slices_of(trace, advice.rule, pieces & place.window, "finding", UNKNOWN, 1),
                *_spans(trace, advice, place, run),
            ])  # fmt: skip
            _add(trace, run, place, number, (name, parent, top), rows)


def _add(trace: Trace, run: Run, place: Place, number: int, own: tuple[str, int, int], rows: Slices) -> None:
    """Add rows of a place to a finding's `own` track (name, number and parent), or below it if there are several."""
    name, track, top = own
    if len(run.places) == 1:
        trace.add(track, name, top, rows)
    else:
        name = place_name(place)
        trace.add(trace.track(name, track, place=number), name, track, rows, place=number)


def _arguments(advice: Advice, basis: Basis) -> dict[str, Value]:
    saving = advice.saving_ns_per_step
    unit = f"ms{basis.each}"
    return {
        "summary": advice.summary,
        "why": advice.why,
        "confidence": advice.confidence,
        **{
            f"predicted saving, {case} ({unit})": ns / _MILLISECOND_NS
            for case, ns in (("low", saving.low), ("likely", saving.likely), ("high", saving.high))
        },
        **{f"fix {number}": fix.title for number, fix in enumerate(advice.fixes, 1)},
    }


def _pieces(place: Place, found: Found) -> Intervals:
    """Idle time or work on `place` that the `found` finding is about; empty if it is about the whole window."""
    action, finding = found.rule.action, found.finding
    if finding.thread_time:
        return thread_time(place, finding)
    cause = SHRINKS.get(action, "")
    if cause in IDLE_CAUSES:
        return place.idle_causes[cause]
    if finding.rule == "exposed-communication":
        return place.exposed_communication
    if not finding.work or action not in WORK_SIGNALS:
        return Intervals.empty()
    signals = WORK_SIGNALS[action]
    rows = chosen_of(place, signals, finding.work)
    starts, ends = (
        np.concatenate([getattr(place.own(signal), edge) for signal in signals]) for edge in ("start_ns", "end_ns")
    )
    return Intervals.of(starts[rows], ends[rows])


def _spans(trace: Trace, advice: Advice, place: Place, run: Run) -> Iterator[Slices]:
    """Slices of the moments in the evidence of `advice`, whose times count from the begin of the window of `run`."""
    # Spans name only a rank, and are shown on its first device.
    is_first = place is next(each for each in run.places if each.rank == place.rank)
    begin, _ = analysed_span(run) or (0, 0)
    for each in advice.evidence:
        if is_first and isinstance(each, Span) and each.rank == place.rank:
            one = Intervals.single(begin + each.start_ns, begin + each.end_ns)
            yield slices_of(trace, each.label, one, EVIDENCE, UNKNOWN, 2)


def slices_of(trace: Trace, name: str, pieces: Intervals, category: str, args: int = UNKNOWN, level: int = 0) -> Slices:
    """Each interval as a slice of that name."""
    same = (level, trace.name(name), trace.category(category), args, 0)
    return Slices(pieces.starts, pieces.ends, *(np.full(len(pieces), value, np.int64) for value in same))

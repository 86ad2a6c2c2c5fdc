"""The device was idle and nothing that was recorded proves why; what is known of it is said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.detectors.affected import MOST_OF_IT, Affected, affected
from perfdoctor.detectors.of_idle import Idle, of_cause
from perfdoctor.detectors.saved_shares import NO_SAVING, Shares
from perfdoctor.metrics.accounting.idle_causes import ON_HOST
from perfdoctor.metrics.accounting.longest import longest_idle
from perfdoctor.metrics.accounting.queue_waits import Stood, by_stream, queue_waits, stood, unlaunched
from perfdoctor.metrics.accounting.queued import graphs_in_flight
from perfdoctor.metrics.machine.several_devices import others_busy
from perfdoctor.metrics.units import ms
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.steps import Confidence
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.records.findings import Evidence, Finding, Measure, Rows
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.signals import SIGNALS

#: Rules of a process with several devices, which say why one stands still while another works.
_SEVERAL_DEVICES = ("data-parallel", "uneven-gpus", "peer-copies")

#: Where it is not known what the host does meanwhile.
_NOWHERE = Stood("", 0, "", "")


class _Known(Struct, frozen=True):
    """What is known of most of the idle time, or what the recording lacks; and values of the situation's summary."""

    situation: str
    evidence: tuple[Evidence, ...] = ()
    recorded: str = ""
    stream: int = 0
    behind: str = ""
    awaited: str = ""
    inferred: bool = False
    longest_ms: float = 0.0
    host: Stood = _NOWHERE
    name: str = ""
    name_ms: float = 0.0


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find idle time without a proven cause: a fix may save all of it, and nothing is certain."""
    found = of_cause(run, "unknown", at["min_share_of_step"])
    if found is not None:
        # While another device of the process worked: what is queued here waits for that one, most likely.
        beside_ns = run.mean(lambda place: (place.idle_causes["unknown"] & others_busy(run, place)).total_ns)
        symptom_of = _SEVERAL_DEVICES if beside_ns >= MOST_OF_IT * found.ns else ()
        known = _of_most(found)
        measures = (
            Measure("GPU idle without a known cause", found.ns, "ns"),
            Measure("stretches a step", found.times_per_step, "count"),
        )
        known = replace(known, evidence=(*measures, *known.evidence, *longest_idle(run, "unknown")))
        yield _finding(found, known, Shares(0.0, 1.0).of(found.ns), "low", symptom_of)
        return
    # Not idle at all, most likely: kernels of CUDA graphs that the profiler lost. Nothing to win, but to know.
    inside = affected(run, _in_graphs_ns, at["min_share_of_step"])
    if inside is not None:
        lost = Measure("no kernel recorded while a CUDA graph ran", inside.ns, "ns")
        yield _finding(inside, _Known("inside-graphs", (lost,)), NO_SAVING, "medium")


def _finding(
    found: Affected, known: _Known, saving: Saving, confidence: Confidence, symptom_of: tuple[str, ...] = ()
) -> Finding:
    return Finding(
        rule="idle-unknown",
        saving_ns_per_step=saving,
        confidence=confidence,
        values={
            **found.time_values("idle"),
            "recorded": known.recorded,
            "stream": known.stream,
            "behind": known.behind,
            "longest_ms": known.longest_ms,
            "awaited": known.awaited,
            "inferred": int(known.inferred),
            "call": known.host.call,
            "call_ms": ms(known.host.ns),
            "source": known.host.op or known.host.line,
            "line": known.host.line if known.host.op else "",
            "name": known.name,
            "name_ms": known.name_ms,
        },
        evidence=known.evidence,
        situation=known.situation,
        symptom_of=symptom_of,
    )


def _of_most(found: Idle) -> _Known:
    place, most_ns = found.worst, MOST_OF_IT * found.pieces.total_ns
    recorded = [SIGNALS[signal].label for signal in ON_HOST if signal in found.run.timeline.recorded]
    if not recorded:
        return _Known("no-calls")
    named = " and ".join([", ".join(recorded[:-1]), recorded[-1]]).removeprefix(" and ")
    if place.device is not None and unlaunched(place).total_ns >= most_ns:
        return _Known("no-launches", recorded=named)
    if queue_waits(place).pieces.total_ns >= most_ns:
        return _queued(place)
    in_system = found.innermost("os_calls")
    if in_system and sum(each.idle_ns for each in in_system) >= most_ns:
        evidence = found.table("Calls of the operating system meanwhile", in_system)
        longest_ms = ms(place.per_step(in_system[0].idle_ns))
        return _Known("in-system", evidence, name=in_system[0].name, name_ms=longest_ms)
    in_view = any(each.host.in_view for each in found.run.places)
    return _Known("", recorded=named) if in_view else _Known("calls-only")


def _queued(place: Place) -> _Known:
    """Which stream waits in the longest stretch, behind what, and where the host is meanwhile."""
    waits = queue_waits(place)
    longest = int(waits.pieces.durations_ns.argmax())
    event, call = int(waits.event_wait[longest]), int(waits.meanwhile[longest])
    awaited = int(waits.awaited_stream[longest])
    table = Rows(
        "Launched work that did not start",
        ("stream", "behind", "host meanwhile in", "times", "idle a step", "longest"),
        ("count", "text", "text", "count", "ns", "ns"),
        tuple((*row[:4], place.per_step(row[4]), row[5]) for row in by_stream(place)[:5]),
    )
    return _Known(
        "queued",
        (table,),
        stream=int(place.work.stream[waits.work[longest]]),
        behind=place.timeline.calls.name[event] if event != UNKNOWN else "",
        awaited=str(awaited) if awaited != UNKNOWN else "",
        inferred=waits.inferred,
        longest_ms=ms(int(waits.pieces.durations_ns[longest])),
        host=stood(place, call) if call != UNKNOWN else _NOWHERE,
    )


def _in_graphs_ns(place: Place) -> int:
    if not place.host.graph_nodes_recorded:
        return 0
    return (place.idle_causes["queue_latency"] & graphs_in_flight(place.work, place.timeline.calls)).total_ns

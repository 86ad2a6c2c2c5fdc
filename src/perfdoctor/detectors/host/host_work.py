"""The host runs code that issues nothing, while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_idle
from perfdoctor.detectors.savings import shares
from perfdoctor.metrics.accounting.behind_idle import (
    Culprit,
    culprits,
    host_rows,
    innermost_with_most,
    launched_next,
)
from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.metrics.units import ms
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.vocabulary.names.host_work import kind_of
from perfdoctor.vocabulary.names.python_code import is_user_function


def _pieces(place: Place, shortest_ns: float) -> Intervals:
    """On a run without a GPU, of the time in which no thread runs an op only stretches of at least `shortest_ns`.

    A short one there is how Python asks for the next op, or another process on the same core.
    """
    pieces = place.idle_causes["host_work"]
    if not isinstance(place, HostPlace):
        return pieces
    ops = place.timeline.ops.of(rank=place.rank)
    pieces = pieces - Intervals.of(ops.start_ns, ops.end_ns)
    long = pieces.durations_ns >= shortest_ns
    return Intervals.of(pieces.starts[long], pieces.ends[long])


def _named(place: Place, pieces: Intervals) -> list[Culprit]:
    """Ops first, on whatever thread: a range around the backward pass waits for the thread that runs it."""
    ops = host_rows(place, ("ops",))
    others = host_rows(place, ("ranges", "functions"))
    rest = pieces - Intervals.of(ops.start_ns, ops.end_ns)
    return sorted([*culprits(pieces, ops), *culprits(rest, others)], key=lambda each: -each.idle_ns)


def _inside(name: str, name_ms: float) -> str:
    """` (178.2 ms in `name`)`: the library's function that the user's line is in most of the time, where one is."""
    return f" ({name_ms:.1f} ms in `{name}`)" if name and not is_user_function(name) else ""


def _mostly_before(following: list[Culprit], least_ns: float) -> str:
    """`; most of it before `name``, where one kernel or op ended that much of the idle time."""
    most = next((each.name for each in following if each.idle_ns >= least_ns), "")
    return f"; most of it before `{most}`" if most else ""


def _launches(place: Place, following: list[Culprit]) -> Rows:
    return Rows(
        "The next launch is of",
        ("kernel or op", "times", "idle before it, a step"),
        ("text", "count", "ns"),
        tuple((each.name, each.count, place.per_step(each.idle_ns)) for each in following[:5]),
    )


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Idle in which the launching thread was late and busy with something that is none of the other causes."""
    shortest_ns = at["min_stretch_without_gpu_ms"] * 1e6
    found = of_idle(run, at["min_share_of_step"], lambda place: _pieces(place, shortest_ns))
    if found is None:
        return
    worst, pieces = found.worst, found.pieces
    named = _named(worst, pieces)
    functions = host_rows(worst, ("functions",))
    lines = culprits(pieces, functions.take(functions.name.where(is_user_function)))
    best = (lines or named)[:1]
    known = bool(best) and best[0].idle_ns >= at["named_share"] * pieces.total_ns
    inside, inside_ns = innermost_with_most(pieces, functions, at["named_share"])
    following = launched_next(worst, pieces)
    yield Finding(
        rule="host-work",
        saving_ns_per_step=shares(at, "recoverable_share").of(found.ns),
        confidence="high" if known else "medium",
        values={
            **found.time_values("work"),
            "name": best[0].name if known else "",
            "name_ms": ms(worst.per_step(best[0].idle_ns)) if known else 0.0,
            "inside": _inside(inside, ms(worst.per_step(inside_ns))) if known and inside != best[0].name else "",
            "longest_ms": ms(found.longest_ns),
            "following": _mostly_before(following, at["named_share"] * pieces.total_ns),
        },
        evidence=(
            Measure("idle while the host ran code that issues nothing", found.ns, "ns"),
            Measure("longest stretch", found.longest_ns, "ns"),
            *found.table("Lines of your own code meanwhile", lines),
            *found.table("Innermost op, range or function meanwhile", named),
            *((_launches(worst, following),) if following and not known else ()),
        ),
        situation=(kind_of(inside, best[0].name) or "named") if known else "",
    )

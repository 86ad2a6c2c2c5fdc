"""The host runs code that issues nothing, while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.detectors.of_idle import Idle, of_idle
from perfdoctor.metrics.accounting.behind_idle import Culprit, culprits, host_rows, innermost_with_most, launched_next
from perfdoctor.metrics.accounting.host_place import HostPlace, host_places
from perfdoctor.metrics.accounting.start import first_uses
from perfdoctor.metrics.host.short_ops import between_ops
from perfdoctor.metrics.units import ms, us
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.names.base_names import base_name, without_numbers
from perfdoctor.vocabulary.names.python_code import is_function, is_user_function, kind_of
from perfdoctor.vocabulary.names.torch import call_of

#: In a sentence.
_LONGEST_NAME = 64


class _HostTime(Struct, frozen=True):
    """The time that counts: without a GPU `long` stretches between ops, and `short` ones if they are many."""

    long: Intervals
    short: Intervals

    @property
    def pieces(self) -> Intervals:
        return self.long | self.short


def _seen(place: Place, at: Mapping[str, float]) -> _HostTime:
    """The time of the place that counts.

    Without a GPU a short stretch may be the call of the next op, and a single long one another process: a stretch
    counts if it is usually there, or longer than another process would keep the core.
    """
    if not isinstance(place, HostPlace):
        return _HostTime(place.idle_causes["host_work"] - first_uses(place), Intervals.empty())
    between = between_ops(place)
    long = between.usually(at["long_stretch_without_gpu_ms"] * 1e6) | between.once(
        at["min_stretch_without_gpu_ms"] * 1e6
    )
    short = between.usually(at["python_between_ops_ns"]) - long
    is_much = place.share(short.total_ns) >= at["min_share_of_short_stretches"]
    return _HostTime(long, short if is_much else Intervals.empty())


def _parts_ns(found: Idle, seen: _HostTime, least_ns: float) -> tuple[float, float]:
    """Ns a step that a fix may save: of code of its own, and of Python around ops beyond `least_ns` each."""
    if not isinstance(found.worst, HostPlace):
        return found.ns, 0.0
    each_ns = found.ns / max(found.pieces.total_ns, 1)
    beyond_ns = np.maximum(seen.short.durations_ns - least_ns, 0).sum()
    return each_ns * seen.long.total_ns, each_ns * float(beyond_ns)


def _named(place: Place, pieces: Intervals) -> list[Culprit]:
    """Ops, on any thread, and beside them ranges and functions: one around the backward pass waits for its thread.

    Ranges that differ in a number (`load layer 7`) are one piece of code.
    """
    ops = host_rows(place, ("ops",))
    others = host_rows(place, ("ranges", "functions"))
    rest = pieces - ops.intervals
    beside = _of_one_code(culprits(rest, others))
    return sorted([*culprits(pieces, ops), *beside], key=lambda each: -each.idle_ns)


def _of_one_code(found: list[Culprit]) -> list[Culprit]:
    """Return them with ranges that differ in numbers alone taken together; a function keeps the line it begins on."""
    by_name: dict[str, list[Culprit]] = {}
    for each in found:
        by_name.setdefault(each.name if is_function(each.name) else without_numbers(each.name), []).append(each)
    return [
        each[0]
        if len(each) == 1
        else Culprit(
            name,
            sum(one.count for one in each),
            sum(one.idle_ns for one in each),
            sum(one.total_ns for one in each),
        )
        for name, each in by_name.items()
    ]


def _best(place: Place, pieces: Intervals, found: list[Culprit], least_share: float) -> tuple[Culprit | None, bool]:
    """What names the code, and whether it may be what the program is for: the name says nothing against it.

    What ran innermost, or else the op around it, or the range.
    """
    if found and found[0].idle_ns >= least_share * pieces.total_ns:
        return found[0], False
    for signal in ("ops", "ranges"):
        name, ns = innermost_with_most(pieces, host_rows(place, (signal,)), least_share)
        if name:
            return Culprit(name, 0, ns, 0), signal == "ranges"
    return None, True


def _short(name: str) -> str:
    """The name, of a kernel with all its types the function alone: its evidence has the whole."""
    return base_name(name) if len(name) > _LONGEST_NAME else name


def _launches(place: Place, following: list[Culprit]) -> Rows:
    rows = tuple((each.name, each.count, place.per_step(each.idle_ns)) for each in following[:5])
    columns = ("kernel or op", "times", "idle before it, a step")
    return Rows("The next launch is of", columns, ("text", "count", "ns"), rows)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find idle time in which the launching thread was late and busy with something that no other cause names."""
    found = of_idle(run, at["min_share_of_step"], lambda place: _seen(place, at).pieces)
    if found is None:
        return
    worst, pieces = found.worst, found.pieces
    seen = _seen(worst, at)
    named = _named(worst, pieces)
    functions = host_rows(worst, ("functions",))
    lines = culprits(pieces, functions.take(functions.name.where(is_user_function)))
    named_ns = at["named_share"] * pieces.total_ns
    best, is_needed = _best(worst, pieces, lines or named, at["named_share"])
    known = best is not None
    inside, inside_ns = innermost_with_most(pieces, functions, at["named_share"])
    following = launched_next(worst, pieces)
    is_short = seen.short.total_ns > MOST_OF_IT * seen.pieces.total_ns
    long_ns, beyond_ns = _parts_ns(found, seen, at["python_between_ops_ns"])
    if not (run.per_step or known or host_places(run)):  # code without a name that came once may be all that is needed
        long_ns = 0.0
    # A long stretch may run in one of fifty steps, or beside them; what it does must be known to say so of all of it.
    may_be_needed = is_needed and not host_places(run)
    most_ns = run.step_ns * (1 - 1 / at["speedup_without_a_name"]) if may_be_needed else found.ns
    likely_ns = min(at["recoverable_share_likely"] * long_ns + beyond_ns, most_ns)
    low_ns = int(min(at["recoverable_share_low"] * found.ns, likely_ns))
    on_host = {place.rank: _seen(place, at).pieces for place in host_places(run)}
    yield Finding(
        rule="host-work",
        saving_ns_per_step=Saving(low_ns, int(likely_ns), found.ns),
        confidence="high" if known else "medium",
        values={
            **found.time_values("work"),
            "name": best.name if best else "",
            "name_ms": ms(worst.per_step(best.idle_ns)) if best else 0.0,
            # The library's function that the user's line is in most of the time, where one is.
            "inside": inside if best and inside != best.name and not is_user_function(inside) else "",
            "inside_ms": ms(worst.per_step(inside_ns)),
            "longest_ms": ms(found.longest_ns),
            "long_ms": ms(long_ns),
            "beyond_ms": ms(beyond_ns),
            "most_ms": ms(min(most_ns, found.ns)),
            "times": found.times_per_step,
            "mean_us": us(pieces.total_ns / max(len(pieces), 1)),
            # What the user calls next behind so much of the idle time; a kernel's name where it launches one.
            "following": next((_short(call_of(each.name)) for each in following if each.idle_ns >= named_ns), ""),
        },
        evidence=(
            Measure("idle while the host ran code that issues nothing", found.ns, "ns"),
            Measure("longest stretch", found.longest_ns, "ns"),
            *found.table("Lines of your own code meanwhile", lines),
            *found.table("Innermost op, range or function meanwhile", named),
            *([_launches(worst, following)] if following and not known else []),
        ),
        situation=(kind_of(inside, best.name) or "named") if best else "short" if is_short else "",
        affected_ns=found.ns if host_places(run) else 0,
        thread_time={rank: (each.starts, each.ends) for rank, each in on_host.items()},
    )

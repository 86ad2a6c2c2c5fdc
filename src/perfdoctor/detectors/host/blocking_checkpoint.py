"""The training's own thread writes or reads files while the device has nothing to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.saved_shares import shares
from perfdoctor.metrics.accounting.behind_idle import each_step_ns, host_rows
from perfdoctor.metrics.accounting.driving_threads import driving_threads
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.vocabulary.names import system as system_names
from perfdoctor.vocabulary.names import torch as torch_names

_SIGNS = {
    "ranges": torch_names.STORAGE,
    "ops": torch_names.STORAGE,
    "functions": torch_names.STORAGE,
    "os_calls": system_names.FILE_CALL,
}


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find idle time during file work on the rank that loses most: the others wait for it in their next collective.

    The saving is a mean over all steps; only some of them save, and the values say how many, and the longest time.
    """
    if not run.places:
        return
    place = run.worst(lambda place: place.idle_ns("storage"))
    window_ns = place.idle_ns("storage")
    share = place.share(window_ns)
    if share < at["min_share_of_step"] or _only_reads_once(place):
        return
    storage_ns, step_ns = place.per_step(window_ns), place.per_step(place.window_ns)
    each_ns = each_step_ns(place, place.idle_causes["storage"])
    hit = int((each_ns >= at["min_share_of_step"] * step_ns).sum())
    in_steps = (
        Measure("steps with file work in the loop", hit, "count"),
        Measure("steps analysed", each_ns.size, "count"),
        Measure("longest in one step", int(each_ns.max()), "ns"),
    )
    yield Finding(
        rule="blocking-checkpoint",
        saving_ns_per_step=shares(at, "recoverable_share").of(storage_ns),
        confidence="high" if place.steps.used and hit > 1 else "medium",
        values={
            "storage_ms": ms(storage_ns),
            "step_ms": ms(step_ns),
            "storage_percent": percent(share),
            "steps_hit": hit,
            "steps_seen": each_ns.size,
            "longest_ms": ms(int(each_ns.max())),
        },
        evidence=(
            Measure(f"idle during file work on rank {place.rank}, on the mean", storage_ns, "ns"),
            *(in_steps if place.steps.used else ()),
            _work(place),
        ),
        situation=("once" if hit == 1 else "") if place.steps.used else "window",
    )


def _only_reads_once(place: Place) -> bool:
    """Is most of it reading, in a recording without steps, as at a program's start?"""
    if place.steps.used:
        return False
    reads = host_rows(place, ("os_calls",)).named(system_names.READ_CALL)
    storage = place.idle_causes["storage"]
    return 2 * (storage & reads.intervals).total_ns > storage.total_ns


def _work(place: Place) -> Rows:
    """The file calls of the training's thread, by name; one may stand inside another."""
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    threads = driving_threads(place.timeline, place.rank)
    for signal, sign in _SIGNS.items():
        rows = place.timeline[signal].of(rank=place.rank)
        rows = rows.take(np.isin(rows["thread"], threads) & rows.name.matches(sign))
        waited = place.idle_causes["storage"].overlap_ns(rows.start_ns, rows.end_ns)
        for name, waited_ns, whole_ns in zip(rows.name, waited.tolist(), rows.duration_ns.tolist(), strict=True):
            if waited_ns:
                count[name] += 1
                total[name] += whole_ns
    return Rows(
        "What the training's thread called meanwhile",
        ("name", "count", "time"),
        ("text", "count", "ns"),
        tuple((name, count[name], ns) for name, ns in total.most_common(5)),
    )

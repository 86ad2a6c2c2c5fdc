"""Memory is filled with zeros again and again, with nothing beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_copies
from perfdoctor.metrics.copies.transfers import asked_by, by_op, bytes_of, copies_of, exposed_ns
from perfdoctor.metrics.finding_rows import kernels_and_copies
from perfdoctor.metrics.kernels.optimizer import filled_by_zero_grad
from perfdoctor.metrics.units import ms
from perfdoctor.metrics.work.device_peaks import attained
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.names import torch as torch_names


def _memsets(place: Place) -> Mask:
    """One bool a copy: is it a memset outside zero_grad, which has a rule of its own?"""
    return copies_of(place, "memset") & ~filled_by_zero_grad(launches_of(place, "copies"))


def _asked_for(place: Place) -> Mask:
    """One bool a copy: did the program itself ask for zeros, and no op that needs them to add something up?"""
    return _memsets(place) & asked_by(place).matches(torch_names.FILL_ON_REQUEST)


def _beyond_one_fill_ns(place: Place) -> float:
    """Ns of the window that ops' own memsets take longer than one that fills as many bytes at the memory's rate."""
    rows, known = _memsets(place) & ~_asked_for(place), attained(place)
    if known is None or not known.memory_bytes_per_second:
        return 0.0
    return max(exposed_ns(place, rows) - bytes_of(place, rows) / known.memory_bytes_per_second * 1e9, 0.0)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find memsets that no kernel hides: one beside compute costs nothing."""
    found = of_copies(run, _memsets, at["min_share_of_step"])
    if found is None:
        return
    # Zeros that the program asks for and overwrites go; of those that an operator needs, the latency.
    asked_ns = min(run.mean(lambda place: exposed_ns(place, _asked_for(place))), found.ns)
    latency_ns = min(run.mean(_beyond_one_fill_ns), found.ns - asked_ns)
    yield found.finding(
        rule="memset-heavy",
        saving=Saving(0, asked_ns + latency_ns, found.ns),
        confidence="medium" if _asked_for(found.worst).any() else "low",
        values={
            "memsets_per_step": found.per_step,
            "megabytes": found.megabytes(),
            **found.time_values("exposed"),
            "asked_ms": ms(asked_ns),
            "latency_ms": ms(latency_ns),
        },
        evidence=(
            Measure("memsets with nothing beside them", found.ns, "ns"),
            by_op(found.worst, found.worst_rows, f"Memsets of rank {found.worst.rank}, a step"),
        ),
        acts_on=lambda place: kernels_and_copies(place, copies=_memsets(place)),
    )

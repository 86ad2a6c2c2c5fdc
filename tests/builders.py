"""Timelines drawn as text (`perfdoctor.own_rules.drawn`), as the tests of rules, metrics and reports want them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from perfdoctor.detectors import detector
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline
from perfdoctor.own_rules.drawn import (
    BASE_NS,
    COLLECTIVES,
    COPIES,
    HOST,
    KERNELS,
    draw,
    draw_steps,
    frame,
    timeline,
)
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.places import GPU
from perfdoctor.vocabulary.rulebook import load_rules
from perfdoctor.vocabulary.sentences import filled

__all__ = [
    "BASE_NS", "COLLECTIVES", "COPIES", "ELEMENTWISE", "FOREACH_ADAM", "GEMM", "HOST", "KERNELS", "SGEMM", "TF32_GEMM",
    "draw", "draw_steps", "findings", "frame", "full_queue", "idle_units", "of_step", "only_finding", "only_place",
    "paused_ms_per_step", "pauses_ns", "summary", "timeline",
]  # fmt: skip

GEMM, SGEMM, TF32_GEMM = KERNELS["G"], KERNELS["S"], KERNELS["T"]
ELEMENTWISE, FOREACH_ADAM = KERNELS["e"], KERNELS["M"]


def full_queue(host: str) -> Timeline:
    """Six steps of 40 ms in which the device is busy all the time: the host launches 45 ms ahead, and then does this."""
    return draw(kernels="#" * 40, host=["l" + " " * 39, "  " + host], host_ahead=45, repeat=6, unit_us=1000)


def only_place(drawn: Timeline) -> Place:
    """The one place of a picture with one device."""
    (place,) = prepare(drawn).places
    return place


def idle_units(place: Place, unit_us: float = 100) -> dict[str, float]:
    """The causes of idle that occur, in units of the picture."""
    causes = {cause: pieces.total_ns for cause, pieces in place.idle_causes.items()}
    assert sum(causes.values()) == place.idle.total_ns
    return {cause: ns / (unit_us * 1000) for cause, ns in causes.items() if ns}


def pauses_ns(drawn: Timeline) -> Iterator[tuple[int, int]]:
    """From the end of each kernel of the one device to the start of the next, inside the analysed window."""
    window = only_place(drawn).window
    low, high = int(window.starts[0]), int(window.ends[-1])
    work = sorted(zip(drawn.kernels.start_ns.tolist(), drawn.kernels.end_ns.tolist(), strict=True))
    for (_, end), (start, _) in itertools.pairwise(work):
        begin = max(end, low)
        yield begin, max(min(start, high), begin)


def paused_ms_per_step(drawn: Timeline) -> float:
    """All of these pauses, in ms a step: what plain counting gives."""
    return sum(end - start for start, end in pauses_ns(drawn)) / only_place(drawn).units / 1e6


def findings(rule_id: str, drawn: Timeline | Run, **thresholds: float) -> list[Finding]:
    """What one rule finds, with its own thresholds but those given; every summary has been rendered."""
    rule = load_rules()[rule_id]
    assert not thresholds.keys() - rule.thresholds.keys(), "unknown threshold"
    run = drawn if isinstance(drawn, Run) else prepare(drawn)
    found = list(detector(rule)(run, {**rule.at, **thresholds}))
    for finding in found:
        assert finding.rule == rule_id
        assert "{" not in summary(finding)
    return found


def only_finding(rule_id: str, drawn: Timeline | Run, **thresholds: float) -> Finding:
    (finding,) = findings(rule_id, drawn, **thresholds)
    return finding


def of_step(part: str, ms: float, step_ms: float) -> dict[str, object]:
    """What a finding must say of a part of the step that takes so many ms of so many."""
    approx = pytest.approx
    return {
        f"{part}_ms": approx(ms),
        "step_ms": approx(step_ms),
        f"{part}_percent": approx(100 * ms / step_ms, rel=1e-4),
    }


def summary(finding: Finding) -> str:
    """The finding in its rule's words."""
    rule = load_rules()[finding.rule]
    template = rule.summaries.get(finding.situation, rule.summary)
    return filled(template, {**GPU, **finding.values}, rule.clauses)

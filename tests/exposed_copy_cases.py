"""Drawn steps in which copies run while no kernel does, and what every rule about them must say."""

from __future__ import annotations

import pytest
from builders import draw

from perfdoctor.model.timeline import Timeline
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving

MS = 1_000_000


def exposed_step(exposed: int, char: str, *, of: int = 40, **more: object) -> Timeline:
    """Steps of `of` ms: a copy of `exposed` ms, drawn by `char`, then kernels."""
    picture = {
        "copies": char * exposed + " " * (of - exposed),
        "kernels": " " * exposed + "#" * (of - exposed),
        "launched_us_before": 50,
        "repeat": 6,
        "unit_us": 1000,
    }
    return draw(**{**picture, **more})


def assert_a_quarter_is_exposed(finding: Finding, counted: str) -> None:
    """Of 10 ms at 25 GB/s in a step of 40 ms. `counted`: the value that holds their number. Half of the time is assumed to be avoidable."""
    assert finding.values == {
        counted: 1.0,
        "megabytes": pytest.approx(250.0),
        "exposed_ms": 10.0,
        "step_ms": 40.0,
        "exposed_percent": 25.0,
    }
    assert finding.saving_ns_per_step == Saving(0, 5 * MS, 10 * MS)

"""Drawn steps in which copies run while no kernel does, and what every rule about them must say."""

from __future__ import annotations

import pytest
from builders import draw_steps, of_step

from perfdoctor.model.timeline import Timeline
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving

MS = 1_000_000


def exposed_step(exposed: int, char: str, *, of: int = 40, **more: object) -> Timeline:
    """Steps of `of` ms: a copy of `exposed` ms, drawn by `char`, then kernels."""
    picture = {"copies": char * exposed + " " * (of - exposed), "kernels": " " * exposed + "#" * (of - exposed)}
    return draw_steps(**{**picture, **more})


def zero_grad_memsets() -> Timeline:
    """Steps of 40 ms in which zero_grad launches a memset of 10 ms with no kernel beside it."""
    return draw_steps(
        copies=" " * 10 + "m" * 10 + " " * 20,
        kernels="#" * 10 + " " * 10 + "#" * 20,
        host=["lll", " z"],
        launched_us_before=None,
        legend={"z": ("ranges", "Optimizer.zero_grad#SGD.zero_grad")},
    )


def assert_a_quarter_is_exposed(finding: Finding, counted: str, *, likely_ms: float = 5) -> None:
    """Of 10 ms at 25 GB/s in a step of 40 ms. `counted`: the value that holds their number."""
    numbers = {counted: 1.0, "megabytes": pytest.approx(250.0), **of_step("exposed", 10.0, 40.0)}
    assert finding.values == {**finding.values, **numbers}
    assert finding.saving_ns_per_step == Saving(0, round(likely_ms * MS), 10 * MS)

"""What every rule about exposed copies must say of 10 ms of them, at 25 GB/s, in a step of 40 ms."""

from __future__ import annotations

import pytest

from perfdoctor.records.findings import Finding

MS = 1_000_000


def assert_a_quarter_is_exposed(finding: Finding, counted: str) -> None:
    """`counted`: the value that holds their number. Half of the time is assumed to be avoidable."""
    assert finding.values == {
        counted: 1.0,
        "megabytes": pytest.approx(250.0),
        "exposed_ms": 10.0,
        "step_ms": 40.0,
        "exposed_percent": 25.0,
    }
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (0, 5 * MS, 10 * MS)

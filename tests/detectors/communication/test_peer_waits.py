"""peer-waits: the host waits for other processes."""

from __future__ import annotations

import pytest
from builders import findings
from idle_cause_cases import WAITS_FOR_PEERS


@pytest.mark.parametrize("function", ["barrier", "monitored_barrier", "all_gather_object", "broadcast_object_list"])
def test_collectives_of_objects_are_such_waits(function):
    name = f"torch/distributed/distributed_c10d.py(2400): {function}"
    assert len(findings("peer-waits", WAITS_FOR_PEERS.step(10, "z", legend={"z": ("functions", name)}))) == 1

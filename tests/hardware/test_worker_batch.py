"""What a batch from a worker costs, from the three batches that were measured."""

from __future__ import annotations

import pytest
from measured_builders import measurement, rates

from perfdoctor.hardware.worker_batch import TYPICAL, of_machine


def measured(what: str, batch: float, tensor: float, byte: float, **more: float) -> list[dict[str, object]]:
    """The three batches of the script that measures a machine, of a machine with these costs in ns."""
    batches = ((1, 4096), (16, 65_536), (1, 4 << 20))
    return [
        measurement(what, batch + tensor * n + byte * size, unit="ns", tensors=n, bytes=size, **more)
        for n, size in batches
    ]


def test_costs_of_a_batch_a_tensor_and_a_byte_are_told_apart():
    found = of_machine(rates(*measured("worker_receive", 50e3, 20e3, 0.1), *measured("worker_send", 80e3, 9e3, 0.3)))
    assert found.is_measured
    assert found.receive_ns(2, 1_000_000, pinned=False) == pytest.approx(50e3 + 2 * 20e3 + 0.1e6)
    assert found.send.ns(3, 10_000) == pytest.approx(80e3 + 3 * 9e3 + 3e3)
    assert found.receive_ns(2, 1_000_000, pinned=True) == pytest.approx(50e3)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        measured("worker_receive", 50e3, 20e3, 0.1),
        [*measured("worker_receive", 50e3, 20e3, 0.1, spread=0.9), *measured("worker_send", 80e3, 9e3, 0.3)],
        [*measured("worker_receive", 50e3, 20e3, 0.1)[:2], *measured("worker_send", 80e3, 9e3, 0.3)],
    ],
)
def test_what_was_not_measured_or_not_steadily_is_as_usual(rows):
    assert of_machine(rates(*rows)) is TYPICAL


def test_a_large_batch_that_was_quicker_costs_no_less_than_nothing():
    rows = measured("worker_receive", 50e3, 20e3, -0.01)
    found = of_machine(rates(*rows, *measured("worker_send", 80e3, 9e3, 0.3)))
    assert found.receive.byte_ns == 0
    assert found.receive.ns(1, 1 << 30) > 0


def test_an_older_document_says_nothing_of_workers():
    assert of_machine(None) is TYPICAL

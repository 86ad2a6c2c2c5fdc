"""broadcast-buffers: DistributedDataParallel sends the buffers before each forward pass."""

from __future__ import annotations

from builders import draw_steps, findings, only_finding
from collective_builders import MS, described, under

from perfdoctor.records.savings import Saving

LEGEND = {"F": ("ranges", "DistributedDataParallel.forward"), "M": ("ranges", "Megatron.forward")}


def step(waits: int = 4, *, of: int = 40, forward: str = "F", beside: bool = False):
    """The broadcast is launched 50 µs before it starts, inside the forward's range."""
    compute = "#" * (of - waits - 2)
    return draw_steps(
        kernels="##" + ("#" if beside else " ") * waits + compute,
        nccl="  " + "=" * waits + " " * len(compute),
        host=[" " + forward * (of - 2) + " "],
        legend=LEGEND,
    )


def test_it_fires_where_the_forward_pass_waits_for_buffers():
    finding = only_finding("broadcast-buffers", described(step(), kind="broadcast"))
    assert finding.values["broadcasts_per_step"] == 1
    assert finding.values["exposed_ms"] == 4
    assert finding.saving_ns_per_step == Saving(1.2 * MS, 4 * MS, 4 * MS)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("broadcast-buffers", described(step(1, of=40), kind="broadcast")) == []
    assert len(findings("broadcast-buffers", described(step(1, of=33), kind="broadcast"))) == 1


def test_it_stays_silent_for_what_else_the_forward_pass_sends():
    assert findings("broadcast-buffers", step()) == []


def test_it_stays_silent_for_broadcasts_that_are_not_ddps():
    """Tensor parallelism broadcasts each batch: that is data."""
    assert findings("broadcast-buffers", described(step(forward="M"), kind="broadcast")) == []


def test_it_stays_silent_where_compute_hides_them():
    assert findings("broadcast-buffers", described(step(beside=True), kind="broadcast")) == []


def test_it_is_a_symptom_of_exposed_communication():
    assert "broadcast-buffers" in under(described(step(), kind="broadcast"), "exposed-communication")

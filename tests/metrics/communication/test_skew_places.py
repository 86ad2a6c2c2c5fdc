"""rank-skew: what it must not count: collectives of which nobody knows who came last, and devices without any."""

from __future__ import annotations

from builders import draw_steps, findings
from msgspec.structs import replace

from perfdoctor.model.timeline import Frame, Text, Timeline, merge


def rank(number: int, late: int, *, kind: str = "all_reduce") -> Timeline:
    """A sum that this rank comes to `late` units later than the others, and 20 units in a message, of 40 a step."""
    drawn = draw_steps(
        kernels="#" * (10 + late) + " " * (30 - late),
        nccl=" " * (10 + late) + "=" * (4 - late) + "  " + "-" * 20 + " " * 4,
        rank=number,
    )
    is_sum = drawn.collectives.duration_ns < 10_000_000
    kinds = Text.of("all_reduce" if row else kind for row in is_sum.tolist())
    return replace(drawn, frames={**drawn.frames, "collectives": drawn.collectives.with_columns(kind=kinds)})


def test_messages_between_two_ranks_are_not_taken_for_as_late_as_the_sums():
    """2 of 4 units of the sums are waiting: of 40 that is 5 %. Of the 20 units of messages nobody knows."""
    job = merge([rank(0, 0, kind="send_recv"), rank(1, 0, kind="send_recv"), rank(2, 2, kind="send_recv")])
    (finding,) = findings("rank-skew", job)
    assert finding.values["waiting_ms"] == 2


def test_a_second_device_without_collectives_has_no_part_in_it():
    job = merge([rank(0, 0), rank(1, 0), rank(2, 2)])
    kernels = job.kernels
    beside = kernels.with_columns(device=kernels["device"] + 1)
    both = replace(job, frames={**job.frames, "kernels": Frame.join([kernels, beside])})
    (alone,), (found,) = findings("rank-skew", job), findings("rank-skew", both)
    assert found.values["late_rank"] == alone.values["late_rank"] == 2
    assert found.values["waiting_ms"] == alone.values["waiting_ms"]

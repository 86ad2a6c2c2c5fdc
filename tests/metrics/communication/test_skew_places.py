"""rank-skew: what it must not count: collectives of which nobody knows who came last, and devices without any."""

from __future__ import annotations

import pytest
from builders import draw, draw_steps, findings
from collective_builders import described
from msgspec.structs import replace

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.messages import messages
from perfdoctor.metrics.host.pace import paced_waiting_ns
from perfdoctor.model.timeline import Frame, Text, Timeline, merge
from perfdoctor.replay.edits.other_ranks import measured


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


def with_second_devices(job: Timeline) -> Timeline:
    """The job with the same kernels on one more device of each process, without collectives."""
    beside = job.kernels.with_columns(device=job.kernels["device"] + 1)
    return replace(job, frames={**job.frames, "kernels": Frame.join([job.kernels, beside])})


def test_a_second_device_without_collectives_has_no_part_in_it():
    job = merge([rank(0, 0), rank(1, 0), rank(2, 2)])
    (alone,), (found,) = findings("rank-skew", job), findings("rank-skew", with_second_devices(job))
    assert found.values["late_rank"] == alone.values["late_rank"] == 2
    assert found.values["waiting_ms"] == alone.values["waiting_ms"]


def test_who_is_late_by_turns_is_asked_of_the_device_with_collectives():
    def rank_of_three(number: int) -> Timeline:
        arrives = [30 if step % 3 == number else 10 for step in range(9)]
        nccl = "".join(" " * at + "=" * (40 - at) for at in arrives)
        return draw(kernels="".join("#" * at + " " * (40 - at) for at in arrives), nccl=nccl, rank=number)

    job = merge([rank_of_three(number) for number in range(3)])
    (alone,), (found,) = findings("rank-skew", job), findings("rank-skew", with_second_devices(job))
    assert found.values["caused_percent"] == alone.values["caused_percent"]


def test_transfers_are_measured_on_the_device_with_collectives():
    job = described(merge([rank(0, 0), rank(1, 0), rank(2, 2)]), bytes=4096)
    alone, found = (list(measured(prepare(each))) for each in (job, with_second_devices(job)))
    assert alone == found
    assert alone


def test_what_all_hosts_hold_up_is_asked_of_the_device_with_collectives():
    host = ["l" + " " * 18 + "l" + " " * 20, "o" * 40]
    late = "#" * 10 + " " * 12 + "#" * 10 + " " * 8
    ranks = [("#" * 20 + " " * 20, " " * 20 + "=" * 20)] * 2 + [(late, " " * 32 + "=" * 8)]
    job = merge([
        draw(kernels=kernels, nccl=nccl, host=host, rank=number, repeat=6, unit_us=10)
        for number, (kernels, nccl) in enumerate(ranks)
    ])  # fmt: skip
    alone, found = (paced_waiting_ns(prepare(each), "launch_bound") for each in (job, with_second_devices(job)))
    assert found == pytest.approx(alone, rel=0.05)
    assert alone


def test_messages_are_between_the_devices_with_collectives():
    def stage(number: int, peers: str) -> Timeline:
        drawn = draw_steps(kernels="#" * 10 + " " * 10, nccl=" " * 10 + "-" * 5 + " " * 5, rank=number)
        count = len(drawn.collectives)
        named = drawn.collectives.with_columns(peers=Text.of([peers] * count), kind=Text.of(["send_recv"] * count))
        return replace(drawn, frames={**drawn.frames, "collectives": named})

    places = prepare(with_second_devices(merge([stage(0, ">1"), stage(1, "<0")]))).places
    (ends,) = messages(places)
    assert [(places[end].rank, len(places[end].collectives) > 0) for end in ends] == [(0, True), (1, True)]

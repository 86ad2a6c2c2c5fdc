"""What would ranks win that met once a step, instead of many times?"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace
from talking import DISPATCH_NS, UNIT_NS, talking

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.merged_collectives import evened_ns, messages_ns, most_bytes
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.model.timeline import UNKNOWN, Text
from perfdoctor.vocabulary.names.nccl import STARTS_COLLECTIVE


@pytest.mark.parametrize("computing", [[[5, 8], [8, 5]], [[5, 9], [8, 5]], [[4, 8, 6], [8, 5, 6], [6, 6, 9]]])
def test_waiting_by_turns_goes_and_waiting_for_the_rank_that_has_more_to_do_stays(computing):
    """In plain Python: by how much the step is longer with a meeting behind each part than with one behind all."""
    parts = len(computing[0])
    by_parts = sum(max(own[part] for own in computing) for part in range(parts))
    at_once = max(sum(own) for own in computing)
    run = prepare(talking(computing, 3, parts=parts)[0])
    assert evened_ns(run, skew(run)) == (by_parts - at_once) * UNIT_NS


def test_of_a_rank_that_is_always_late_nothing_is_evened():
    run = prepare(talking([5, 8], 3, parts=4)[0])
    assert evened_ns(run, skew(run)) == 0


def test_what_the_quickest_take_every_message_costs():
    run = prepare(talking([5, 5], [1, 9, 1, 9], parts=4)[0])
    quick_ns = UNIT_NS - DISPATCH_NS
    assert messages_ns(run, skew(run), 0.25) == 3 * quick_ns  # of four one is left
    run = prepare(talking([5, 5], 9)[0])
    assert messages_ns(run, skew(run), 0.25) == 0


def test_what_disturbs_a_message_now_and_then_goes_but_for_one_of_them():
    """Four steps of two messages of 10, one of which takes 50 once."""
    took = np.array([10, 10, 10, 10, 50, 10, 10, 10])
    place = SimpleNamespace(
        rank=0, units=4, steps=SimpleNamespace(even_bounds=np.arange(5) * 100),
        recorded_collectives=SimpleNamespace(start_ns=np.array([0, 10, 100, 110, 200, 210, 300, 310])),
    )  # fmt: skip
    matched = SimpleNamespace(shortest_ns=took, ranks=(0,), rows=np.arange(8)[None])
    # A step's messages take 30 on the mean; undisturbed 10 each, which is the price of one; 10 of unrest come half as often.
    assert messages_ns(SimpleNamespace(places=[place]), matched, 0.25) == 30 - (10 + 10 / 2)


@pytest.mark.parametrize(
    ("shapes", "carried"),
    [("[[[64, 128]], []]", 8 * 64 * 128), ("[[4, 2]]", 64), ("[[[4], [2]]]", 48), ("[[]]", UNKNOWN), ("x", UNKNOWN),
     (f"[[{2**40}, {2**40}]]", UNKNOWN), ("[[-4, 2]]", UNKNOWN)],
)  # fmt: skip
def test_a_message_carries_what_its_shapes_say_as_far_as_a_column_holds_that(shapes, carried):
    drawn = talking([5, 5], 3, shapes="[[4, 4], [4, 4]]")[0]
    ops = drawn.ops
    given = [shapes if STARTS_COLLECTIVE.match(name) else "" for name in ops.name]
    run = prepare(replace(drawn, frames={**drawn.frames, "ops": ops.with_columns(input_shapes=Text.of(given))}))
    assert set(most_bytes(run.places[0]).tolist()) == {carried}

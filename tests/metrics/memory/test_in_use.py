"""Played back from its end, a snapshot tells what was in use behind each event: as an allocator of our own counted."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshots import MIB, Recording

from perfdoctor.metrics.memory.in_use import SnapshotReplay, replays
from perfdoctor.metrics.memory.peak import memory_uses, out_of_memories
from perfdoctor.readers.torch_memory import snapshot as memory_snapshot

CALLS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30 * MIB)), max_size=40)


def replay_of(made: Recording) -> SnapshotReplay:
    with tempfile.TemporaryDirectory() as folder:
        (found,) = replays(memory_snapshot.read(made.write(Path(folder) / "run.pickle")))
    return found


def uses_of(made: Recording):
    with tempfile.TemporaryDirectory() as folder:
        return memory_uses(memory_snapshot.read(made.write(Path(folder) / "run.pickle")))


def play(calls, before: int):
    """The recording of these calls, and behind each event what an allocator that was watched all along holds."""
    made, seen = Recording(), {}

    def watch() -> None:
        position = len(made.events) - 1
        seen[position] = (made.active_bytes, made.reserved_bytes, sorted(size for _, size in made.free_pieces()))

    def do(kind: int, size: int) -> None:
        if kind == 1 and made.blocks:
            made.free(sorted(made.blocks)[size % len(made.blocks)])
        elif kind == 2 and made.segments:
            empty = [at for at, length in made.segments.items() if (at, length) in made.free_pieces()]
            for at in empty[:1]:
                made.release(at)
        else:
            made.alloc(size, "work/train.py:1 step")

    for kind, size in calls[:before]:
        do(kind, size)
    made.begin()
    watch()
    for kind, size in calls[before:]:
        do(kind, size)
        watch()
    return made, seen


@given(CALLS, st.integers(0, 15))
def test_behind_each_event_it_holds_what_the_allocator_held(calls, before):
    made, seen = play(calls, before)
    if not made.segments and not made.events:
        return
    replay = replay_of(made)
    for position, (active, reserved, free) in seen.items():
        assert (replay.active_at(position), replay.reserved_at(position)) == (active, reserved)
        assert sorted(replay.free_pieces(position).tolist()) == free
    # An allocation that needs a new segment is two events: the peak lies behind the second, which was watched.
    assert replay.active_at(replay.peak_at) == max(active for active, _, _ in seen.values())


@given(CALLS)
def test_the_parts_of_the_peak_sum_to_it(calls):
    made, _ = play(calls, 5)
    if not made.segments:
        return
    (use,) = uses_of(made)
    assert sum(use.by_category.values()) == use.peak_bytes
    assert use.free_bytes + use.peak_bytes == use.peak_reserved_bytes
    if len(use.holders) < 10:
        assert sum(holder.bytes for holder in use.holders) == use.peak_bytes


def test_expandable_segments_are_undone_piece_by_piece(tmp_path):
    made = Recording()
    made.alloc(10 * MIB)
    start = next(iter(made.segments))
    made.begin()
    made._event("segment_map", addr=start + 20 * MIB, size=40 * MIB, frames=[])
    made.segments[start] = 60 * MIB
    made.alloc(45 * MIB)
    made._event("segment_unmap", addr=start + 56 * MIB, size=4 * MIB, frames=[])
    made.segments[start] = 56 * MIB
    whole = made.snapshot()
    whole["segments"][0]["is_expandable"] = True
    made.snapshot = lambda: whole
    replay = replay_of(made)
    assert [replay.reserved_at(at) // MIB for at in (-1, 0, 1, 2)] == [20, 60, 60, 56]
    assert [(replay.free_pieces(at) / MIB).tolist() for at in (-1, 0, 1, 2)] == [[10], [50], [5], [1]]


def fragmented(pieces: int = 12, piece: int = 16 * MIB) -> Recording:
    """Every second of many blocks is freed, and then something larger than a block is asked for, again and again."""
    made = Recording(segment_bytes=2 * pieces * piece)
    kept = [made.alloc(piece, "work/data.py:1 keep") for _ in range(2 * pieces)]
    made.begin()
    for address in kept[::2]:
        made.free(address)
    made.segment_bytes = 2 * piece
    for _ in range(4):
        made.alloc(2 * piece, "work/train.py:1 step")
    return made


def test_a_segment_that_would_not_have_been_needed_is_one_that_free_pieces_would_have_filled():
    refits = replay_of(fragmented()).refits()
    assert (refits.count, refits.reserved_bytes // MIB, refits.free_bytes // MIB, refits.largest_free_bytes // MIB) == (
        4, 24 * 16, 12 * 16, 16,
    )  # fmt: skip


def test_memory_of_another_stream_is_not_free():
    made = fragmented()
    for event in made.events:
        if event["action"] in ("segment_alloc", "alloc"):
            event["stream"] = 9
    whole = made.snapshot()
    for segment in whole["segments"][1:]:
        segment["stream"] = 9
    made.snapshot = lambda: whole
    assert replay_of(made).refits().count == 0


def test_a_reserve_that_grows_with_the_need_was_needed():
    made = Recording()
    made.alloc(16 * MIB)
    made.begin()
    for _ in range(8):
        made.alloc(20 * MIB)
    assert replay_of(made).refits().count == 0


def test_what_failed_is_reported_as_it_stood_then_and_not_as_it_stood_in_the_end():
    made = fragmented()
    made.fail(300 * MIB, 200 * MIB, "work/train.py:5 loss")
    free = [size for _, size in made.free_pieces()]
    active, reserved = made.active_bytes, made.reserved_bytes
    for address in sorted(made.blocks)[:6]:  # the program catches the error and drops its batch
        made.free(address)
    with tempfile.TemporaryDirectory() as folder:
        (failed,) = out_of_memories(memory_snapshot.read(made.write(Path(folder) / "run.pickle")))
    assert (failed.active_bytes, failed.reserved_bytes) == (active, reserved)
    assert sorted(failed.free_pieces.tolist()) == sorted(free)
    assert failed.movable_bytes == sum(size // (20 * MIB) for size in free) * 20 * MIB


@pytest.mark.parametrize(
    ("device_free_mib", "free_mib", "fits"),
    [(100, 20, True), (99, 20, False), (100, 19, False), (120, 0, False), (0, 120, True)],
)
def test_it_would_have_fitted_if_whole_free_pages_and_what_the_gpu_has_left_reach(device_free_mib, free_mib, fits):
    made = Recording(segment_bytes=200 * MIB)
    made.alloc((200 - free_mib) * MIB)
    made.fail(120 * MIB, device_free_mib * MIB)
    with tempfile.TemporaryDirectory() as folder:
        (failed,) = out_of_memories(memory_snapshot.read(made.write(Path(folder) / "run.pickle")))
    assert failed.fits_in_pieces is fits


def test_holders_are_listed_by_line_and_purpose_the_most_first():
    made = Recording()
    for size in (3, 5):
        made.alloc(size * MIB, "work/model.py:1 forward")
    made.alloc(7 * MIB, "work/train.py:2 step")
    (use,) = uses_of(made)
    assert [(holder.line, holder.category, holder.bytes // MIB, holder.count) for holder in use.holders] == [
        ("work/model.py:1 forward", "activations", 8, 2),
        ("work/train.py:2 step", "unknown", 7, 1),
    ]
    assert use.by_category == {"activations": 8 * MIB, "unknown": 7 * MIB}


def test_running_totals_of_the_profiler_tell_the_same_peak():
    from builders import timeline  # noqa: PLC0415

    totals = [(5, 10), (9, 12), (4, 12)]
    (use,) = memory_uses(timeline(memory_totals=[
        {"rank": 0, "process": 1, "device": 0, "start_ns": at, "end_ns": at, "allocated_bytes": a, "reserved_bytes": r, "name": "[memory]"}
        for at, (a, r) in enumerate(totals)
    ]))  # fmt: skip
    assert (use.peak_bytes, use.peak_reserved_bytes, use.most_reserved_bytes, use.allocated_bytes) == (9, 12, 12, 4)
    assert (use.source, use.active_bytes, use.free_pieces) == ("profiler", -1, -1)

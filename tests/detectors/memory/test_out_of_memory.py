"""out-of-memory: a request that failed, and what there was."""

from __future__ import annotations

import pytest
from builders import findings, only_finding, summary
from snapshots import MIB, Recording

from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.torch_memory import snapshot as memory_snapshot
from perfdoctor.records.savings import Saving

LOSS = "work/loss.py:21 cross_entropy"


def failed(tmp_path, *, asked: int = 100, left: int = 30, pieces: int = 5, piece: int = 20) -> Timeline:
    """In MiB: 200 held in layers with free pieces between them, and a request that fails."""
    made = Recording(segment_bytes=(200 + pieces * piece) * MIB)
    gaps = []
    for _ in range(pieces):
        made.alloc(200 * MIB // pieces, "work/model.py:4 forward")
        gaps.append(made.alloc(piece * MIB, "work/model.py:5 forward"))
    for address in gaps:
        made.free(address)
    made.fail(asked * MIB, left * MIB, LOSS)
    return memory_snapshot.read(made.write(tmp_path / "run.pickle"))


def test_it_fires_and_tells_what_was_asked_and_what_there_was(tmp_path):
    finding = only_finding("out-of-memory", failed(tmp_path, asked=500))
    assert finding.values == {
        "line": LOSS, "asked_mib": 500, "active_mib": 200, "device_free_mib": 30, "free_mib": 100, "reserved_mib": 300,
        "pieces": 5, "largest_mib": 20,
    }  # fmt: skip
    assert (finding.confidence, finding.situation) == ("high", "")
    assert "requested 500 MiB while PyTorch had 200 MiB in use" in summary(finding)


def test_it_saves_no_time(tmp_path):
    assert only_finding("out-of-memory", failed(tmp_path)).saving_ns_per_step == Saving(0, 0, 0)


def test_who_held_most_is_named(tmp_path):
    finding = only_finding("out-of-memory", failed(tmp_path))
    (table,) = [each for each in finding.evidence if hasattr(each, "rows")]
    assert table.rows == (("work/model.py:4 forward", "activations", 200 * MIB, 5),)


@pytest.mark.parametrize(
    ("asked", "left", "situation"),
    [
        (130, 30, "pieces"),  # five pages of 20 MiB lie free, and 30 MiB are left on the GPU
        (131, 30, ""),  # near miss: 1 MiB too much for both
        (100, 0, "pieces"),
        (101, 0, ""),
    ],
)
def test_it_says_so_where_the_free_pieces_would_have_been_enough(tmp_path, asked, left, situation):
    assert only_finding("out-of-memory", failed(tmp_path, asked=asked, left=left)).situation == situation


def test_pieces_just_below_a_page_of_the_allocator_cannot_be_moved(tmp_path):
    assert only_finding("out-of-memory", failed(tmp_path, asked=60, left=30, piece=19)).situation == ""


def test_with_expandable_segments_already_on_they_are_not_proposed(tmp_path):
    timeline = failed(tmp_path)
    segments = timeline["memory_segments"]
    growing = segments.with_columns(is_expandable=segments["is_expandable"] | True)
    on = Timeline.build({**timeline.frames, "memory_segments": growing}, timeline.recorded)
    assert only_finding("out-of-memory", on).situation == ""


def test_it_stays_silent_where_nothing_failed(tmp_path):
    made = Recording()
    made.alloc(500 * MIB)
    assert findings("out-of-memory", memory_snapshot.read(made.write(tmp_path / "run.pickle"))) == []


def test_it_stays_silent_where_the_cache_was_emptied_to_meet_a_request(tmp_path):
    """Segments that are given back are what the allocator tries before it fails: here it did not."""
    made = Recording()
    made.free(made.alloc(500 * MIB))
    made.release(next(iter(made.segments)))
    made.alloc(600 * MIB)
    assert findings("out-of-memory", memory_snapshot.read(made.write(tmp_path / "run.pickle"))) == []


def test_the_last_of_several_counts_and_all_are_counted(tmp_path):
    made = Recording()
    made.alloc(10 * MIB)
    made.fail(200 * MIB, 5 * MIB, "work/first.py:1 f")
    made.fail(300 * MIB, 5 * MIB, LOSS)
    finding = only_finding("out-of-memory", memory_snapshot.read(made.write(tmp_path / "run.pickle")))
    assert finding.values["line"] == LOSS
    assert {each.label: each.value for each in finding.evidence if hasattr(each, "value")}["requests that failed"] == 2


def test_a_request_without_a_stack_is_still_reported(tmp_path):
    made = Recording()
    made.alloc(10 * MIB)
    made.fail(200 * MIB, 5 * MIB)
    finding = only_finding("out-of-memory", memory_snapshot.read(made.write(tmp_path / "run.pickle")))
    assert finding.values["line"] == "A request without a stack"

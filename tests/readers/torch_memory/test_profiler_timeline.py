"""torch.profiler's memory timeline: bytes by purpose, summed as a plain loop sums them."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import pytest
from folders import public
from snapshots import MIB, Recording

from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.memory.peak import memory_uses
from perfdoctor.readers.open import read

#: time, action (1 there before, 2 made, 3 changes its purpose, 4 freed), bytes, category
ROWS = [
    [-1, 1, 100, 0],  # a parameter
    [50, 2, 40, 7],  # something
    [60, 3, -40, 7],  # that turns out to be an activation
    [60, 3, 40, 4],
    [70, 2, 30, 5],  # a gradient: the peak
    [80, 4, -40, 4],
]


def written(tmp_path: Path, rows: object, name: str = "memory.raw.json") -> Path:
    path = tmp_path / name
    data = json.dumps(rows).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["memory.raw.json", "memory.raw.json.gz", "other"])
def test_the_peak_is_split_by_purpose(tmp_path, name):
    (use,) = memory_uses(read([written(tmp_path, ROWS, name)]))
    assert (use.peak_bytes, use.allocated_bytes, use.peak_reserved_bytes, use.source) == (170, 130, -1, "timeline")
    assert use.by_category == {"parameters": 100, "activations": 40, "gradients": 30}


def test_what_was_there_before_has_the_time_of_the_first_change(tmp_path):
    timeline = read([written(tmp_path, ROWS)])
    assert timeline["memory_changes"].start_ns.tolist() == [50, 50, 60, 60, 70, 80]
    assert list(timeline["memory_changes"].name)[:2] == ["parameters", "unknown"]


def test_beside_a_snapshot_of_the_same_rank_the_snapshot_counts(tmp_path):
    made = Recording()
    made.alloc(3 * MIB)
    timeline = read([made.write(tmp_path / "run.pickle"), written(tmp_path, ROWS)])
    (use,) = memory_uses(timeline)
    assert (use.source, use.peak_bytes) == ("snapshot", 3 * MIB)
    assert [source.ranks for source in timeline.sources] == [(0,), (0,)]


@pytest.mark.parametrize(
    "rows",
    [[*ROWS, [1, 2]], [*ROWS, [1, 9, 5, 0]], [*ROWS, [1, 2, 5, 8]], [*ROWS, [1, 2, 2**60, 0]], [*ROWS, ["x", 1, 2, 3]]],
)
def test_rows_of_another_kind_are_refused_with_their_reason(tmp_path, rows):
    with pytest.raises(PerfdoctorError, match="holds rows of another kind"):
        read([written(tmp_path, rows)])


def test_a_file_that_breaks_off_is_refused_with_its_reason(tmp_path):
    path = written(tmp_path, ROWS * 100, "memory.raw.json.gz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(PerfdoctorError, match="breaks off"):
        read([path])


@pytest.mark.recordings
def test_a_real_one_sums_as_a_plain_loop_does():
    path = public("memory/memory_timeline.raw.gz")
    held: dict[int, int] = defaultdict(int)
    peak, at_peak = 0, {}
    for _, _, size, category in json.loads(gzip.decompress(path.read_bytes())):
        held[category] += size
        if sum(held.values()) > peak:
            peak, at_peak = sum(held.values()), {number: size for number, size in held.items() if size}
    (use,) = memory_uses(read([path]))
    assert use.peak_bytes == peak
    assert sorted(use.by_category.values()) == sorted(at_peak.values())
    assert use.by_category["parameters"] == at_peak[0]

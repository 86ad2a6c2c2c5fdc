"""Would `benchmarks/invariance.py` see a different answer, and does it change nothing but how a training was recorded?"""

from __future__ import annotations

import json

import invariance
import numpy as np
import pytest
import recorded_otherwise
from folders import FIXTURES
from invariance import Answer, Result, differences, judged, reason, section, written
from recorded_otherwise import CHANGES, Change

from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.open import read

SAME = Change("the same")
LAUNCH_BOUND = Answer("launch-bound", None, (0.3, 0.4, 0.5), {"launch-bound": 0.4, "host-work": 0.1}, {"compute": 0.5, "launch_bound": 0.5})  # fmt: skip


def answered(first: str = "launch-bound", likely: float = 0.4, rank: int | None = None, **shares: float) -> Answer:
    named = {name.replace("_", "-"): share for name, share in shares.items()}
    return Answer(first, rank, (0.3, likely, 0.5), {first: likely, **named}, LAUNCH_BOUND.parts)


def of(name: str) -> Change:
    return next(change for change in CHANGES if change.name == name)


def recorded(case: str = "launch-bound") -> Timeline:
    return read([FIXTURES / case / "torch"])


@pytest.mark.parametrize(
    ("change", "after", "size"),
    [
        (SAME, answered(likely=0.43), 0.0),  # within a tenth
        (SAME, answered(likely=0.46), 0.06),
        (Change("", part=True), answered(likely=0.49), 0.0),  # within the stated range
        (SAME, answered("host-work", 0.395, launch_bound=0.39), 0.295),  # it saved 0.1
        (SAME, answered("host-work", 0.1), 0.4),
        (Change("", less=True), answered("host-work", 0.1), 0.0),  # unknown now; what is left is as it was
        (Change("", less=True), answered("host-work", 0.3), 0.4),
    ],
)
def test_what_counts_as_another_answer(change, after, size):
    found = differences(change, LAUNCH_BOUND, after, None)
    assert found[1] == pytest.approx(size)
    assert bool(found[0]) == bool(size)


def test_two_findings_of_equal_weight_may_change_places():
    before, after = answered(host_work=0.395), answered("host-work", 0.395, launch_bound=0.4)
    assert differences(SAME, before, after, None) == ("", 0.0)


def test_another_rank_is_another_answer():
    before = answered(rank=2)
    assert differences(SAME, before, answered(rank=2), 2) == ("", 0.0)
    assert differences(SAME, before, answered(rank=1), 2) == ("rank 2 → 1", 0.4)
    assert differences(SAME, before, answered(rank=0), 0) == ("", 0.0), "the ranks were permuted"


def test_another_partition_is_another_answer():
    after = Answer("launch-bound", None, LAUNCH_BOUND.saving, LAUNCH_BOUND.shares, {"compute": 0.5, "host_sync": 0.5})
    assert differences(SAME, LAUNCH_BOUND, after, None)[1] == pytest.approx(0.5)
    assert differences(Change("", scaled=True), LAUNCH_BOUND, after, None) == ("", 0.0)


def test_a_device_clock_moves_what_the_device_did_alone():
    before = recorded()
    change = of("device clock 40 µs early").timeline
    assert change is not None
    after = change(before)
    assert after is not None
    assert (after.kernels.start_ns - before.kernels.start_ns == -40_000).all()
    assert (after.calls.start_ns == before.calls.start_ns).all()


def test_permuted_ranks_keep_what_each_did():
    before = recorded("straggler")
    change = of("ranks permuted").timeline
    assert change is not None
    after = change(before)
    assert after is not None
    for rank, new in recorded_otherwise.permuted(before.ranks).items():
        assert np.array_equal(after.kernels.of(rank=new).start_ns, before.kernels.of(rank=rank).start_ns)


def test_a_graph_a_step_keeps_all_work_and_joins_it_to_one_call_a_step():
    before = recorded("fp32-matmuls")
    change = of("a CUDA graph a step").timeline
    assert change is not None
    after = change(before)
    assert after is not None
    assert np.array_equal(after.kernels.start_ns, before.kernels.start_ns)
    graphs = after.calls.named(recorded_otherwise.cuda_names.GRAPH_LAUNCH)
    assert 0 < len(graphs) < len(before.calls) / 10
    assert set(after.kernels["correlation"].tolist()) <= set(graphs["correlation"].tolist())


@pytest.mark.parametrize("name", [change.name for change in CHANGES if change.trace])
def test_a_trace_written_otherwise_holds_the_same_events(name):
    (path,) = (FIXTURES / "launch-bound" / "torch").iterdir()
    document = recorded_otherwise.read_trace(path)
    change = of(name).trace
    assert change is not None
    again = json.loads(change(document))["traceEvents"]
    kept = [each for each in document["traceEvents"] if name != "trace without arrows" or each["ph"] not in "stf"]
    assert (
        sorted(map(repr, map(sorted, map(dict.items, again))))
        == sorted(map(repr, map(sorted, map(dict.items, json.loads(json.dumps(kept))))))
        or name == "trace with decimals"
    )
    assert len(again) == len(kept)


@pytest.mark.parametrize("case", ["launch-bound", "sync-drains-queue", "straggler"])
def test_the_projects_recordings_get_the_same_answer(case):
    results = judged((case, FIXTURES / case / "torch"), ["device*", "*order*", "*numbers*", "ranks*", "trace*"])
    assert len(results) > 10
    assert [result for result in results if result.what] == []


def test_exceptions_are_listed_with_their_reason_and_what_has_none_is_a_defect(tmp_path, monkeypatch):
    reasons = tmp_path / "invariance.toml"
    reasons.write_text('[[exception]]\nchange = "all*"\nrecordings = ["wild/*"]\nreason = "because"\n')
    monkeypatch.setattr(invariance, "REASONS", reasons)
    known, unknown = (Result(name, "all times doubled", "first a → b", 0.3) for name in ("wild/a", "nsys/b"))
    assert (reason(known), reason(unknown)) == ("because", "")
    page = written("# A page\n", list(section([known, unknown, Result("wild/c", "all times doubled", "", 0.0)])))
    assert "| wild/a | all times doubled | first a → b | 30% | because |" in page
    assert "| nsys/b | all times doubled | first a → b | 30% | **a defect** |" in page
    assert "1 the same (33.3%)" in page
    assert written(page, ["new"]).count(invariance.BEGIN) == 1
    assert "wild/a" not in written(page, ["new"])

"""Which work is a run's time? Without a GPU: ops where it computes, and the user's lines where it does not."""

from __future__ import annotations

from builders import BASE_NS, timeline

from perfdoctor.comparison.work import work_of
from perfdoctor.metrics.accounting.prepare import prepare

STEP_NS = 100_000


def test_what_a_processor_computes_is_named_by_ops_and_the_rest_by_own_lines():
    begins = [BASE_NS + step * STEP_NS for step in range(4)]
    marks = [{"start_ns": at, "end_ns": at + STEP_NS, "name": f"ProfilerStep#{n}"} for n, at in enumerate(begins)]
    ops = [{"start_ns": at + 1_000, "end_ns": at + 61_000, "name": "aten::mm"} for at in begins]
    lines = [{"start_ns": at, "end_ns": at + STEP_NS, "name": "train.py(12): step"} for at in begins]
    work = work_of(prepare(timeline(ranges=marks, ops=ops, functions=lines)))
    assert {(each.part == "compute", each.kernel): each.ns for each in work} == {
        (True, "aten::mm"): 60_000, (False, "train.py(#): step"): 40_000,
    }  # fmt: skip

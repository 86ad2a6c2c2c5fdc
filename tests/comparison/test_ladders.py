"""Public recordings before and after a change: is the cause of the gain first, and does all of it sum?"""

from __future__ import annotations

import os

import pytest
from folders import RECORDINGS, public
from real_nsys import nsys
from recorded import RULES, parameter, recording

from perfdoctor.comparison.compare import compare
from perfdoctor.comparison.snapshot import of_examination
from perfdoctor.report.comparison import html
from perfdoctor.views.pages import timeline

pytestmark = pytest.mark.recordings
#: Before, after, the first cause, its sign, the verdict.
RUNGS = [
    ("nsys/sc21/baseline.qdrep", "nsys/sc21/8workers.qdrep", "input_wait", -1, "faster"),
    ("nsys/sc21/8workers.qdrep", "nsys/sc21/dali.qdrep", "input_wait", -1, "faster"),
    ("nsys/sc21/dali.qdrep", "nsys/sc21/dali_amp.qdrep", "compute:convolution", -1, "too noisy"),
    ("nsys/sc21/dali_amp.qdrep", "nsys/sc21/dali_amp_apex_jit.qdrep", "compute:elementwise", -1, "too noisy"),
    (
        "nsys/ai-profiler/baseline_nvtx.nsys-rep",
        "nsys/ai-profiler/firstOptimization.nsys-rep",
        "input_wait",
        -1,
        "faster",
    ),
    (
        "kineto/resnet50-workers0.pt.trace.json.gz",
        "kineto/resnet50-workers4.pt.trace.json.gz",
        "input_wait",
        -1,
        "faster",
    ),
    ("nsys/mfu_2gpu_before.sqlite", "nsys/mfu_2gpu_after.sqlite", "launch_bound", 1, "slower"),
]


#: Whose page is the largest of these.
LARGEST = RUNGS[2]
MOST_BYTES = 2_000_000


def examined(name):
    path = public(name)
    if path.suffix in (".qdrep", ".nsys-rep"):
        os.environ["PERFDOCTOR_NSYS"] = nsys()
    return recording(path).examination


def snapshot(name):
    return of_examination(name, examined(name), RULES, [RECORDINGS / name])


@pytest.mark.parametrize("rung", [parameter(RECORDINGS / rung[0], rung) for rung in RUNGS])
def test_the_cause_of_each_rungs_gain_is_first(rung):
    before, after, cause, sign, verdict = rung
    ours, theirs = snapshot(before), snapshot(after)
    found = compare([ours], [theirs])
    assert (found.causes[0].key, found.causes[0].delta_ns * sign > 0) == (cause, True)
    assert found.step.verdict == verdict
    assert sum(each.delta_ns for each in found.causes) == found.difference_ns
    assert sum(each.delta_ns for each in found.work) + found.work_rest_ns == found.difference_ns
    for one in (ours, theirs):
        assert sum(work.ns for work in one.work) == pytest.approx(one.step_ns)
        assert one.step_ns == pytest.approx(one.steps.steps_ns.mean(), rel=1e-6)


@pytest.mark.parametrize("rung", [parameter(RECORDINGS / LARGEST[0], LARGEST)])
def test_the_largest_page_is_below_2_mb(rung):
    runs = {"before": examined(rung[0]), "after": examined(rung[1])}
    drawn = {
        side: next(timeline.view(each.run, each.diagnosis, html.MOST_TIMELINE_BYTES)) for side, each in runs.items()
    }
    page = html.render(compare([snapshot(rung[0])], [snapshot(rung[1])]), drawn)
    assert 1_000_000 < len(page.encode()) < MOST_BYTES

"""Public recordings before and after a change: is the cause of the gain first, and does all of it sum?"""

from __future__ import annotations

import os

import pytest
from folders import RECORDINGS, public
from real_nsys import nsys
from recorded import RULES, parameter, recording

from perfdoctor.comparison.compare import compare
from perfdoctor.comparison.contributions import part_of
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


def contradictions(found, savings):
    """Pairs of what one comparison says that cannot both be true. `savings`: the findings of BEFORE, by rule."""
    fates = {each.rule: each.fate for each in found.findings}
    shorter = {part_of(each.key): 0 for each in found.causes}
    for each in found.causes:
        shorter[part_of(each.key)] -= each.delta_ns
    unsure = found.judged.verdict == "too noisy" or found.judged.low is None
    for rule, fate in fates.items():
        parts = savings[rule].parts if rule in savings else ()
        own_ns = sum(shorter.get(part, 0) for part in parts)
        if fate in ("fixed", "partly fixed") and parts and "compute" not in parts and own_ns <= 0:
            yield f"{rule} is {fate}, and {parts} got no shorter"
    for each in found.promises:
        if others := {rule: fates[rule] for rule in each.rules if fates[rule] not in ("fixed", "partly fixed")}:
            yield f"a prediction counts {others}"
        if each.title == "All that was fixed" and any(fates[rule] != "fixed" for rule in each.rules):
            yield f"{each.title}, and {fates}"
        if each.whole and unsure and each.kept != "unknown":
            yield f"the step is {found.judged.verdict}, and its prediction {each.kept}"
        if each.whole and found.judged.verdict == "slower" and each.kept in ("kept", "more"):
            yield f"the step is slower, and the prediction {each.kept}"
        if each.whole and each.likely >= found.step.before.mean_ns:
            yield f"{each.likely} of {found.step.before.mean_ns} are predicted to go"
        largest = {}
        for one in (savings[rule] for rule in each.rules):
            cause = one.symptom_of if one.symptom_of in each.rules else one.rule
            largest[cause] = max(largest.get(cause, 0.0), one.likely)
        if each.likely > sum(largest.values()) + 1:
            yield f"{each.rules} save {each.likely} together, and {largest} alone"
    if found.judged.verdict == "faster" and found.difference_ns + found.recording_ns >= 0 and not found.item:
        yield "the step is faster, and its causes make it longer"


@pytest.mark.parametrize("rung", [parameter(RECORDINGS / rung[0], rung) for rung in RUNGS])
def test_no_two_sentences_of_a_comparison_contradict_each_other(rung):
    sides = [snapshot(name) for name in rung[:2]]
    for before, after in (sides, sides[::-1]):
        assert list(contradictions(compare([before], [after]), {each.rule: each for each in before.findings})) == []


@pytest.mark.parametrize("rung", [parameter(RECORDINGS / RUNGS[3][0], RUNGS[3])])
def test_an_update_in_fused_kernels_is_fixed(rung):
    """179 kernels of it and 6.6 ms became 6 and 2.7 ms; kernels of the family that is called so take longer."""
    found = compare([snapshot(rung[0])], [snapshot(rung[1])])
    assert {each.rule: each.fate for each in found.findings}["unfused-optimizer"] == "fixed"
    (alone,) = [each for each in found.promises if each.rules == ("unfused-optimizer",)]
    assert alone.shown_ns == pytest.approx(3.9e6, rel=0.03)


@pytest.mark.parametrize("rung", [parameter(RECORDINGS / LARGEST[0], LARGEST)])
def test_the_largest_page_is_below_2_mb(rung):
    runs = {"before": examined(rung[0]), "after": examined(rung[1])}
    drawn = {
        side: next(timeline.view(each.run, each.diagnosis, html.MOST_TIMELINE_BYTES)) for side, each in runs.items()
    }
    page = html.render(compare([snapshot(rung[0])], [snapshot(rung[1])]), drawn)
    assert 1_000_000 < len(page.encode()) < MOST_BYTES

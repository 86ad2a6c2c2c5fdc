"""What changed sums exactly, is matched by what it is, and is held against what was predicted."""

from __future__ import annotations

import json

import numpy as np
import pytest
from builders import draw, draw_steps
from counters_builder import sampled
from folders import FIXTURES
from hypothesis import given
from hypothesis import strategies as st
from machine_builders import on_cores
from msgspec.structs import replace

from perfdoctor.comparison.compare import compare
from perfdoctor.comparison.matching import changes, pairs, whole_numbers
from perfdoctor.comparison.records import PromisedSaving, StepSample, WorkTime
from perfdoctor.comparison.snapshot import of_document, of_examination
from perfdoctor.comparison.work import work_of
from perfdoctor.diagnosis.engine import examine
from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.readers.open import read
from perfdoctor.report import json_report
from perfdoctor.report.comparison import html, markdown
from perfdoctor.report.comparison import json_report as comparison_json
from perfdoctor.report.comparison.words import counters, interval, prediction, verdict
from perfdoctor.scale.read import read_run
from perfdoctor.system.progress import silent
from perfdoctor.vocabulary.rulebook import load_rules

GEMM, NVJET = "ampere_sgemm_128x64_tn", "nvjet_hsh_128x256"


def snapshot(timeline, name="run"):
    rules = load_rules()
    return of_examination(name, examine(prepare(timeline), list(rules.values())), rules, [])


def waiting(wait, kernels="####"):
    """Steps in which the training waits for data for so many ms, and then computes."""
    return draw_steps(kernels=" " * wait + kernels, host=["i" * wait + "l"])


def test_the_cause_that_shrank_is_first_and_all_causes_sum_exactly():
    before, after = snapshot(waiting(6)), snapshot(waiting(2))
    found = compare([before], [after])
    assert found.causes[0].key == "input_wait"
    assert found.causes[0].delta_ns == pytest.approx(-4_000_000, abs=200_000)
    assert sum(each.delta_ns for each in found.causes) == found.difference_ns == found.after_ns - found.before_ns
    assert sum(each.delta_ns for each in found.work) + found.work_rest_ns == found.difference_ns
    assert found.step.verdict == "faster"
    assert all(each.after_ns - each.before_ns == each.delta_ns for each in found.causes)


def test_work_sums_to_the_step_where_kernels_overlap():
    run = prepare(draw_steps(kernels=["####  ", " ##### "], copies="  xx  ", host=["lll"]))
    assert sum(work.ns for work in work_of(run)) == pytest.approx(run.step_ns, abs=2)


def test_a_recording_compared_with_itself_shows_nothing():
    one = snapshot(waiting(3))
    found = compare([one], [one])
    assert (found.difference_ns, found.step.verdict, found.work) == (0, "no change", ())
    assert {each.fate for each in found.findings} <= {"remaining"}


def work(kernel, ns, **known):
    names = {"part": "compute", "group": "", "op": "", "shapes": "", "phase": "", "module": "", "inside": ""} | known
    return WorkTime(kernel=kernel, ns=ns, count=1, **names)


def test_renamed_kernels_of_one_op_are_one():
    ours = [work(GEMM, 100, op="aten::mm", shapes="[[8, 8]]", group="gemm")]
    theirs = [work(NVJET, 60, op="aten::mm", shapes="[[8, 8]]", group="gemm")]
    ((only,), rest, _) = changes(ours, theirs, (100, 60), 10)
    assert (only.label, only.delta_ns, only.fate, only.was, only.now) == ("aten::mm", -40, "shrank", (GEMM,), (NVJET,))
    assert rest == 0


def test_what_a_compiler_fused_is_found_by_its_module():
    eager = [
        work("add_kernel", 30, op="aten::add", module="Block_0"),
        work("mul_kernel", 30, op="aten::mul", module="Block_0"),
    ]
    fused = [work("triton_poi_fused_add_mul", 25, op="CompiledFunction", module="Block_0", group="other")]
    (one,) = pairs(eager, fused)
    assert (one.by, len(one.before), len(one.after)) == ("module", 2, 1)


def test_without_ops_kernels_meet_by_their_family_in_the_same_phase():
    (one,) = pairs([work(GEMM, 5, group="gemm", phase="backward")], [work(NVJET, 5, group="gemm", phase="backward")])
    assert one.by == "family"
    assert (
        len(pairs([work(GEMM, 5, group="gemm", phase="backward")], [work(NVJET, 5, group="gemm", phase="forward")]))
        == 2
    )


def test_what_only_one_side_has_came_or_went():
    listed, _, _ = changes([work("old", 50, op="a")], [work("new", 20, op="b")], (50, 20), 10)
    assert {(each.label, each.fate) for each in listed} == {("a", "went"), ("b", "came")}


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=30))
def test_rounded_numbers_sum_to_the_whole(values):
    whole = round(sum(values))
    rounded = whole_numbers(values, whole)
    assert sum(rounded) == whole
    assert np.abs(np.array(rounded) - np.array(values)).max() <= 2
    assert min(rounded) >= 0


def found_in(one, *savings):
    return replace(one, findings=savings, checked=frozenset({"input-wait", "host-syncs"}), predictions={})


WAIT = PromisedSaving("input-wait", "Training waits for data", 3_000_000.0, 4_000_000.0, 5_000_000.0, ("input_wait",))


def test_what_was_predicted_is_kept_where_the_step_got_shorter_by_it():
    found = compare([found_in(snapshot(waiting(6)), WAIT)], [found_in(snapshot(waiting(2)))])
    (each,) = found.promises
    assert (each.kept, each.whole, each.because) == ("kept", True, "")
    assert [(f.rule, f.fate) for f in found.findings] == [("input-wait", "fixed")]


def test_less_than_predicted_names_the_cause_that_took_over():
    after = snapshot(waiting(2, kernels="#######"))
    step, part = compare([found_in(snapshot(waiting(6)), WAIT)], [found_in(after)]).promises
    assert step.kept == "less"
    assert "another cause took over: compute" in step.because
    assert (part.kept, part.because, part.whole) == ("kept", "", False)
    assert part.shown_ns == pytest.approx(4_000_000, rel=0.05)


def test_more_than_predicted_names_what_else_got_shorter_and_not_what_was_fixed():
    before, after = snapshot(waiting(6, kernels="#" * 20)), snapshot(waiting(2, kernels="####"))
    step, part = compare([found_in(before, WAIT)], [found_in(after)]).promises
    assert step.kept == "more"
    assert step.because == "something else got shorter as well: compute: other kernels"
    assert (part.kept, part.because) == ("kept", "")


def test_a_small_change_is_no_reason_for_a_large_surprise():
    """What else got shorter explains half of the surprise, or recording does, or nothing is said."""
    before, after = snapshot(waiting(12, kernels="####")), snapshot(waiting(2, kernels="###"))
    step, _ = compare([found_in(before, WAIT)], [found_in(after)]).promises
    assert (step.kept, step.because) == ("more", "")
    shorter = [
        replace(each, unrecorded_ns=each.step_ns * scale, steps=replace(each.steps, scale=scale))
        for each, scale in ((snapshot(waiting(6)), 1.0), (snapshot(waiting(2)), 0.4))
    ]
    step, part = compare([found_in(shorter[0], WAIT)], [found_in(shorter[1])]).promises
    assert (step.kept, step.because) == ("more", "recording took another share of both sides")
    assert part.kept == "kept"


def test_what_is_fixed_together_is_not_predicted_twice():
    """A symptom is in its cause; of one part, each fix takes its share of what the others leave: never the whole step."""
    before, after = snapshot(waiting(6)), snapshot(waiting(2))
    part_ns = before.parts["input_wait"]
    restarts = PromisedSaving("worker-restarts", "Restarts", 0.0, 0.5 * part_ns, part_ns, ("input_wait",))
    half = replace(WAIT, low=0.0, likely=0.6 * part_ns, high=part_ns)
    rules = frozenset({"input-wait", "worker-restarts"})
    sides = [replace(before, checked=rules, predictions={}), replace(after, checked=rules, findings=(), predictions={})]
    for cause, expected in (("input-wait", 0.6), ("", 1 - 0.4 * 0.5)):
        both = (half, replace(restarts, symptom_of=cause))
        whole = compare([replace(sides[0], findings=both)], [sides[1]]).promises[0]
        assert whole.likely == pytest.approx(expected * part_ns)
        assert whole.high == pytest.approx(part_ns)


def test_what_is_about_all_of_the_step_takes_its_share_of_what_is_left_of_it():
    """And a symptom of a symptom is in the cause of both: together they never take the whole step."""
    before, after = snapshot(waiting(6)), snapshot(waiting(2))
    step_ns, part_ns = before.step_ns, before.parts["input_wait"]
    cause = PromisedSaving("input-wait", "Waits", 0.0, 0.9 * part_ns, part_ns, ("input_wait",))
    symptom = PromisedSaving(
        "host-work", "Works", 0.0, 0.8 * part_ns, part_ns, ("input_wait",), symptom_of="input-wait"
    )
    further = PromisedSaving("small-kernels", "Small", 0.0, 0.7 * part_ns, part_ns, symptom_of="host-work")
    long = PromisedSaving("step-outliers", "Long", 0.0, 0.9 * step_ns, step_ns)
    checked = frozenset(each.rule for each in (cause, symptom, further, long))
    after = replace(after, checked=checked, findings=())
    for several, expected in (
        ((cause, symptom, further), 0.9 * part_ns),
        ((cause, long), 0.9 * part_ns + 0.9 * (step_ns - 0.9 * part_ns)),
    ):
        one = replace(before, checked=checked, findings=several, predictions={})
        whole = compare([one], [after]).promises[0]
        assert whole.likely == pytest.approx(expected)
        assert whole.high <= step_ns


def test_what_is_smaller_is_partly_fixed_and_said_so_where_it_is_counted():
    less = replace(WAIT, likely=0.2 * WAIT.likely)
    found = compare([found_in(snapshot(waiting(6)), WAIT)], [found_in(snapshot(waiting(2)), less)])
    assert [each.fate for each in found.findings] == ["partly fixed"]
    assert [each.rules for each in found.promises if each.whole] == [("input-wait",)]
    unknown = compare(
        [found_in(snapshot(waiting(6)), WAIT)], [found_in(snapshot(waiting(2)), replace(less, likely=0.0))]
    )
    assert ([each.fate for each in unknown.findings], unknown.promises) == (["remaining"], ())


def test_a_step_that_is_too_noisy_to_say_keeps_no_prediction():
    sides = [snapshot(waiting(6)), snapshot(waiting(5))]
    noisy = [replace(each, steps=StepSample(each.step_ns * np.array([0.2, 1.8, 1.0, 0.4, 1.6]))) for each in sides]
    found = compare([found_in(noisy[0], WAIT)], [found_in(noisy[1])])
    assert (found.step.verdict, found.promises[0].kept) == ("too noisy", "unknown")
    assert "the noise hides" in prediction(found.promises[0])


def test_what_a_longer_step_hides_is_not_fixed():
    before, after = snapshot(waiting(2)), snapshot(waiting(2, kernels="#" * 60))
    slight = replace(WAIT, low=1_000_000.0, likely=2_000_000.0, high=2_500_000.0)
    found = compare([found_in(before, slight)], [found_in(after)])
    assert (found.findings[0].fate, found.promises) == ("no longer found", ())
    of_more_items = [replace(each, items_per_step=items) for each, items in ((before, 8), (after, 64))]
    of_more_items = [replace(each, settings={"batch": f"{each.items_per_step} items"}) for each in of_more_items]
    found = compare([found_in(of_more_items[0], slight)], [found_in(of_more_items[1])])
    assert (found.findings[0].fate, found.promises) == ("no longer found", ())


def test_what_is_about_no_time_of_the_step_is_not_fixed_when_it_is_gone():
    before, after = (found_in(snapshot(waiting(4))) for _ in range(2))
    checked = frozenset({"busy-machine", "step-outliers"})
    doubts = (
        PromisedSaving("busy-machine", "Other programs", 0.0, 0.0, 0.0),
        PromisedSaving("step-outliers", "Long", 1e5, 2e5, 3e5),
    )
    found = compare([replace(before, findings=doubts, checked=checked)], [replace(after, checked=checked)])
    assert {each.rule: each.fate for each in found.findings} == {
        "busy-machine": "no longer found", "step-outliers": "fixed",
    }  # fmt: skip


def test_with_another_batch_a_prediction_is_held_against_as_many_items():
    before, after = snapshot(waiting(6)), snapshot(waiting(2, kernels="########"))
    sides = [
        replace(each, items_per_step=items, settings={"batch": f"{items} items"})
        for each, items in ((before, 8), (after, 16))
    ]
    (each,) = compare([found_in(sides[0], WAIT)], [found_in(sides[1])]).promises
    assert each.shown_ns == pytest.approx(before.step_ns - after.step_ns / 2, rel=0.01)
    assert (each.kept, each.same_items) == ("kept", True)


@pytest.mark.parametrize("says_it", [True, False])
def test_a_stored_diagnosis_gives_the_interval_of_its_recording(says_it):
    """Also one that says of other programs on the cores no more than its finding does."""
    rules = load_rules()
    drawn = draw(host=["o" * 30 + " " * 10], repeat=6, unit_us=1000)
    drawn = on_cores(drawn, waited=0.5, program_cores=1.0, waiting_threads=1.0)
    drawn = replace(drawn, unrecorded_step_ns=dict.fromkeys(drawn.ranks, 37_000_000))
    examined = examine(prepare(drawn), list(rules.values()))
    document = json.loads(json_report.render(examined.diagnosis))
    if not says_it:
        del document["run"]["contended_share"]
    one, other = of_examination("run", examined, rules, []), of_document("run", document, rules)
    steps = [compare([each], [each]).step for each in (one, other)]
    assert one.steps.contended == pytest.approx(0.5)
    assert other.steps.contended == pytest.approx(0.5)
    assert (steps[0].low, steps[0].high) == pytest.approx((steps[1].low, steps[1].high), rel=1e-6)
    assert steps[1].before.spread_from == "contended"
    assert other.unrecorded_ns == pytest.approx(one.unrecorded_ns, abs=1)


@pytest.mark.parametrize(("name", "was", "now", "said"), [
    ("GPU", "A100", "H100", "BEFORE ran on A100, AFTER on H100"),
    ("ranks", "1", "2", "BEFORE ran with 1 rank, AFTER with 2"),
])  # fmt: skip
def test_on_another_machine_the_verdict_is_not_comparable_and_says_why_first(name, was, now, said):
    before = replace(found_in(snapshot(waiting(6)), WAIT), settings={name: was})
    after = replace(found_in(snapshot(waiting(2))), settings={name: now})
    found = compare([before], [after])
    assert (found.verdict, found.not_comparable, found.promises) == ("not comparable", (said,), ())
    assert [each.fate for each in found.findings] == ["no longer found"]
    assert verdict(found) == f"Not comparable: {said}."
    assert json.loads(comparison_json.render(found))["verdict"] == "not comparable"
    for text in (markdown.render(found), html.render(found, {})):
        assert text.index("Not comparable") < text.index(f"{was} → {now}")
    assert not compare([after], [before]).is_longer_by(0.05)
    assert compare([before], [after], anyway=True).verdict == "faster"


def test_anyway_the_time_of_one_item_of_the_whole_job_is_judged():
    sides = [
        replace(snapshot(waiting(2)), settings={"ranks": ranks, "batch": "8 items"}, items_per_step=8)
        for ranks in ("1", "4")
    ]
    assert compare(sides[:1], sides[1:]).verdict == "not comparable"
    found = compare(sides[:1], sides[1:], anyway=True)
    assert (found.verdict, found.items_before, found.items_after) == ("faster", 8, 32)
    assert found.judged.change == pytest.approx(-0.75, abs=0.01)


def test_more_of_one_jobs_ranks_recorded_is_no_other_job():
    sides = [replace(snapshot(waiting(2)), settings={"ranks": "8", "number of GPUs": gpus}) for gpus in ("3", "8")]
    assert compare(sides[:1], sides[1:]).verdict == "no change"
    several = [replace(each, settings={**each.settings, "ranks": "1"}) for each in sides]
    assert compare(several[:1], several[1:]).verdict == "not comparable"


def test_a_rule_that_could_not_be_checked_is_not_fixed():
    after = replace(found_in(snapshot(waiting(2))), checked=frozenset())
    assert compare([found_in(snapshot(waiting(6)), WAIT)], [after]).findings[0].fate == "not checked"


def test_what_has_no_steps_is_not_compared_with_what_has():
    with pytest.raises(PerfdoctorError, match="in steps, the other without steps"):
        compare([snapshot(waiting(6))], [replace(snapshot(waiting(6)), basis="")])
    with pytest.raises(PerfdoctorError, match="on a GPU, the other on a CPU alone"):
        compare([snapshot(waiting(6))], [replace(snapshot(waiting(6)), without_gpu=True)])


def test_several_runs_are_averaged():
    found = compare([snapshot(waiting(6)), snapshot(waiting(4))], [snapshot(waiting(5)), snapshot(waiting(5))])
    assert abs(found.difference_ns) < 10_000
    assert sum(each.delta_ns for each in found.causes) == found.difference_ns


def test_where_batches_differ_an_item_is_judged():
    before = replace(snapshot(waiting(2)), items_per_step=32.0)
    after = replace(snapshot(waiting(4, kernels="########")), items_per_step=96.0)
    found = compare([before], [after])
    assert (found.step.verdict, found.judged.verdict) == ("slower", "faster")
    assert found.judged.after.mean_ns == pytest.approx(found.step.after.mean_ns / 96)


def test_of_runs_whose_batches_differ_by_a_fraction_an_item_is_judged():
    """The mean of a window's steps differs from run to run where the last batch of an epoch is smaller."""
    before, after = snapshot(waiting(2)), snapshot(waiting(4, kernels="########"))
    sides = [
        [replace(each, items_per_step=items * share) for share in (1, 0.996, 1)]
        for each, items in ((before, 32.0), (after, 64.0))
    ]
    found = compare(*sides)
    assert (found.step.verdict, found.judged.verdict) == ("slower", "no change")
    assert (found.items_before, found.items_after) == (
        pytest.approx(31.957, abs=0.001),
        pytest.approx(63.915, abs=0.001),
    )
    sides[1][0] = replace(after, items_per_step=32.0)
    assert compare(*sides).item is None, "these runs are of two batches"
    sides[1][0] = replace(after, items_per_step=None)
    assert compare(*sides).item is None


def test_own_functions_are_met_by_file_and_name_where_both_sides_have_them():
    before, after = (snapshot(draw_steps(kernels="####  ", host=["ffffff", "l"])) for _ in range(2))
    assert before.lines == {"train.py: log_metrics": pytest.approx(4_000_000)}
    slower = replace(after, lines={"train.py: log_metrics": 5_000_000.0})
    assert [(each.name, each.after_ns) for each in compare([before], [slower]).lines] == [
        ("train.py: log_metrics", 5e6)
    ]
    assert compare([before], [after]).lines == ()
    assert compare([before], [replace(slower, lines={})]).lines == ()


def test_an_update_in_other_kernels_is_one_piece_of_work():
    one_by_one = [work(f"add_kernel<{at}>", 10, group="elementwise", phase="optimizer") for at in range(5)]
    fused = [work("multi_tensor_apply_kernel", 12, group="optimizer", phase="optimizer")]
    ((only,), rest, _) = changes(one_by_one, fused, (50, 12), 10)
    assert (only.label, only.delta_ns, only.matched_by, rest) == ("the update of the weights", -38, "optimizer", 0)


def test_variables_of_the_environment_that_differ_are_said_where_both_sides_recorded_theirs():
    before = replace(snapshot(waiting(3)), settings={"program": "train.py", "$NCCL_P2P_DISABLE": "1", "$OMP_X": "4"})
    after = replace(snapshot(waiting(3)), settings={"program": "train.py", "$OMP_X": "4"})
    assert [(each.name, each.before, each.after) for each in compare([before], [after]).settings] == [
        ("NCCL_P2P_DISABLE", "1", "not set")
    ]
    assert compare([before], [replace(after, settings={})]).settings == ()


def test_ranks_read_by_their_summaries_compare_as_ranks_read_in_full():
    folder, rules = FIXTURES / "straggler" / "torch", load_rules()
    runs = [read_run([folder], silent, most_in_full=most) for most in (None, 0)]
    assert runs[1].summaries is not None
    full, reduced = (of_examination("job", examine(run, list(rules.values())), rules, [folder]) for run in runs)
    assert reduced.parts == pytest.approx(full.parts)
    assert reduced.steps.steps_ns == pytest.approx(full.steps.steps_ns)
    found = compare([full], [reduced])
    assert (found.difference_ns, found.step.change) == (0, 0)
    assert sum(each.delta_ns for each in found.work) + found.work_rest_ns == 0


def test_a_loader_with_workers_is_matched_with_one_without():
    loader = "enumerate(DataLoader)#_{}ProcessDataLoaderIter.__next__"
    ours = [work(loader.format("Single"), 90, part="input_wait")]
    theirs = [work(loader.format("Multi"), 10, part="input_wait")]
    ((only,), rest, _) = changes(ours, theirs, (100, 20), 10)
    assert (only.matched_by, only.fate, only.delta_ns, rest) == ("loader", "shrank", -80, 0)


def test_two_programs_are_said_to_be_two():
    steps = {"kernels": "#" * 9, "host": ["l"]}
    one, other = (snapshot(draw_steps(**steps, kernel_names={"#": name})) for name in ("gemm_a", "layer_norm_b"))
    found, same = compare([one], [other]), compare([one], [one])
    assert (found.common_share, found.verdict) == (0.0, "not comparable")
    assert verdict(found).startswith("Not comparable: only 0 % of the compute time has names that both have")
    assert "Nothing of the compute time" in next(iter(interval(compare([one], [other], anyway=True))))
    assert (same.common_share, same.may_be_two_programs) == (1.0, False)
    assert compare([replace(one, work=(), by_op=False)], [other]).common_share is None
    compiled = [replace(each, kernel="triton_poi_fused_add_0") for each in other.work]
    assert compare([one], [replace(other, work=tuple(compiled))]).verdict != "not comparable", "it has other names"


def test_programs_of_two_projects_do_not_compare_where_their_work_is_another_one():
    one, other = (
        replace(snapshot(draw_steps(kernels=kernels), name), project=f"{name} python train.py")
        for name, kernels in (("gru", "####"), ("mlp", "GGGG"))
    )
    found = compare([one], [other])
    assert found.not_comparable == (
        "gru is `python train.py` in another project, and mlp `python train.py` in another project",
    )
    assert compare([one], [other], anyway=True).may_be_two_programs
    assert not compare([one], [replace(other, project=one.project)]).not_comparable, "one that was compiled"
    assert not compare([one], [replace(one, project=other.project)]).not_comparable, "the same work in another folder"


def test_on_a_processor_where_all_programs_run_the_same_ops_their_sizes_tell_two_projects_apart():
    one, other = (
        replace(snapshot(read([FIXTURES / "pairs" / name])), project=f"{name} python train.py", items_per_step=None)
        for name in ("counted-in-python", "manual-update")
    )
    assert compare([one], [other]).verdict == "not comparable"
    for same in (
        replace(other, project="counted-in-python python fast.py"),  # another command in one project
        replace(other, items_per_step=3.0),  # with another batch all sizes are others
        replace(one, project="copy python train.py"),
    ):
        assert compare([one], [same]).verdict != "not comparable"


def test_all_timed_steps_are_compared_where_both_sides_have_them():
    rng = np.random.default_rng(1)
    one = snapshot(waiting(2))
    before, after = (
        replace(one, name=name, timed=StepSample(level * (1 + rng.normal(0, 0.2, 400))))
        for name, level in (("a", 9e6), ("b", 5e6))
    )
    found = compare([before], [after])
    assert (found.step.steps_compared, found.step.verdict, found.step.before.steps) == ("timed", "faster", 400)
    assert found.recording_ns == round(found.step.after.mean_ns) - round(found.step.before.mean_ns)
    assert verdict(found).startswith("Faster, by 1.")
    assert "all timed steps but the recorded ones" in next(iter(interval(found)))
    assert compare([before], [one]).step.steps_compared == "recorded"


def test_reruns_judge_the_step_whatever_the_recordings_say():
    one = snapshot(waiting(2))
    sides = [[StepSample(np.full(40, level * drift)) for drift in (1, 1.5, 0.8)] for level in (8e6, 4e6)]
    found = compare([one], [one], reruns=sides)
    assert (found.step.verdict, found.step.steps_compared, found.difference_ns) == ("faster", "paired", 0)
    assert verdict(found).startswith("Faster, by 2.0×: a mean step of ")
    assert "3 pairs of runs without a recorder" in next(iter(interval(found)))


def with_counters(tensor: float, *, part: str = "gemm"):
    rates = {part: {"tensor_active_share": tensor, "sm_active_share": 0.9}}
    return snapshot(sampled(draw_steps(kernels="GGGGGGGGGG"), rates), f"{tensor}")


def test_what_the_gpus_counters_showed_is_set_side_by_side():
    found = compare([with_counters(0.1)], [with_counters(0.6)])
    (tensor,) = [each for each in found.counters if each.metric == "tensor_active"]
    assert (tensor.before, tensor.after) == (pytest.approx(0.1, abs=0.005), pytest.approx(0.6, abs=0.005))
    assert "Tensor cores active while kernels ran: 10 % → 60 %" in list(counters(found))
    assert not any(each.metric.startswith("nvlink") for each in found.counters)  # nobody recorded them


def test_counters_of_one_side_alone_are_not_compared():
    assert compare([with_counters(0.1)], [snapshot(draw_steps(kernels="GGGGGGGGGG"))]).counters == ()


def test_a_stored_diagnosis_has_its_counters():
    rules = load_rules()
    timeline = sampled(draw_steps(kernels="GGGGGGGGGG"), {"gemm": {"tensor_active_share": 0.4}})
    written = json.loads(json_report.render(examine(prepare(timeline), list(rules.values())).diagnosis))
    stored = of_document("stored", written, rules)
    assert stored.counters["tensor_active"] == pytest.approx(0.4, abs=0.005)

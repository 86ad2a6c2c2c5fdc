"""Does a prediction simulate what was asked, stop by stop, and refuse what cannot be simulated?"""

from __future__ import annotations

import itertools

import pytest
from builders import draw, findings
from graphs import EVERYTHING, MS, faulty
from msgspec.structs import replace

from perfdoctor.diagnosis import prediction as prediction_of_fixes
from perfdoctor.diagnosis.calibration import NOISE_SHARE
from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.diagnosis.prediction import MOST_FIXES, notes, predicted
from perfdoctor.diagnosis.questions import Question, questions
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.hardware.worker_batch import TYPICAL
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.records.findings import with_symptoms
from perfdoctor.records.predictions import PredictedStep, Prediction
from perfdoctor.records.savings import Range
from perfdoctor.replay.what_if.run_replay import replay_of, why_not_replayable
from perfdoctor.report.words.parts import SHOWN_FINDINGS
from perfdoctor.vocabulary.rulebook import load_rules

RULES = list(load_rules().values())


def limited_by_kernels():
    """Per step of 100 ms: 60 of fp32 matmul and 37 of others, for whose end the host waits."""
    host = ["ll" + "s" * 96 + "  ", "o"]
    return draw(kernels=" " + "S" * 60 + "G" * 37 + "  ", host=host, repeat=6, unit_us=1000, recorded=EVERYTHING)


def asked(*questions, drawn=None, rules=RULES):
    return diagnose(faulty() if drawn is None else drawn, rules, questions).prediction


def refused(*questions, **how):
    with pytest.raises(UsageError) as error:
        asked(*questions, **how)
    return error.value.what, error.value.do


#: Ms in which a training process receives a batch.
RECEIVE = TYPICAL.pinned_ns / MS


def later(best, likely, worst, recorded=100 * MS):
    """The range of a later run: 5 % to either side of what is simulated, and nothing longer than recorded."""
    return pytest.approx(0.95 * best, rel=0.002), likely, pytest.approx(min(1.05 * worst, recorded), rel=0.002)


def stops(prediction):
    return [(step.rule, step.choice, step.step_ns / MS) for step in prediction.steps]


# What is simulated


def test_fixes_are_simulated_one_after_the_other_and_the_last_stop_is_the_prediction():
    prediction = asked(Question("input-wait"), Question("fp32-matmuls"))
    assert prediction.recorded_ns == 100 * MS
    # The device no longer stands still; then kernels are so short that the host's own 71 ms are the limit, and what is
    # left of the loader: to receive a batch.
    limit = pytest.approx(71 + RECEIVE, abs=0.15)
    assert stops(prediction) == [("input-wait", "", pytest.approx(86)), ("fp32-matmuls", "", limit)]
    assert prediction.fixed == ("input-wait", "fp32-matmuls")
    assert prediction.step_ns[1] == prediction.steps[-1].step_ns
    assert prediction.speedup[1] == pytest.approx(100 / 71, rel=0.005)
    assert prediction.asked


def test_in_another_order_the_way_is_another_and_the_end_the_same():
    prediction = asked(Question("fp32-matmuls"), Question("input-wait"))
    # While the loader is the limit, faster kernels win nothing.
    assert stops(prediction) == [
        ("fp32-matmuls", "", pytest.approx(100)),
        ("input-wait", "", pytest.approx(71 + RECEIVE, abs=0.15)),
    ]


def test_a_share_says_how_far_a_fix_goes():
    prediction = asked(Question("input-wait", "50%", 0.5))
    assert stops(prediction) == [("input-wait", "50%", pytest.approx(93))]  # half of the 14 ms in which it stands still
    assert prediction.step_ns == later(*(prediction.steps[-1].step_ns,) * 3)


@pytest.mark.parametrize(("choice", "place"), [("low", 2), ("likely", 1), ("high", 0)])
def test_low_likely_and_high_are_the_ends_of_the_findings_own_range(choice, place):
    own = asked(Question("input-wait"), Question("fp32-matmuls"))
    chosen = asked(Question("input-wait", choice), Question("fp32-matmuls", choice))
    widened = own.step_ns[place] / (0.95, 1, 1.05)[place]
    assert chosen.step_ns == later(widened, pytest.approx(widened), widened)
    assert own.step_ns[0] <= own.step_ns[1] <= own.step_ns[2]


def test_16_bits_are_what_the_finding_assumes():
    plain = asked(Question("input-wait"), Question("fp32-matmuls"))
    in_bf16 = asked(Question("input-wait"), Question("fp32-matmuls", "bf16"))
    assert in_bf16.step_ns == plain.step_ns
    assert in_bf16.steps[-1].choice == "bf16"


def test_no_stop_wins_more_than_its_findings_count_and_none_is_longer_than_the_one_before():
    """Fixed, a host that is faster also hides its loader's work. That is not promised."""
    drawn = slow_host()
    run = prepare(drawn)
    prediction = asked(Question("input-wait"), Question("launch-bound"), drawn=drawn)
    most_ns, before_ns = 0, run.step_ns
    for step in prediction.steps:
        most_ns += sum(each.saving_ns_per_step.high for each in findings(step.rule, run))
        assert run.step_ns - most_ns <= step.step_ns <= before_ns
        before_ns = step.step_ns


def slow_host():
    """Per step of 4 ms: 20 short kernels, each launched when the one before is long over, and a wait for a batch."""
    return draw(
        kernels="e   " * 20 + " " * 20,
        host=["l   " * 20 + " " * 20, " " * 80 + "I" * 20, "o" * 100],
        repeat=6,
        unit_us=40,
        recorded=EVERYTHING,
    )


def test_a_symptom_wins_nothing_beside_its_cause():
    """They count the same time."""
    run = prepare(slow_host())
    (cause,), (symptom,) = (findings(rule, run) for rule in ("launch-bound", "cuda-graph-opportunity"))
    diagnosis = diagnose(slow_host(), RULES)
    assert "cuda-graph-opportunity" in [
        each.rule for each in diagnosis.findings[[f.rule for f in diagnosis.findings].index("launch-bound")].symptoms
    ]
    both = asked(Question("cuda-graph-opportunity"), Question("launch-bound"), drawn=slow_host())
    most_ns = max(cause.saving_ns_per_step.high, symptom.saving_ns_per_step.high)
    assert both.recorded_ns - both.step_ns[1] <= most_ns
    assert both.step_ns[0] >= 0.95 * (both.recorded_ns - most_ns) - 1


def test_shorter_kernels_win_no_more_than_they_are_shorter():
    (found,) = findings("fp32-matmuls", prepare(limited_by_kernels()))
    saving = found.saving_ns_per_step
    alone = diagnose(limited_by_kernels(), [rule for rule in RULES if rule.id == "fp32-matmuls"])
    assert alone.findings[0].saving_ns_per_step.likely <= saving.likely * 1.002
    prediction = asked(Question("fp32-matmuls"), drawn=limited_by_kernels())
    assert prediction.step_ns[1] == pytest.approx(100 * MS - saving.likely, rel=0.002)


def test_one_fix_alone_saves_what_its_finding_says_and_no_more_or_less():
    diagnosis = diagnose(faulty(), RULES)
    for finding in diagnosis.findings:
        saving = finding.saving_ns_per_step
        if not saving.high or not action(finding.rule):
            continue
        prediction = asked(Question(finding.rule))
        assert prediction.step_ns == tuple(diagnosis.base_ns - ns for ns in (saving.high, saving.likely, saving.low))
        assert prediction.speedup == finding.speedup
        assert (prediction.asked, prediction.fixed) == (True, (finding.rule,))


def test_one_fix_that_cannot_be_simulated_is_answered_by_its_finding_and_a_share_of_it_is_not():
    """Collectives of one rank of four: what their end waited for is unknown."""
    drawn = replace(
        draw(
            kernels="#" * 30,
            nccl=" " * 20 + "=" * 20,
            launched_us_before=50,
            repeat=6,
            unit_us=1000,
            recorded=EVERYTHING,
        ),
        world_size=4,
    )
    saving = diagnose(drawn, RULES).findings[0].saving_ns_per_step
    prediction = asked(Question("exposed-communication"), drawn=drawn)
    assert prediction.recorded_ns - prediction.step_ns[1] == saving.likely > 0
    assert prediction.replay_error is None
    what, _ = refused(Question("exposed-communication", "50%", 0.5), drawn=drawn)
    assert "collectives wait for all 4 ranks, and only 1 of them can be replayed" in what
    assert what.endswith("--what-if exposed-communication alone is answered by the saving of its finding")


# What is predicted without a question


def test_without_a_question_the_shown_causes_are_fixed_that_can_be_simulated():
    diagnosis = diagnose(faulty(), RULES)
    replayable = [each.rule for each in diagnosis.findings if each.saving_ns_per_step.likely and action(each.rule)]
    assert MOST_FIXES == SHOWN_FINDINGS
    assert diagnosis.prediction.fixed[: len(replayable)] == tuple(replayable[:MOST_FIXES])
    assert set(diagnosis.prediction.fixed) <= {each.rule for each in diagnosis.findings if action(each.rule)}
    way = [diagnosis.prediction.recorded_ns, *(step.step_ns for step in diagnosis.prediction.steps)]
    assert all(before - behind >= NOISE_SHARE * way[0] for before, behind in itertools.pairwise(way))
    assert not diagnosis.prediction.asked
    assert diagnosis.prediction.replay_error == pytest.approx(0, abs=0.001)


def test_a_fix_that_wins_nothing_by_itself_is_predicted_where_another_uncovers_it():
    diagnosis = diagnose(faulty(), RULES)
    savings = {each.rule: each.saving_ns_per_step.likely for each in diagnosis.findings}
    assert savings["fp32-matmuls"] == 0  # while the loader is the limit
    assert diagnosis.prediction.fixed.index("input-wait") < diagnosis.prediction.fixed.index("fp32-matmuls")


def action(rule):
    return load_rules()[rule].action


def test_what_cannot_be_simulated_is_the_first_finding_s_saving_subtracted():
    rules = [replace(rule, action="") for rule in RULES]
    diagnosis = diagnose(faulty(), rules)
    first, prediction = diagnosis.findings[0], diagnosis.prediction
    left_ns = 100 * MS - first.saving_ns_per_step.likely
    assert prediction.steps == (PredictedStep(first.rule, left_ns),)
    assert prediction.replay_error is None
    assert predicted((), (), prepare(faulty()), None) is None


# What it rests on


def test_a_note_says_how_true_the_replay_of_the_unchanged_steps_is():
    run = prepare(faulty())
    replay = replay_of(run)
    longer, less = (
        replace(replay, unchanged=replace(replay.unchanged, step_ns=replay.base_ns * by)) for by in (1.0123, 0.97)
    )
    assert next(notes(None, run, replay)).endswith("it takes as long as recorded, to less than 0.1 %.")
    assert next(notes(None, run, longer)).endswith("Replayed unchanged, it takes 1.2 % longer than recorded.")
    assert next(notes(None, run, less)).endswith("it takes 3.0 % less than recorded.")
    assert any("Replayed unchanged" in note for note in diagnose(faulty(), RULES).notes)


def test_a_note_says_that_savings_are_arithmetic_and_why(monkeypatch):
    monkeypatch.setattr("perfdoctor.replay.what_if.run_replay.LARGEST_ERROR", -1.0)
    diagnosis = diagnose(faulty(), RULES)
    assert diagnosis.prediction.replay_error is None
    assert diagnosis.notes[-1].startswith(
        "Savings are arithmetic, since this recording cannot be replayed: the replay of its unchanged steps is off by "
    )


def test_what_cannot_be_simulated_again_says_why():
    assert why_not_replayable(prepare(draw(kernels="## ++"))) == "no steps were found in it"
    assert why_not_replayable(prepare(draw(host="oooo oo", repeat=4))) == ""
    assert why_not_replayable(prepare(faulty())) == ""


# What cannot be asked


def test_a_recording_that_cannot_be_simulated_answers_no_question():
    with pytest.raises(PerfdoctorError) as error:
        asked(Question("input-wait"), drawn=draw(kernels="## ++"))
    assert not isinstance(error.value, UsageError)
    assert error.value.what.endswith("cannot be replayed: no steps were found in it")


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("garbage-collection", "not found in this recording"),
        ("slow-links", "not checked, since the recording lacks ranks"),
    ],
)
def test_what_was_not_found_or_has_no_lever_is_asked_wrongly(rule, why):
    what, do = refused(Question(rule))
    assert what == f"--what-if {rule}: {why}"
    assert do.startswith("What can be asked here: ")
    assert {"exposed-copies", "fp32-matmuls", "input-wait"} <= set(do[24:-1].split(", "))
    assert rule not in do


def test_a_share_of_what_has_no_lever_is_refused_with_the_reason():
    what, _ = refused(Question("idle-unknown", "50%", 0.5))
    why = "its rule does not say which work gets shorter; --what-if idle-unknown alone is answered by the saving"
    assert what.startswith(f"--what-if idle-unknown: found, but its fix cannot be simulated on this recording: {why}")


def test_each_finding_that_saves_time_of_the_step_can_be_asked_for_also_without_a_lever():
    found = [each for each in with_symptoms(diagnose(faulty(), RULES).findings) if each.saving_ns_per_step.high]
    assert "idle-unknown" in {each.rule for each in found}
    for each in found:
        (question,) = questions(each.rule, {rule.id: rule for rule in RULES})
        assert asked(question).fixed == (each.rule,)
    least, most = (asked(Question("idle-unknown", choice)).step_ns for choice in ("low", "high"))
    assert least[0] == least[2] > most[0] == most[2]


def test_what_was_ignored_is_asked_wrongly():
    rules = [rule for rule in RULES if rule.id != "input-wait"]
    assert refused(Question("input-wait"), rules=rules)[0].endswith(
        "--rule or --ignore leave it out, or it is not about such a program"
    )


def test_where_nothing_was_found_only_sizes_can_be_asked():
    drawn = draw(kernels="G" * 99 + " ", launched_us_before=50, repeat=8, unit_us=100, recorded=EVERYTHING)
    assert refused(Question("input-wait"), drawn=drawn)[1] == "What can be asked here: batch=2x, synthetic-data."


def test_a_gpu_without_bf16_is_not_asked_for_it():
    what, do = refused(Question("fp32-matmuls", "bf16"), drawn=faulty(gpu="Tesla V100-SXM2-32GB"))
    assert what == "--what-if fp32-matmuls=bf16: this GPU has no units for it"
    assert do == "Choices of fp32-matmuls here: fp16, low, likely, high."
    assert asked(Question("fp32-matmuls", "fp16"), drawn=faulty(gpu="Tesla V100-SXM2-32GB")).steps


def test_a_share_of_kernels_needs_a_finding_that_tells_which(monkeypatch):
    detector = __import__("perfdoctor.detectors.kernels.fp32_matmuls", fromlist=["detect"])
    detect = detector.detect
    monkeypatch.setattr(detector, "detect", lambda run, at: (replace(each, work={}) for each in detect(run, at)))
    what, do = refused(Question("fp32-matmuls", "50%", 0.5))
    assert what.endswith("its finding does not say of which kernels a share is meant")
    assert do == "Choices of fp32-matmuls here: bf16, fp16, low, likely, high."


def test_a_share_of_kernels_is_that_of_those_the_finding_is_about():
    drawn = limited_by_kernels()
    (found,) = findings("fp32-matmuls", prepare(drawn))
    if not found.work:
        pytest.skip("the finding does not name its kernels")
    assert asked(Question("fp32-matmuls", "50%", 0.5), drawn=drawn).step_ns[1] == pytest.approx(70 * MS, rel=0.01)


def test_of_a_step_that_is_shorter_without_a_recorder_best_and_worst_lie_around_the_likely_in_proportion(monkeypatch):
    monkeypatch.setattr(prediction_of_fixes, "real_step_ns", lambda run: 800)
    recorded = Prediction(
        fixed=("a",), step_ns=Range(500, 600, 900), speedup=Range(1.1, 1.7, 2.0), recorded_ns=1_000,
        steps=(PredictedStep("a", 600),),
    )  # fmt: skip
    real = prediction_of_fixes.in_real_time(recorded, [], prepare(faulty()))
    assert (tuple(real.step_ns), real.unrecorded_ns) == ((400, 480, 720), 800)
    assert [step.step_ns for step in real.steps] == [480]
    assert tuple(real.speedup) == pytest.approx((800 / 720, 800 / 480, 2.0))

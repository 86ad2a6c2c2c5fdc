"""Sentences speak of steps only where steps were found."""

from __future__ import annotations

import re
from string import Formatter

import pytest

from perfdoctor.vocabulary.basis import EXECUTION, ITERATION, RECORDING, STEP, Basis
from perfdoctor.vocabulary.names.frameworks import holds
from perfdoctor.vocabulary.rulebook import Rule, load_rules

#: What a text may only say of a recording whose steps were found.
A_STEP = re.compile(r"\b(an?|one|per|each|every|this|next|whole|the|ms) step\b", re.IGNORECASE)
SEEN_IN = re.compile(r"\{steps_(hit|seen)")
OTHERS = pytest.mark.parametrize(
    "basis", [RECORDING, EXECUTION, ITERATION], ids=["recording", "execution", "iteration"]
)
IDLE = "The GPU is idle for {idle_ms:.1f} ms of a {step_ms:.1f} ms step: {kernels:.0f} kernels a step, 3 µs each."


def placeholders(template: str) -> set[tuple[str, str]]:
    return {(name, shown or "") for _, name, shown, _ in Formatter().parse(template) if name}


@OTHERS
@pytest.mark.parametrize("rule", load_rules().values(), ids=lambda rule: rule.id)
def test_words_change_and_numbers_stay(rule: Rule, basis: Basis):
    for template in (rule.summary, *rule.summaries.values()):
        left = placeholders(basis.numbers(template))
        assert left <= placeholders(template)
        assert basis is RECORDING or left == placeholders(template)


def test_where_steps_were_found_nothing_is_changed():
    assert STEP.numbers(IDLE) == IDLE
    assert STEP.prose("The step ends late.") == "The step ends late."


def test_a_recording_without_steps_is_a_whole():
    said = "The GPU is idle for {idle_ms:.1f} ms of the {step_ms:.1f} ms recorded: {kernels:.0f} kernels, 3 µs each."
    assert RECORDING.numbers(IDLE) == said
    assert RECORDING.numbers("Largest of them, a step") == "Largest of them"
    assert RECORDING.numbers("As a share of a step") == "As a share of an iteration"


@OTHERS
def test_the_names_of_numbers_stay_what_they_are(basis):
    names = re.compile(r"\{(\w+)")
    for rule in load_rules().values():
        for text in (rule.summary, *rule.summaries.values()):
            assert {*names.findall(basis.numbers(text))} <= {*names.findall(text)}, rule.id


def test_a_range_has_executions():
    said = (
        "The GPU is idle for {idle_ms:.1f} ms of a {step_ms:.1f} ms execution of the range: "
        "{kernels:.0f} kernels an execution of the range, 3 µs each."
    )
    assert EXECUTION.numbers(IDLE) == said


def test_how_many_steps_it_was_seen_in_is_left_out_where_there_are_none():
    seen = "idle (`x`), in {steps_hit:.0f} of {steps_seen:.0f} recorded steps."
    assert RECORDING.numbers(seen) == "idle (`x`)."
    assert ITERATION.numbers(seen) == "idle (`x`), in {steps_hit:.0f} of {steps_seen:.0f} recorded iterations."


def test_what_a_program_repeats_is_an_iteration_where_no_steps_are_known():
    assert RECORDING.prose("The step waits in each step, once a step.") == (
        "The iteration waits in each iteration, once an iteration."
    )
    assert RECORDING.prose("An optimizer step, train_step(batch), time steps.") == (
        "An optimizer step, train_step(batch), time steps."
    )


@OTHERS
@pytest.mark.parametrize("rule", load_rules().values(), ids=lambda rule: rule.id)
def test_no_text_of_a_rule_speaks_of_a_step_that_was_not_found(rule: Rule, basis: Basis):
    if "steps" in rule.needs and basis is RECORDING:
        pytest.skip("is never found without steps")
    templates = [rule.summary, *(text for name, text in rule.summaries.items() if not name.startswith("once"))]
    texts = [rule.title, rule.why, rule.not_a_problem_when, rule.doubt]
    texts += [text for fix in rule.fixes for text in (fix.title, fix.how)]
    said = [*map(basis.numbers, templates), *map(basis.prose, texts)]
    assert [text for text in said if A_STEP.search(text) or (not basis.noun and SEEN_IN.search(text))] == [], (
        f"said where there is no step, but {basis.noun or 'a recording'}: write it as vocabulary/basis.py can reword it"
    )


#: Words of a training, which a program that answers requests has nothing of.
OF_TRAINING = re.compile(
    r".{0,40}(?:(?<!pre)train|optimizer|\bloss|backward|DataLoader|\bloader|epoch|\bgradient).{0,20}", re.IGNORECASE
)
#: They speak of a loader because one was recorded; one that copies into memory of its own is a training's as well.
SEES_A_LOADER = ("input-wait", "worker-restarts", "rank-skew")
SERVING = Basis("iteration", serves=True)


@pytest.mark.parametrize("rule", load_rules().values(), ids=lambda rule: rule.id)
def test_no_text_of_a_rule_speaks_of_training_where_requests_are_answered(rule: Rule):
    facts = frozenset(("inference",))
    if not rule.applies(facts) or rule.id in SEES_A_LOADER:
        pytest.skip("says nothing of inference, or of a loader that was recorded")
    worded = rule.in_words_of(facts)
    fixes = [fix for fix in worded.fixes if all(holds(condition, facts) for condition in fix.when)]
    texts = [
        worded.title,
        worded.why,
        worded.not_a_problem_when,
        worded.doubt,
        worded.summary,
        *worded.summaries.values(),
    ]
    texts += [text for fix in fixes for text in (fix.title, fix.how)]
    assert [found[0] for text in map(SERVING.prose, texts) for found in OF_TRAINING.finditer(text)] == [], (
        'said to a server: write when = ["not inference"] at the rule or the fix, or other words under [inference]'
    )


def test_a_program_that_answers_requests_is_no_training():
    assert SERVING.prose("The training thread starts the training, train_step(batch), python train.py") == (
        "The main thread starts the program, run(request), python main.py"
    )
    assert SERVING.prose("for step, batch in enumerate(loader):") == "for request in requests:"


#: Rules that a run without a GPU can have findings of are about the host, or about processes of a job.
OF_A_GPU = re.compile(r".{0,40}\bGPUs?\b(?! (?:work|activit)).{0,30}")
WITHOUT_GPU = ("input-wait", "worker-restarts", "host-work", "blocking-checkpoint", "garbage-collection", "peer-waits")
WITHOUT_GPU += (
    "profiler-overhead",
    "allocator-churn",
    "recompilation",
    "small-collectives",
    "exposed-communication",
    "small-batch",
)


@pytest.mark.parametrize("name", WITHOUT_GPU)
def test_the_words_of_a_run_without_a_gpu_speak_of_none(name: str):
    rule = load_rules()[name].in_words_of(frozenset(), without_gpu=True)
    texts = [rule.title, rule.why, rule.doubt, rule.summary, *rule.summaries.values()]
    assert [found[0] for text in texts for found in OF_A_GPU.finditer(text)] == [], (
        "said of a run without a GPU: write {the_device}, or other words under [without_gpu]"
    )

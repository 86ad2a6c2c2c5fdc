"""Are numbers and foreign text put into words as people read them?"""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from report.samples import COMMUNICATION, GROWING, HEALTHY, INPUT_BOUND, NO_STEPS, NOTHING, POISON, POISONED
from tables import of_each

from perfdoctor.records.diagnosis import GpuInfo, SourceInfo
from perfdoctor.records.findings import Outcome
from perfdoctor.records.savings import Range, Saving
from perfdoctor.report.words import skipped_rules, wording
from perfdoctor.report.words.foreign_text import clean, clean_block, clean_name
from perfdoctor.report.words.parts import all_parts, cells
from perfdoctor.vocabulary.signals import NEEDS


@of_each(
    ("ns", "words"),
    [
        (0, "0"),
        (7, "7 ns"),
        (999, "999 ns"),
        (12_400, "12.4 µs"),
        (999_600, "1.00 ms"),
        (231e6, "231 ms"),
        (9.996e6, "10.0 ms"),
        (1_271_000_000, "1.27 s"),
        (8_412e9, "8,412 s"),
        (-5e6, "-5.00 ms"),
        (float("nan"), "–"),
        (float("inf"), "–"),
    ],
)
def test_durations_have_three_digits_and_never_a_thousand_of_a_unit(ns, words):
    assert wording.duration(ns) == words


@pytest.mark.parametrize(
    ("fraction", "words"),
    [(0, "0"), (0.0004, "<1 %"), (0.01, "1 %"), (0.41, "41 %"), (0.996, ">99 %"), (1, "100 %"), (float("nan"), "–")],
)
def test_shares_are_whole_percent_and_small_is_not_nothing(fraction, words):
    assert wording.share(fraction) == words


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (1536, "bytes", "1.50 KiB"),
        (40, "bytes", "40 B"),
        (87.4e9, "bytes_per_second", "87.4 GB/s"),
        (12480, "count", "12,480"),
        (2.5, "count", "2.50"),
        (float("inf"), "count", "–"),
        (0.619, "share", "62 %"),
        ("void f(int)", "text", "f(int)"),
        ("text in a number column", "ns", "text in a number column"),
    ],
)
def test_evidence_reads_in_its_unit(value, unit, words):
    assert wording.quantity(value, unit) == words


@pytest.mark.parametrize(
    ("number", "words"), [(1.0, "1.00"), (1.003, "<1.01"), (1.046, "1.05"), (2.62, "2.6"), (12.3, "12")]
)
def test_speedups_keep_the_digits_that_matter(number, words):
    assert wording.factor(number) == words


@pytest.mark.parametrize(
    ("speedups", "words"),
    [
        ((1.7, 4.3, 9.0), "4.3× (1.7–9.0)"),
        ((1.7, 4.27, 999.99), "4.3× (1.7 or more)"),
        ((200.0, 500.0, 1000.0), "more than 10×"),
        ((1.0, 187.0, 1000.0), "more than 10× (1.00 or more)"),
        ((20.0, 22.0, 23.0), "22× (20–23)"),
    ],
)
def test_a_speedup_that_leaves_nothing_of_the_step_has_no_upper_end(speedups, words):
    assert wording.speedup(Range(*speedups)) == words


def test_the_verdict_names_the_finding_and_the_step_after_the_fix():
    assert wording.verdict(INPUT_BOUND) == (
        "Training waits for data (input-bound). Fixing it takes 61 % off each 701 ms step, to about 270 ms (2.6×)."
    )


def between(low: float, likely: float, high: float, of: int = 0):
    """The first finding of INPUT_BOUND with another saving, as shares of the step."""
    step_ns = INPUT_BOUND.base_ns
    saving = Saving(round(low * step_ns), round(likely * step_ns), round(high * step_ns))
    return replace(INPUT_BOUND.findings[of], saving_ns_per_step=saving)


@of_each(
    ("first", "second", "is_clear"),
    [
        ((0.1, 0.3, 0.4), (0.15, 0.25, 0.35), False),  # each one's likely saving lies in the other's range
        ((0.26, 0.3, 0.4), (0.15, 0.25, 0.35), True),  # the first brings more than the second likely does
        ((0.1, 0.4, 0.5), (0.15, 0.25, 0.35), True),  # the second never brings what the first likely does
        ((0.0, 0.3, 0.4), (0.0, 0.0, 0.4), True),  # what the second brings is not known
    ],
)
def test_two_findings_that_cannot_be_ranked_are_both_named(first, second, is_clear):
    both = replace(INPUT_BOUND, findings=(between(*first), between(*second)))
    said = wording.verdict(both)
    assert said.startswith("No clear limit: ") == (not is_clear)
    if not is_clear:
        assert "(30 %) or " in said
        assert "(25 %) of each" in said


def test_what_is_left_of_a_file_that_is_cut_off_is_too_little_without_a_whole_step():
    cut = replace(HEALTHY, sources=tuple(replace(source, cut_off=True) for source in HEALTHY.sources))
    assert wording.verdict(cut).startswith("Nothing worth fixing")
    without = replace(cut, steps=replace(HEALTHY.steps, used=0))
    assert wording.verdict(without).startswith("Too little to say: the file is cut off, and ")


def test_few_steps_of_different_length_are_too_little_to_say():
    few = replace(HEALTHY, steps=replace(HEALTHY.steps, used=3, p10_ns=150_000_000, p90_ns=260_000_000))
    assert wording.verdict(few).startswith("Too little to say: 3 steps between 150 ms and 260 ms")
    alike = replace(HEALTHY, steps=replace(HEALTHY.steps, used=3))
    assert wording.verdict(alike).startswith("Nothing worth fixing")


def test_the_verdict_of_a_finding_with_low_confidence_says_what_is_likely_and_that_it_may_be_less():
    assert wording.verdict(NO_STEPS) == (
        "Training blocked by file I/O (checkpoint saving or file reads). "
        "Fixing it may take about 21 % off the 8.40 s recorded, or much less (low confidence)."
    )


def test_a_note_is_not_worth_fixing():
    note = replace(INPUT_BOUND.findings[0], saving_ns_per_step=Saving(0, 0, 0))
    diagnosis = replace(INPUT_BOUND, findings=(note,))
    assert wording.verdict(diagnosis).startswith("No cause was proven: idle time takes 66 %")
    assert wording.saving(diagnosis, note) == "note: saves nothing by itself"
    # Without a timeline the saving is 0 because nothing was measured.
    assert wording.saving(replace(diagnosis, time=()), note) == "saving unknown: no timeline was recorded"


def test_confidence_is_explained_in_one_sentence():
    advice = replace(
        INPUT_BOUND.findings[0], confidence="medium", confidence_because="Measured on 2 steps; 2 steps are few."
    )
    assert wording.certainty(advice) == "Medium confidence: measured on 2 steps; 2 steps are few."
    assert wording.certainty(replace(advice, confidence_because="")) == ""


@of_each(
    "amount,said",
    [
        (0.0001234, "0.000123 USD"), (0.999, "0.999 USD"), (2.5, "2.50 USD"), (99.949, "99.95 USD"), (99.95, "100 USD"),
        (999.49, "999 USD"), (999.5, "1,000 USD"), (23_344, "23,300 USD"), (-23_344, "-23,300 USD"), (0, "0.00 USD"),
    ],
)  # fmt: skip
def test_money_has_three_digits(amount, said):
    assert wording.money(amount, "USD") == said


@pytest.mark.parametrize(("length", "is_cut"), [(160, False), (161, True)])
def test_of_a_rule_that_raised_the_error_is_said_in_160_characters(length, is_cut):
    said = ("words " * 40)[:length]
    outcomes = (Outcome("input-wait", "failed", error=said), Outcome("a/b", "failed", error=said, origin="theirs"))
    ((rule, error),) = skipped_rules.failed(replace(HEALTHY, outcomes=outcomes))
    assert (rule, len(error), error != said) == ("input-wait", 160, is_cut)


def test_skipped_rules_say_what_to_record():
    assert skipped_rules.to_record(("calls|ops", "ranks")) == f"{NEEDS['calls'].hint}; {NEEDS['ranks'].hint}"
    assert skipped_rules.to_record(("unknown-signal",)) == ""
    assert skipped_rules.how_to_check(("a",), "record kernels") == ". To check it, record kernels"
    assert skipped_rules.how_to_check(("a", "b"), "record kernels") == ". To check them, record kernels"


def test_the_verdict_of_a_finding_without_a_saving_says_so():
    unknown = replace(INPUT_BOUND.findings[0], saving_ns_per_step=Saving(0, 0, 400_000_000))
    assert wording.verdict(replace(INPUT_BOUND, findings=(unknown,))) == (
        "Training waits for data (input-bound). How much time a fix saves is unknown."
    )


def test_the_verdict_of_a_finding_that_costs_no_time_is_its_summary():
    assert wording.verdict(GROWING) == (
        "Memory on the GPU rises by 4.2 MiB a step, to 61,200 MiB held after the recorded ones."
    )
    assert wording.saving(GROWING, GROWING.findings[0]) == "costs memory, no time"


def test_healthy_names_the_limit():
    assert wording.verdict(HEALTHY) == "Nothing worth fixing: compute fills 96 % of each 212 ms step."


def test_without_a_gpu_rules_about_gpus_are_one_line_and_the_others_count():
    on_cpu = replace(HEALTHY, time=tuple(replace(split, device=None) for split in HEALTHY.time))
    outcomes = (
        Outcome("a", "clear"),
        Outcome("b", "skipped", ("kernels",)),
        Outcome("c", "skipped", ("places", "kernels|copies|collectives")),
        Outcome("d", "skipped", ("calls|ops",)),
        Outcome("e", "skipped", ("collectives",)),
    )
    diagnosis = replace(on_cpu, outcomes=outcomes)
    assert wording.about_gpus(diagnosis) == ("b", "c")
    assert skipped_rules.only_counted(diagnosis) == "2 rules are about GPUs"
    assert [rules for _, rules, _ in skipped_rules.not_checked(diagnosis)] == [("d",), ("e",)]
    assert wording.verdict(diagnosis).endswith("; 2 of 3 rules could not be checked.")
    assert wording.about_gpus(replace(diagnosis, gpu_not_recorded=True)) == ()
    assert wording.about_gpus(replace(HEALTHY, outcomes=outcomes)) == ()


def test_what_only_nvidias_tools_record_is_counted_where_no_gpu_is_nvidias():
    outcomes = (
        Outcome("a", "clear"),
        Outcome("b", "skipped", ("kernel_profiles",)),
        Outcome("c", "skipped", ("device_samples|gpu_counters",)),
        Outcome("d", "skipped", ("nccl_facts", "links")),
        Outcome("e", "skipped", ("SpeedOfLight",)),
        Outcome("f", "skipped", ("memory|memory_totals",)),
    )
    diagnosis = replace(HEALTHY, outcomes=outcomes, gpus=(GpuInfo(0, 0, "AMD Instinct MI300X", True),))
    assert skipped_rules.only_counted(diagnosis) == "4 rules need NVIDIA's tools"
    assert [rules for _, rules, _ in skipped_rules.not_checked(diagnosis)] == [("f",)]
    assert wording.verdict(diagnosis).endswith("; 1 of 2 rules could not be checked.")
    for gpus in (HEALTHY.gpus, (), (*diagnosis.gpus, *HEALTHY.gpus), (GpuInfo(0, 0, "", False),)):
        assert skipped_rules.only_counted(replace(diagnosis, gpus=gpus)) == ""


def test_nobody_is_sent_to_the_tool_that_recorded_it():
    diagnosis = replace(HEALTHY, outcomes=(Outcome("a", "clear"), Outcome("b", "skipped", ("overheads",))))
    by = {kind: replace(diagnosis, sources=(SourceInfo(kind, "file", "", (0,)),)) for kind in ("kineto", "nsys")}
    assert skipped_rules.not_checked(by["kineto"]) == []
    assert "could not be checked" not in wording.verdict(by["kineto"])
    assert [hint for _, _, hint in skipped_rules.not_checked(by["nsys"])] == ["record with torch.profiler"]


def test_a_skipped_rule_never_reads_like_a_clear_one():
    half = replace(HEALTHY, outcomes=(Outcome("a", "clear"), Outcome("b", "skipped", ("ranges",))))
    nothing = replace(HEALTHY, outcomes=(Outcome("a", "failed", (), "KeyError"), Outcome("b", "skipped", ("ranges",))))
    assert wording.verdict(half).endswith("; 1 of 2 rules could not be checked.")
    assert wording.verdict(nothing) == "Nothing was diagnosed: none of 2 rules could be checked on this recording."
    assert wording.verdict(NOTHING).startswith("Nothing to diagnose:")


def test_ranks_that_were_not_recorded_are_counted():
    assert wording.recorded(COMMUNICATION)[:2] == ("8 × NVIDIA A100-SXM4-80GB", "8 of 16 ranks")


def test_escape_sequences_and_control_characters_are_gone():
    assert clean(POISON) == "</script><img src=x onerror=alert(1)>[red]kernel[/] |`*_@all \ufffd"
    assert clean("a\x9b31mb\x1b[2Jc\x1b]8;;http://x\x1b\\d\u202ee") == "abcde"
    assert clean_block("a\x00\n\tb\r\n") == "a\n\tb\n"


def test_long_names_keep_both_ends():
    name = clean_name("void gemm_" + "x" * 5_000 + "_bf16", 40)
    assert (len(name), name[:5], name[-5:]) == (40, "gemm_", "_bf16")
    assert "…" in name
    assert len(clean("word " + "y" * 5_000)) < 120


@of_each("width", [1, 7, 40, 80, 200])
@of_each("diagnosis", [INPUT_BOUND, COMMUNICATION, HEALTHY, POISONED])
def test_a_bar_is_exactly_as_wide_as_asked(diagnosis, width):
    shown = all_parts(diagnosis)
    assert sum(cells(shown, width)) == width
    assert sum(part.ns for part in shown) == sum(split.window_ns for split in diagnosis.time)


def test_a_version_is_whole():
    (source, *_) = INPUT_BOUND.sources
    cuda = replace(source, kind="kineto", tool_version="schemaVersion 1, CUDA 12.6")
    assert wording.recorded(replace(INPUT_BOUND, sources=(cuda,)))[-1] == "kineto schemaVersion 1, CUDA 12.6"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(2e6, 4e6, "2.00 ms to 4.00 ms"), (1, 32e6, "up to 32.0 ms"), (0.31e6, 32e6, "up to 32.0 ms"),
     (0.33e6, 32e6, "330 µs to 32.0 ms")],
)  # fmt: skip
def test_a_range_of_times_that_begins_at_next_to_nothing_has_no_lower_end(low, high, said):
    assert wording.between(low, high) == said

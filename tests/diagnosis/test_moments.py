"""Which moment of the recording does a finding show? The longest of what it is about, and none where that is not known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from builders import BASE_NS, draw, frame, only_finding, only_place
from folders import FIXTURES
from recorded import parameter, recording

from perfdoctor.diagnosis.moments import moments
from perfdoctor.metrics.accounting.longest import LONGEST, analysed_span, longest, longest_idle
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline, merge
from perfdoctor.records.findings import Finding, Span
from perfdoctor.records.savings import Saving
from perfdoctor.report.words.wording import where
from perfdoctor.vocabulary.rulebook import load_rules

UNIT = 100_000
RULES = load_rules()


def finding(rule: str, **more) -> Finding:
    return Finding(rule=rule, saving_ns_per_step=Saving(0, 0, 0), confidence="high", values={}, **more)


def moment(drawn, rule: str, **more) -> tuple[int, int, int] | None:
    """(rank, start, end) in units of the picture."""
    run = drawn if isinstance(drawn, Run) else prepare(drawn)
    found = moments(RULES[rule], finding(rule, **more), run)
    assert len(found) <= 1
    return next(((span.rank, span.start_ns / UNIT, span.end_ns / UNIT) for span in found), None)


def flat(findings):
    for advice in findings:
        yield advice
        yield from flat(advice.symptoms)


# ---- idle -----------------------------------------------------------------------------------------------------------


WAITING = {"kernels": "##     ##   ##  ", "host": ["l      l    l   ", "  iiiii  iii    "]}


def test_of_idle_the_longest_stretch_of_its_cause():
    run = prepare(draw(**WAITING, repeat=5))
    (place,) = run.places
    waits = place.idle_causes["input_wait"]
    at = int(waits.durations_ns.argmax())
    zero = int(place.window.starts[0])
    expected = (0, (int(waits.starts[at]) - zero) / UNIT, (int(waits.ends[at]) - zero) / UNIT)
    assert moment(run, "input-wait") == expected
    assert expected[2] - expected[1] == 5


def test_over_all_ranks_and_from_one_zero():
    short = draw(kernels="##   ##", host=["l    l ", "  iii  "], repeat=5)
    long = draw(kernels="#     #", host=["l    l ", "iiiii  "], repeat=5, rank=1)
    rank, start, end = moment(merge([short, long]), "input-wait")
    assert (rank, end - start) == (1, 4)
    assert start % 7 == 1


def test_a_part_of_a_cause_tells_no_moment_of_the_whole():
    drawn = draw(kernels="#   " * 8, host="l   " * 8, repeat=4)
    assert moment(drawn, "launch-bound") is not None
    assert moment(drawn, "cuda-graph-opportunity") is None


def test_without_such_idle_there_is_no_moment():
    assert moment(draw(kernels="####", host="l   ", repeat=5), "input-wait") is None
    assert list(longest_idle(prepare(draw(kernels="####", host="l   ", repeat=5)), "storage")) == []


# ---- work -----------------------------------------------------------------------------------------------------------


def chosen(drawn, *names: str):
    place = only_place(drawn)
    return {(0, 0): place.kernels.name.where(lambda name: name in names)}


def test_of_kernels_the_longest_run_of_them_in_one_step():
    drawn = draw(kernels="##ee ##eee ## ", launched_us_before=0, repeat=4)
    work = chosen(drawn, next(name for name in set(drawn.kernels.name) if "elementwise" in name))
    assert moment(drawn, "precision-casts", work=work) in [(0, step * 14 + 7, step * 14 + 10) for step in range(4)]


def test_a_run_ends_where_another_kernel_a_step_or_a_pause_comes():
    lane, name = "##e#ee" + " " * 30 + "eee", "k"
    drawn = draw(kernels=lane + " ", launched_us_before=0, repeat=4, kernel_names={"e": name})
    # In a step: 1, then 2; a pause of 3 ms; then 3. From one step to the next there is a kernel that is not chosen.
    rank, start, end = moment(drawn, "precision-casts", work=chosen(drawn, name))
    assert (rank, end - start, start % 40) == (0, 3, 36)
    alone = draw(kernels="ee e", launched_us_before=0, repeat=4, kernel_names={"e": name})
    mask = {(0, 0): np.ones(len(only_place(alone).kernels), dtype=bool)}
    begin, end = moment(alone, "precision-casts", work=mask)[1:]
    assert (begin % 4, end - begin) == (0, 4)  # a step, although they follow each other through all of them


def test_all_the_work_there_is_makes_no_moment():
    assert moment(draw(kernels="## ##", launched_us_before=1, repeat=4), "precision-casts") is None


def test_of_copies_the_one_that_is_exposed_longest():
    drawn = draw(kernels="      ####", copies="HHH hhhhhh", launched_us_before=1, repeat=4)
    rank, start, end = moment(drawn, "exposed-copies")
    assert (rank, end - start) == (0, 3)  # the longer one is hidden but for two units


def test_of_a_late_rank_the_collective_in_which_another_waits_for_it():
    waits = draw(kernels="##     ", nccl="  =====", launched_us_before=1, repeat=4)
    late = draw(kernels="#####  ", nccl="     ==", launched_us_before=1, repeat=4, rank=1)
    work = {(1, 0): np.zeros(0, dtype=bool)}
    rank, start, end = moment(merge([waits, late]), "rank-skew", work=work)
    assert (rank, end - start) == (0, 5)


def test_of_the_training_thread_its_longest_stretch_in_the_window():
    drawn = draw(host=["oo   oo  ", "rrrrrrrrr"], repeat=5)
    run = prepare(drawn)
    (place,) = run.places
    zero = int(place.window.starts[0])
    starts, ends = (
        np.array([zero + at * UNIT for at in edges], dtype=np.int64) for edges in ((-50, 3, 10), (1, 5, 13))
    )
    assert moment(run, "parameter-loops", thread_time={0: (starts, ends)}) == (0, 10, 13)


# ---- as evidence ----------------------------------------------------------------------------------------------------


def test_a_finding_that_shows_a_moment_itself_gets_no_other():
    own = Span("here", 0, 1, 2)
    assert moment(draw(**WAITING, repeat=5), "input-wait", evidence=(own,)) is None


def test_moments_are_cut_to_the_window():
    run = prepare(draw(**WAITING, repeat=5))
    begin, end = analysed_span(run)
    (span,) = longest(run, [(0, begin - 50, begin + 10), (0, end - 3, end + 90)])
    assert (span.start_ns, span.end_ns) == (0, 10)
    assert list(longest(run, [(0, end + 5, end + 9)])) == list(longest(run, [])) == []


def test_of_long_steps_the_longest():
    usual, long, longest_of_all = "####  ## ", "####       ## ", "####         ## "
    steps = [usual] * 4 + [long] + [usual] * 6 + [longest_of_all] + [usual] * 8
    edges = (BASE_NS + UNIT * np.cumsum([0, *map(len, steps)])).tolist()
    marks = [{"start_ns": a, "end_ns": b, "name": f"ProfilerStep#{n}"} for n, (a, b) in enumerate(pairwise(edges))]
    drawn = draw(kernels="".join(steps), launched_us_before=0)
    drawn = Timeline.build({**drawn.frames, "ranges": frame("ranges", marks)}, {*drawn.recorded, "ranges"})
    found = only_finding("step-outliers", drawn)
    (span,) = (each for each in found.evidence if isinstance(each, Span))
    assert (span.start_ns, span.end_ns) == (edges[11] - edges[0], edges[12] - edges[0])


def test_of_copies_between_pageable_memory_and_the_device_the_one_that_is_exposed_longest():
    drawn = draw(kernels="        ####  ", copies="HHH hhhh HHHH ", launched_us_before=0, repeat=4)
    found = only_finding("pageable-copies", drawn)
    (span,) = (each for each in found.evidence if isinstance(each, Span))
    assert (span.start_ns % (14 * UNIT), span.end_ns - span.start_ns) == (0, 3 * UNIT)


@pytest.mark.parametrize(("path", "rule"), [parameter(FIXTURES / path, FIXTURES / path, rule) for path, rule in (
    ("input-bound-workers/nsys", "input-wait"),
    ("sync-drains-queue/torch", "host-syncs"),
    ("sync-drains-queue/torch", "item-syncs"),
    ("unfused-optimizer/torch", "unfused-optimizer"),
    ("communication-exposed/nsys", "exposed-communication"),
    ("straggler/torch", "rank-skew"),
    ("cpu-slow-input/torch", "input-wait"),
)])  # fmt: skip
def test_a_report_shows_where_to_look(path, rule):
    run, diagnosis = recording(path).run, recording(path).diagnosis
    advice = next(each for each in flat(diagnosis.findings) if each.rule == rule)
    (span,) = (each for each in advice.evidence if isinstance(each, Span))
    begin, end = analysed_span(run)
    assert span.label == LONGEST
    assert 0 <= span.start_ns < span.end_ns <= end - begin
    assert span.end_ns - span.start_ns <= 2 * diagnosis.base_ns  # a moment, not all of the run


def test_a_moment_that_is_over_at_once_is_named_by_one_time():
    assert where(Span("", 3, 1_120_000_000, 1_120_508_000)) == "508 µs on rank 3, at 1.12 s of the window"
    assert where(Span("", 3, 0, 2_000_000)) == "2.00 ms on rank 3, from 0 to 2.00 ms of the window"

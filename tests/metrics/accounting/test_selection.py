"""Is the part that `--range` and `--steps` select the one that is analysed? Held against sets of single moments."""

from __future__ import annotations

import numpy as np
import pytest
from builders import BASE_NS, draw, timeline
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose, examine
from perfdoctor.diagnosis.questions import Question
from perfdoctor.errors import UsageError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.selection import range_names
from perfdoctor.metrics.accounting.split import split
from perfdoctor.model.run import Selection
from perfdoctor.model.timeline import merge
from perfdoctor.records.savings import Range
from perfdoctor.replay.what_if.run_replay import why_not_replayable
from perfdoctor.vocabulary.rulebook import load_rules

RULES = load_rules()
UNIT = 100_000


def units(pieces):
    """The units of the picture that these pieces cover, counted from where it begins."""
    return {at for start, end in pieces for at in range((start - BASE_NS) // UNIT, (end - BASE_NS) // UNIT)}


def analysed(recorded, **asked):
    (place,) = prepare(recorded, Selection(**asked)).places
    return place


def moments(recorded, name):
    """The moments that count for a range, from its definition, one by one: sets of integers, no algebra."""
    work = [
        (int(start), int(end), int(correlation))
        for signal in ("kernels", "collectives", "copies")
        for start, end, correlation in zip(
            *(recorded[signal][c] for c in ("start_ns", "end_ns", "correlation")), strict=True
        )
    ]
    launched_at = dict(zip(recorded.calls["correlation"].tolist(), recorded.calls.start_ns.tolist(), strict=True))
    busy = {at for start, end, _ in work for at in range(start, end)}
    first_ns, last_ns = min(row[0] for row in work), max(row[1] for row in work)
    executions = []
    for begin, end, text in zip(recorded.ranges.start_ns, recorded.ranges.end_ns, recorded.ranges.name, strict=True):
        if text != name:
            continue
        own = [row for row in work if begin <= launched_at.get(row[2], -1) < end]
        if not own:
            executions.append((int(begin), {at for at in range(begin, end) if at not in busy}))
            continue
        low, high = min(row[0] for row in own), max(row[1] for row in own)
        while low - 1 >= begin and low - 1 not in busy:
            low -= 1
        while high < end and high not in busy:
            high += 1
        executions.append((min(row[0] for row in own), set(range(low, high))))
    inside = [counted for at, counted in executions if first_ns <= at < last_ns]
    return set().union(*(inside or [counted for _, counted in executions]), set())


PIECES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6), st.integers(0, 9)), min_size=1, max_size=6)
RANGES = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 15), st.booleans()), min_size=1, max_size=3)


@given(PIECES, RANGES)
def test_the_window_of_a_range_is_its_definition_moment_by_moment(pieces, ranges):
    """Work that is launched before it runs, by one thread in order; ranges one behind the other, wherever they fall."""
    kernels, calls, at, called = [], [], 100, 60
    for number, (gap, length, ahead) in enumerate(pieces):
        at += gap
        called = max(called + 1, at - ahead)
        if called >= at:
            at = called + 1
        kernels.append({"start_ns": at, "end_ns": at + length, "name": "k", "correlation": number + 1})
        calls.append({"start_ns": called, "end_ns": called + 1, "name": "cudaLaunchKernel", "correlation": number + 1})
        at += length
    rows, begin = [], 80
    for gap, length, is_wanted in ranges:
        rows.append({"start_ns": begin + gap, "end_ns": begin + gap + length, "name": "mine" if is_wanted else "other"})
        begin += gap + length
    recorded = timeline(
        kernels=kernels, calls=calls, ranges=rows, recorded=("kernels", "copies", "collectives", "calls", "ranges")
    )
    expected = moments(recorded, "mine")
    try:
        run = prepare(recorded, Selection("mine"))
    except UsageError:
        assert not expected
        return
    (place,) = run.places
    assert {at for start, end in place.window for at in range(start, end)} == expected
    split(place)  # the parts of the window sum to it, and the causes to idle: it checks itself
    assert int(place.steps.durations_ns.sum()) == place.window_ns


def test_steps_are_its_executions_and_work_outside_is_not_counted():
    recorded = draw(
        kernels="  ## ##      e    ",
        host=["l  l     l        ", " rrrrr            "],
        repeat=5,
    )  # fmt: skip
    place = analysed(recorded, range_name="forward")
    assert place.steps.used == 4, "the last step is only partly recorded, and what is in it is not analysed"
    # Each execution launches the second kernel: it begins at 5, behind idle at 4, and ends at 7.
    assert units(place.window) == {at for step in range(4) for at in (18 * step + 4, 18 * step + 5, 18 * step + 6)}
    assert place.per_step(place.compute.total_ns) == 2 * UNIT
    assert len(place.kernels) == 4
    assert split(place).step_ns == 3 * UNIT


def test_a_backward_pass_counts_what_autograds_own_thread_launches():
    recorded = draw(
        kernels=" ##  ####  ## ",
        host={1: ["l        l    ", "  rrrrrr      "], 2: ["    l         "]},
        repeat=5,
    )  # fmt: skip
    place = analysed(recorded, range_name="forward")
    assert units(place.window) == {14 * step + at for step in range(4) for at in (3, 4, 5, 6, 7, 8)}


def test_what_a_loader_copies_meanwhile_is_not_the_ranges():
    recorded = draw(
        kernels="  ###      ##  ",
        copies=["       hhh     "],
        host={1: ["l        l     ", "rrr            "], 2: [" c             "]},
        repeat=5,
    )  # fmt: skip
    # Thread 2's copy is launched while thread 1 is in the range.
    place = analysed(recorded, range_name="forward")
    assert units(place.window) & set(range(15)) <= {0, 1, 2, 3, 4, 5, 6}


def test_a_loaders_thread_does_not_own_what_the_training_launches_meanwhile():
    recorded = draw(kernels=" ##  ####  ## ", host={1: ["l   l    l    "], 2: ["rrrrrrr       "]}, repeat=5)
    place = analysed(recorded, range_name="forward")
    # Idle only: at 0, 3 and 4. The first execution begins before any work does.
    assert units(place.window) == {14 * step + at for step in range(1, 5) for at in (0, 3, 4)}
    assert place.compute.total_ns == 0


def test_on_a_run_without_a_gpu_it_is_the_threads_own_time():
    recorded = draw(host=["ooooo  ooo ", " rrrr      "], repeat=6)
    place = analysed(recorded, range_name="forward")
    assert place.device is None
    assert place.steps.used == 6
    assert units(place.window) == {11 * step + at for step in range(6) for at in (1, 2, 3, 4)}
    assert place.compute.total_ns == place.window_ns == 24 * UNIT


def test_chosen_steps_are_cut_where_all_steps_are():
    recorded = draw(kernels="###  #    ", host=["l   l     ", "oooo      "], repeat=9)
    every = analysed(recorded)
    chosen = analysed(recorded, steps=(3, 4))
    bounds = every.steps.bounds[every.steps.first :]
    assert (chosen.window.starts.tolist(), chosen.window.ends.tolist()) == ([int(bounds[2])], [int(bounds[4])])
    assert chosen.steps.used == 2
    whole = analysed(recorded, steps=(1, every.steps.used))
    assert split(whole) == split(every)


def test_steps_add_up_to_all_of_them():
    recorded = draw(kernels="###  #    ", copies="    hh    ", host=["lc  l     ", "oooo   iii"], repeat=9)
    every = split(analysed(recorded))
    parts = [
        split(analysed(recorded, steps=(number, number))) for number in range(1, analysed(recorded).steps.used + 1)
    ]
    for name in ("window_ns", "compute_ns", "exposed_copy_ns", "idle_ns"):
        assert sum(getattr(part, name) for part in parts) == getattr(every, name)
    assert sum(part.idle_causes_ns["input_wait"] for part in parts) == every.idle_causes_ns["input_wait"] > 0


def test_steps_of_a_run_without_a_gpu():
    recorded = draw(host=["ooooo  ooo ", "     ii    "], repeat=6)
    chosen = analysed(recorded, steps=(2, 3))
    assert units(chosen.window) == set(range(11, 33))
    diagnosis = diagnose(recorded, list(RULES.values()), selection=Selection(steps=(2, 3)))
    assert diagnosis.notes[0] == "Only steps 2 to 3 of 6 was analysed."


def test_a_range_in_chosen_steps():
    recorded = draw(kernels="  ## ##   e ", host=["l  l     l  ", " rrrrr      "], repeat=9)
    place = analysed(recorded, range_name="forward", steps=(2, 4))
    assert place.steps.used == 3
    assert min(units(place.window)) // 12 == 1
    assert max(units(place.window)) // 12 == 3


def test_each_rank_is_narrowed_and_ranks_without_the_range_are_left_out():
    ranks = [
        draw(rank=rank, kernels="## ## ", host=["l  l  ", " rrrr " if has else "      "], repeat=5)
        for rank, has in ((0, True), (1, False), (2, True))
    ]
    run = prepare(merge(ranks), Selection("forward"))
    assert [place.rank for place in run.places] == [0, 2]


def test_warm_up_is_left_out_where_no_steps_tell_it():
    lengths = [90, 10, 10, 10, 10, 10]
    starts = np.cumsum([100, *[length + 20 for length in lengths[:-1]]]).tolist()
    recorded = timeline(
        ops=[{"start_ns": 0, "end_ns": 1000, "name": "o"}],
        ranges=[
            {"start_ns": start, "end_ns": start + length, "name": "mine"}
            for start, length in zip(starts, lengths, strict=True)
        ],
    )
    place = analysed(recorded, range_name="mine")
    assert place.steps.durations_ns.tolist() == lengths[1:]


# --- names ---


def named(*names):
    return timeline(
        ops=[{"start_ns": 0, "end_ns": 100, "name": "o"}],
        ranges=[{"start_ns": 10 * at, "end_ns": 10 * at + at + 1, "name": name} for at, name in enumerate(names)],
    )


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("forward", {"forward"}),  # exactly that, though others hold it
        ("Forward pass", {"Forward pass"}),
        ("PASS", {"Forward pass"}),
        ("step", {"step 1", "step 2"}),
        ("step 2", {"step 2"}),
        ("step #", {"step 1", "step 2"}),
    ],
)
def test_a_name_means_what_was_recorded(asked, meant):
    assert range_names(named("forward", "Forward pass", "step 1", "step 2", "loader"), asked) == meant


@pytest.mark.parametrize(
    ("asked", "what", "do"),
    [
        (
            "nope",
            "--range nope: no such range was recorded",
            "Recorded, longest first: step #, loader, Forward pass, forward.",
        ),
        ("o", "--range o: 3 ranges fit", "Name one: loader, Forward pass, forward."),
    ],
)
def test_a_name_that_is_not_there_gets_those_that_are(asked, what, do):
    with pytest.raises(UsageError) as raised:
        range_names(named("forward", "Forward pass", "step 1", "step 2", "loader"), asked)
    assert (raised.value.what, raised.value.do) == (what, do)


def test_names_from_the_recording_cannot_steer_a_terminal():
    with pytest.raises(UsageError) as raised:
        range_names(named("\x1b[31mred\x07\u202e", "x" * 900), "nope\x1b[2J")
    text = raised.value.what + raised.value.do
    assert text.isprintable()
    assert len(text) < 300


def test_without_ranges_it_says_how_to_record_them():
    with pytest.raises(UsageError, match="no ranges were recorded") as raised:
        prepare(draw(kernels="## ##", host="l  l "), Selection("forward"))
    assert "record_function" in raised.value.do


def test_a_range_that_takes_no_time_of_the_device():
    recorded = draw(kernels="##########", host=["l         ", "  rrr     "], repeat=5)
    with pytest.raises(UsageError, match="--range forward: it took no time of a device") as raised:
        prepare(recorded, Selection("forward"))
    assert raised.value.do == "Name another range: the device was busy meanwhile."


def test_steps_that_are_not_there():
    recorded = draw(kernels="###  #    ", host=["l   l     "], repeat=5)
    with pytest.raises(UsageError, match=r"--steps 2\.\.9: there are 4 steps in steady state") as raised:
        prepare(recorded, Selection(steps=(2, 9)))
    assert raised.value.do == "Choose among 1..4: the first of them is 1."
    with pytest.raises(UsageError, match="no steps were found"):
        prepare(timeline(kernels=[{"start_ns": 0, "end_ns": 5, "name": "k"}]), Selection(steps=(1, 1)))


# --- the diagnosis of a part ---


def waits():
    return draw(
        kernels="         ##  #   ",
        copies="        h        ",
        host=["       cl  l     ", " rrrrrr          ", " iiiiii          "],
        repeat=9,
    )  # fmt: skip


def test_a_range_is_not_simulated_and_savings_are_of_one_execution():
    run = prepare(waits(), Selection("forward"))
    diagnosis = examine(run, list(RULES.values())).diagnosis
    assert why_not_replayable(run) == "only a range of it is analysed, and what follows it would move as well"
    first = diagnosis.findings[0]
    assert first.rule == "input-wait"
    assert first.saving_ns_per_step.likely <= run.step_ns == 6 * UNIT
    assert diagnosis.steps.found_by == "user-range"
    assert diagnosis.steps.median_ns == 6 * UNIT
    assert diagnosis.notes[0].startswith("Only the range forward was analysed, 8 executions: ")


def test_one_fix_can_be_asked_of_a_range_and_several_cannot():
    rules, selection = list(RULES.values()), Selection("forward")
    alone = diagnose(waits(), rules, selection=selection).findings[0].saving_ns_per_step
    predicted = diagnose(waits(), rules, [Question("input-wait")], selection).prediction
    assert predicted.step_ns == Range(*(6 * UNIT - ns for ns in (alone.high, alone.likely, alone.low)))
    assert predicted.asked
    low = diagnose(waits(), rules, [Question("input-wait", "low")], selection).prediction
    assert set(low.step_ns) == {6 * UNIT - alone.low}
    with pytest.raises(UsageError, match="--what-if host-syncs: not found") as raised:
        diagnose(waits(), rules, [Question("host-syncs")], selection)
    assert "input-wait" in raised.value.do
    with pytest.raises(UsageError, match="a range is not replayed"):
        diagnose(waits(), rules, [Question("batch", "2x", amount=2.0)], selection)


def test_chosen_steps_are_simulated():
    run = prepare(waits(), Selection(steps=(3, 6)))
    assert why_not_replayable(run) == ""
    predicted = examine(run, list(RULES.values()), [Question("input-wait")]).diagnosis.prediction
    assert predicted.step_ns[1] < predicted.recorded_ns == run.step_ns


def test_what_was_said_of_a_step_is_not_held_against_a_range():
    user_values = replace(waits().user_values, parameters=1e9, tokens_per_step=1000, peaks={"bf16": 1e15})
    recorded = replace(waits(), user_values=user_values)
    rules = list(RULES.values())
    assert diagnose(recorded, rules).efficiency.items_per_second
    part = diagnose(recorded, rules, selection=Selection("forward")).efficiency
    assert part is None or (part.items_per_second is None and part.mfu is None)

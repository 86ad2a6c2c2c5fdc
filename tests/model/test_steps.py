"""Where does a step end? Marks of every kind, and what must not be taken for one."""

from __future__ import annotations

import time

import numpy as np
import pytest
from builders import BASE_NS, GEMM, draw, frame, timeline

from perfdoctor.metrics.accounting.prepare import prepare, step_stats
from perfdoctor.model.device_work import device_work
from perfdoctor.model.steps import Steps, device_steps, host_marks, host_steps, minor_repetition
from perfdoctor.model.timeline import Timeline, merge

UNIT_NS = 100_000


def steps_of(drawn: Timeline) -> Steps:
    work = device_work(drawn, 0, 0)
    return device_steps(drawn, work, host_marks(drawn, 0), drawn.kernels)


def bounds_in_units(steps: Steps) -> list[float]:
    return ((steps.bounds - BASE_NS) / UNIT_NS).tolist()


def ranges(*rows: tuple[str, int, int], signal: str = "ranges") -> Timeline:
    """Ranges by name, start and end in µs, on the main thread."""
    found = [{"name": name, "start_ns": start * 1000, "end_ns": end * 1000} for name, start, end in rows]
    return timeline(**{signal: found})


def numbered(stem: str, numbers: list[int] | range, length: int = 10, pause: int = 2) -> list[tuple[str, int, int]]:
    """One range after the other: "stem 1", "stem 2", ..."""
    period = length + pause
    return [(stem.format(n), i * period, i * period + length) for i, n in enumerate(numbers)]


# Marks on the host


def test_profiler_steps_are_the_best_marks():
    marks = host_marks(ranges(*numbered("ProfilerStep#{}", range(5)), *numbered("step {}", range(5), 4, 8)), 0)
    assert (marks.found_by, marks.confidence, marks.starts.size) == ("profiler-step", "high", 5)


@pytest.mark.parametrize(
    "stem", ["step {}", "Step_{}", "Batch {}", "iteration-{}", "iter {}", "train_step {}", "training step {}"]
)
def test_a_family_of_numbered_step_ranges_marks_steps(stem):
    marks = host_marks(ranges(*numbered(stem, range(3, 9))), 0)
    assert (marks.found_by, marks.confidence, marks.starts.size) == ("user-range", "high", 6)
    assert (marks.ends - marks.starts).tolist() == [10_000] * 6


@pytest.mark.parametrize("name", ["iteration", "train_step", "step"])
def test_ranges_of_one_name_mark_steps_if_the_name_says_so(name):
    marks = host_marks(ranges(*numbered(name, range(4))), 0)
    assert (marks.found_by, marks.starts.size) == ("user-range", 4)


def test_of_a_number_of_thousands_of_digits_the_last_ones_count():
    marks = host_marks(ranges(*numbered("step " + "9" * 5_000 + "{}", range(10, 16))), 0)
    assert marks.starts.size == 6


def test_numbers_may_count_up_in_any_constant_stride():
    assert host_marks(ranges(*numbered("step {}", range(0, 60, 10))), 0).starts.size == 6


@pytest.mark.parametrize("numbers", [[5, 4, 3, 2], [1, 7, 2, 9, 4], [3, 3, 3, 3]])
def test_numbers_that_do_not_count_up_evenly_are_no_steps(numbers):
    assert host_marks(ranges(*numbered("step {}", numbers)), 0) is None


@pytest.mark.parametrize(
    "stem",
    [
        "optimizer step {}", "validation step {}", "val_step {}", "eval_step {}", "epoch {}", "load batch {}", "copy batch {}",
        "lr_scheduler step {}", "zero_grad step {}", "aten::step{}", "nccl step {}", "stepwise {}x{}",
    ],
)  # fmt: skip
def test_names_of_other_things_mark_no_step(stem):
    rows = [(stem.replace("{}", str(n)), start, end) for n, (_, start, end) in enumerate(numbered("", range(5)))]
    assert host_marks(ranges(*rows), 0) is None


@pytest.mark.parametrize(
    "stem",
    [
        "Step {}/100", "step {} loss 0.{}1", "step {} loss -1.{}e-05", "iter {} of 200", "epoch 0 step {}", "Epoch 2/3, batch: {}/80",
        "rank 3 train_step {}",
    ],
)  # fmt: skip
def test_other_numbers_may_stand_beside_that_of_a_step(stem):
    rows = [(stem.replace("{}", str(n)), start, end) for n, (_, start, end) in enumerate(numbered("", range(5)))]
    marks = host_marks(ranges(*rows), 0)
    assert (marks.found_by, marks.confidence, marks.starts.size) == ("user-range", "high", 5)


def test_each_epoch_may_count_its_steps_anew():
    rows = [(f"epoch {n // 4} step {n % 4}/4", 12 * n, 12 * n + 10) for n in range(12)]
    assert host_marks(ranges(*rows), 0).starts.size == 12


@pytest.mark.parametrize("stem", ["step 7 part {}", "batch 32x{}", "step 3 micro_batch {}", "a {} b {}"])
def test_other_numbers_that_count_up_make_no_steps(stem):
    rows = [(stem.replace("{}", str(n)), start, end) for n, (_, start, end) in enumerate(numbered("", range(5)))]
    assert host_marks(ranges(*rows), 0) is None


def test_a_numbered_family_without_a_word_needs_to_fill_the_run():
    whole = host_marks(ranges(*numbered("gpt {}", range(6))), 0)
    assert (whole.found_by, whole.confidence) == ("user-range", "medium")
    detail = numbered("gpt {}", range(6), length=2, pause=10)
    assert host_marks(ranges(("everything", 0, 72), *detail), 0) is None


def test_two_repetitions_are_no_rhythm():
    assert host_marks(ranges(*numbered("step {}", range(2))), 0) is None


def test_ranges_that_overlap_are_no_steps():
    assert host_marks(ranges(("step 1", 0, 10), ("step 2", 5, 15), ("step 3", 10, 20)), 0) is None


def test_ranges_on_several_threads_are_no_steps():
    rows = [{"name": f"step {n}", "start_ns": n * 10, "end_ns": n * 10 + 5, "thread": n % 2} for n in range(6)]
    assert host_marks(timeline(ranges=rows), 0) is None


def test_ranges_of_which_each_has_a_name_of_its_own_are_soon_seen_to_be_no_steps():
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [
        f"{what} {a}{b}{c}"
        for what in ("request", "answer", "step 1 of 2,")
        for a in letters
        for b in letters
        for c in letters
    ]
    drawn = ranges(*((name, number * 10, number * 10 + 5) for number, name in enumerate(names)))
    begun = time.process_time()
    assert host_marks(drawn, 0) is None
    assert time.process_time() - begun < 1


def test_of_two_families_the_one_with_a_steps_name_wins():
    both = ranges(*numbered("step {}", range(5), 10, 2), *numbered("part {}", range(5), 10, 2))
    assert host_marks(both, 0).found_by == "user-range"
    assert host_marks(both, 0).confidence == "high"


@pytest.mark.parametrize(
    ("step", "inner"), [("train_step {}", "micro_batch {}"), ("step", "micro_step"), ("a{}", "b{}")]
)
def test_of_ranges_inside_of_each_other_the_outer_ones_are_the_steps(step, inner):
    inside = [(inner.format(n % 16), 5 * n + 2 * (n // 16), 5 * n + 2 * (n // 16) + 4) for n in range(96)]
    outer = numbered(step, range(6), 80, 2)
    assert host_marks(ranges(*outer, *inside), 0).starts.tolist() == [start * 1000 for _, start, _ in outer]


def test_a_few_short_ranges_that_reach_further_than_the_steps_are_no_steps():
    train = numbered("train_step {}", range(6), 80, 2)
    around = [("iter", 0, 5), ("iter", 160, 162), ("iter", 485, 490)]
    assert host_marks(ranges(*train, *around), 0).starts.size == 6


def test_a_step_begins_where_the_optimizer_of_the_one_before_ended():
    marks = host_marks(ranges(*numbered("Optimizer.step#AdamW.step", range(5), 3, 7)), 0)
    assert marks.found_by == "optimizer-hook"
    assert (marks.starts // 1000).tolist() == [3, 13, 23, 33, 43]


def test_optimizer_ops_mark_steps_where_ranges_do_not():
    marks = host_marks(ranges(*numbered("Optimizer.step#SGD.step", range(5), 3, 7), signal="ops"), 0)
    assert marks.found_by == "optimizer-hook"


def test_of_the_two_optimizers_of_a_gan_the_regular_one_marks_the_steps():
    discriminator = numbered("Optimizer.step#Adam.step", range(8), 2, 10)
    generator = [("Optimizer.step#RMSprop.step", at, at + 2) for at in (5, 17, 31, 53, 77)]
    marks = host_marks(ranges(*discriminator, *generator), 0)
    assert marks.starts.size == 8
    assert (np.diff(marks.starts) == 12_000).all()


def test_of_two_equally_regular_optimizers_the_more_frequent_one_marks_the_steps():
    often = numbered("Optimizer.step#Adam.step", range(10), 2, 8)
    seldom = [("Optimizer.step#SGD.step", at, at + 2) for at in (5, 25, 45, 65, 85)]
    assert host_marks(ranges(*seldom, *often), 0).starts.size == 10


def updates(launched: str, repeat: int = 6) -> Timeline:
    """Of Adam: `a` of one launch, `A` of two; `.` is a launch before it, of which each takes 2 µs, and a blank 4 µs."""
    ranges, calls, at = [], [], BASE_NS
    for char in launched * repeat:
        count = {".": 1, "a": 1, "A": 2, " ": 0}[char]
        calls += [
            {"name": "cudaLaunchKernel", "start_ns": at + 100 + 500 * n, "end_ns": at + 500 + 500 * n}
            for n in range(count)
        ]
        if char in "aA":
            ranges.append({"name": "Optimizer.step#Adam.step", "start_ns": at, "end_ns": at + 2000})
        at += 4000 if char == " " else 2000
    return timeline(ranges=ranges, calls=calls)


@pytest.mark.parametrize(
    "launched",
    [
        "...a.....a",  # a GAN, whose two models are as large
        "...a...A",
        "...a...A...a",  # three optimizers
        ".....aaaaaa",  # an optimizer for each kind of parameter
    ],
)
def test_of_several_optimizers_of_one_class_the_last_one_ends_the_step(launched):
    marks = host_marks(updates(launched), 0)
    assert (marks.ends - BASE_NS).tolist() == [2000 * len(launched) * n for n in range(1, 7)]


def test_a_recording_that_begins_between_optimizers_has_the_same_steps():
    marks = host_marks(updates("aa...aa", 4), 0)
    assert (marks.ends[1:] - BASE_NS).tolist() == [2000 * (7 * n + 2) for n in range(2, 4)]


@pytest.mark.parametrize(
    "launched",
    [
        "...a    ...a",  # a loader with two workers
        "...a...a...a...a......",  # an evaluation after every fourth step
        "...a",
    ],
)
def test_a_rhythm_of_other_things_makes_no_round_of_optimizers(launched):
    assert host_marks(updates(launched), 0).starts.size == 6 * launched.count("a")


def test_a_step_that_the_program_marks_by_our_name_has_precedence():
    own = [{"start_ns": at * 100, "end_ns": at * 100 + 90, "name": "perfdoctor.step"} for at in range(2)]
    theirs = [{"start_ns": at * 10, "end_ns": at * 10 + 10, "name": f"ProfilerStep#{at}"} for at in range(20)]
    marks = host_marks(timeline(ranges=[*own, *theirs]), 0)
    assert marks is not None
    assert (marks.found_by, marks.confidence, marks.starts.tolist()) == ("user-range", "high", [0, 100])


def test_marks_of_another_rank_are_not_used():
    assert host_marks(ranges(*numbered("step {}", range(5))), 1) is None


def test_without_marks_there_are_none():
    assert host_marks(timeline(ranges=[]), 0) is None


# Steps on the device


def test_a_step_runs_from_its_first_work_to_that_of_the_next():
    steps = steps_of(draw(kernels="  #####   ", host="l         ", repeat=4))
    assert bounds_in_units(steps) == [2, 12, 22, 32]
    assert (steps.count, steps.used, steps.partial) == (4, 3, 1)


def test_the_host_may_be_several_steps_ahead_of_the_device():
    drawn = draw(kernels="####  ++  ", host="ll        ", repeat=5, host_ahead=25)
    steps = steps_of(drawn)
    assert bounds_in_units(steps) == [0, 10, 20, 30, 40]
    assert steps.found_by == "profiler-step"


def test_work_that_another_thread_launched_does_not_begin_a_step():
    """A copy of the next batch, launched early by a thread of the loader."""
    drawn = draw(
        kernels="  ####    ",
        copies="       hh ",
        host={1: "l         ", 2: "     c    "},
        repeat=4,
    )
    assert bounds_in_units(steps_of(drawn)) == [2, 12, 22, 32]


def test_work_after_the_last_marked_range_belongs_to_no_step():
    trained = draw(kernels="######    ", host="l         ", repeat=4)
    after = draw(kernels=" " * 60 + "####", host=" " * 60 + "l")
    later = after.calls.with_columns(correlation=after.calls["correlation"] + 500)
    kernels = after.kernels.with_columns(correlation=after.kernels["correlation"] + 500)
    both = merge([trained, Timeline.build({"calls": later, "kernels": kernels}, ["calls", "kernels"])])
    assert bounds_in_units(steps_of(both)) == [0, 10, 20, 30]


def marked(drawn: Timeline, *marks: tuple[int, int]) -> Timeline:
    """The picture with steps of the profiler, by begin and end in its units."""
    rows = [
        {"name": f"ProfilerStep#{n}", "start_ns": BASE_NS + a * UNIT_NS, "end_ns": BASE_NS + b * UNIT_NS}
        for n, (a, b) in enumerate(marks)
    ]
    return Timeline.build({**drawn.frames, "ranges": frame("ranges", rows)}, drawn.recorded | {"ranges"})


def test_two_steps_are_too_few_to_spare_an_edge():
    steps = steps_of(draw(kernels="  ####    ", host="l         ", repeat=2))
    assert bounds_in_units(steps) == [0, 10, 20]
    assert ((steps.host_bounds - BASE_NS) / UNIT_NS).tolist() == [0, 10, 20]
    assert steps.partial == 0


def test_the_second_of_two_begins_when_the_device_is_through_with_the_first():
    drawn = draw(kernels="  #######++++  ", host="l    l         ")
    assert bounds_in_units(steps_of(marked(drawn, (0, 5), (5, 10)))) == [0, 9, 13]


@pytest.mark.parametrize(
    ("kernels", "mark", "bounds"),
    [
        ("      ####    ", (1, 13), [1, 13]),  # the host prepares first, and looks at the result afterwards
        ("      ####    ", (1, 7), [1, 10]),  # the device ends after the host
        (" ##   ####    ", (3, 13), [1, 13]),  # what was launched before is the step's all the same
    ],
)
def test_a_single_step_is_what_the_user_marked(kernels, mark, bounds):
    steps = steps_of(marked(draw(kernels=kernels, host="     l" if kernels[1] == " " else "l    l"), mark))
    assert bounds_in_units(steps) == bounds
    assert (steps.host_bounds - BASE_NS).tolist() == [edge * UNIT_NS for edge in mark]


def test_of_three_steps_the_device_bounds_each():
    steps = steps_of(draw(kernels="  ####    ", host="l         ", repeat=3))
    assert bounds_in_units(steps) == [2, 12, 22, 32]
    assert steps.host_bounds is None
    assert (steps.used, steps.count, steps.partial) == (3, 3, 0)


def test_of_more_steps_the_last_is_left_out_since_no_other_shows_where_it_ends():
    steps = steps_of(draw(kernels="  ####    ", host="l         ", repeat=4))
    assert bounds_in_units(steps) == [2, 12, 22, 32]
    assert (steps.used, steps.count, steps.partial) == (3, 4, 1)


def test_the_last_of_three_steps_ends_when_the_next_one_could_begin():
    """Its stream is busy for longer than the host needs."""
    steps = steps_of(draw(kernels="#" * 10, host="l         ", host_ahead=4, repeat=3))
    assert bounds_in_units(steps) == [0, 10, 20, 30]


@pytest.mark.parametrize("last", ["  #       ", "  ####  "])
def test_a_last_step_that_is_not_there_whole_is_left_out(last):
    """Half of its kernels are missing, or its mark ends long before a next one would have begun."""
    kernels = [{"name": "k", "start_ns": 1000 * n + 100 * m, "end_ns": 1000 * n + 100 * m + 50, "correlation": 10 * n + m} for n in range(3) for m in range(4)]  # fmt: skip
    calls = [{**each, "name": "cudaLaunchKernel", "start_ns": each["start_ns"] - 5, "end_ns": each["start_ns"] - 2} for each in kernels]  # fmt: skip
    marks = [{"name": f"ProfilerStep#{n}", "start_ns": 1000 * n - 10, "end_ns": 1000 * n + 990} for n in range(3)]
    if len(last) < 10:
        marks = [{**each, "end_ns": each["end_ns"] - 300} for each in marks]
    else:
        kernels = kernels[:-2]
    steps = steps_of(timeline(kernels=kernels, calls=calls, ranges=marks))
    assert (steps.used, steps.partial) == (2, 1)


def first_step(units: int, host_units: int = 10, later: int = 10) -> Steps:
    """Six steps of the host; the first takes that long on the device, the other ones `later`."""
    begins = np.cumsum([60 - units, units, later, later, later, later])
    starts = np.cumsum([0, host_units, 10, 10, 10, 10])
    calls = [{"name": "cudaLaunchKernel", "start_ns": at + 1, "end_ns": at + 2, "correlation": n + 1} for n, at in enumerate(starts.tolist())]  # fmt: skip
    kernels = [{"name": "k", "start_ns": at, "end_ns": at + units, "correlation": n + 1} for n, at in enumerate(begins.tolist())]  # fmt: skip
    marks = [{"name": f"step {n}", "start_ns": at, "end_ns": at + 9} for n, at in enumerate(starts.tolist())]
    return steps_of(timeline(calls=calls, kernels=kernels, ranges=marks))


def test_a_first_step_that_the_queue_had_ready_is_left_out():
    assert (first_step(4).first, first_step(4).warm_up) == (1, 1)
    assert first_step(7).first == 0, "7 against 10 is no queue that drains"
    assert first_step(4, host_units=4).first == 0, "short on the host as well: that step is short"
    assert first_step(4, later=4).first == 0, "all are short on the device"


def test_a_single_step_keeps_work_that_has_no_launch_event():
    drawn = draw(kernels="##  ++  ##", host=" l l", recorded=None)
    steps = steps_of(marked(drawn, (0, 10)))
    assert bounds_in_units(steps) == [0, 10]
    assert (steps.used, steps.count) == (1, 1)


def test_steps_are_compared_from_where_their_main_stream_begins():
    """Batches are copied ahead on another stream, whenever the host comes to it: that makes no step longer."""
    calls, kernels, copies = [], [], []
    ahead = [3, 8, 1, 6, 4, 5]  # units before its step begins on the device
    for step, units in enumerate(ahead):
        begin = 100 + 20 * step
        for at, row, frame_of in ((begin - units, "copy", copies), (begin, "a", kernels), (begin + 10, "b", kernels)):
            correlation = 1 + len(calls)
            asked = 10 * step + len(calls) % 3
            calls.append({"name": "cudaLaunchKernel", "start_ns": asked, "end_ns": asked + 1, "thread": 1, "correlation": correlation})  # fmt: skip
            frame_of.append({"name": row, "start_ns": at, "end_ns": at + 1, "stream": 7 + (row == "copy"), "correlation": correlation})  # fmt: skip
    marks = [{"name": f"step {n}", "start_ns": 10 * n, "end_ns": 10 * n + 9, "thread": 1} for n in range(6)]  # fmt: skip
    steps = steps_of(timeline(calls=calls, kernels=kernels, copies=copies, ranges=marks))
    assert np.diff(steps.bounds).tolist() == [15, 27, 15, 22, 19]
    assert np.diff(steps.even_bounds).tolist() == [20] * 5


def test_long_steps_at_the_front_are_left_out_as_warm_up():
    slow, fast = "#" * 30, "#" * 10
    lane = "".join((slow if n < 2 else fast).replace("#", "#+"[n % 2]) for n in range(10))
    marks = [(f"ProfilerStep#{n}", at, at + 1) for n, at in enumerate([0, 30, 60, 70, 80, 90, 100, 110, 120, 130])]
    host = "".join("l" + " " * (29 if n < 2 else 9) for n in range(10))
    drawn = draw(kernels=lane, host=host)
    rows = [{"name": name, "start_ns": BASE_NS + a * UNIT_NS, "end_ns": BASE_NS + b * UNIT_NS} for name, a, b in marks]
    steps = steps_of(Timeline.build({**drawn.frames, "ranges": frame("ranges", rows)}, drawn.recorded | {"ranges"}))
    assert (steps.first, steps.last) == (2, 9)
    assert (steps.durations_ns == 10 * UNIT_NS).all()


def test_a_first_step_just_below_the_warm_up_factor_is_used():
    marks = host_marks(ranges(("step 1", 0, 14), *[(f"step {n}", 4 + n * 10, 14 + n * 10) for n in range(2, 9)]), 0)
    assert host_steps(marks).first == 1  # 24 µs against 10 µs
    marks = host_marks(ranges(("step 1", 0, 14), *[(f"step {n}", n * 10 - 6, n * 10 + 4) for n in range(2, 9)]), 0)
    assert host_steps(marks).first == 0  # 14 µs against 10 µs


def test_a_long_step_in_the_middle_stays():
    starts = [0, 10, 20, 60, 70, 80]
    marks = host_marks(ranges(*[(f"step {n}", at, at + 9) for n, at in enumerate(starts)]), 0)
    assert host_steps(marks).first == 0


def test_on_the_host_a_step_lasts_until_the_next_mark_begins():
    marks = host_marks(ranges(*numbered("step {}", range(4))), 0)
    assert (host_steps(marks).bounds // 1000).tolist() == [0, 12, 24, 36, 46]


# Steps from the device alone


FORWARD = "".join("#+"[n % 2] for n in range(20))


def test_runs_of_optimizer_kernels_end_steps():
    steps = steps_of(draw(kernels=FORWARD + "MM", repeat=6, mark=None))
    assert (steps.found_by, steps.confidence) == ("optimizer-kernels", "medium")
    assert (steps.durations_ns == 22 * UNIT_NS).all()
    assert (steps.count, steps.used, steps.partial) == (6, 4, 2)  # no update shows where the first and the last one lie


def test_a_kernel_between_two_updates_does_not_end_the_step():
    steps = steps_of(draw(kernels=FORWARD + "Me M", repeat=6, mark=None))
    assert (steps.found_by, set(steps.durations_ns.tolist())) == ("optimizer-kernels", {24 * UNIT_NS})


def test_optimizer_kernels_that_come_unevenly_mark_nothing():
    lane = "".join(FORWARD * times + "M" for times in (1, 4, 1, 6, 2, 9))
    assert steps_of(draw(kernels=lane)).found_by == "none"


def distinct(count: int) -> dict[str, str]:
    """A kernel's name for each of `count` characters."""
    return {chr(0x4E00 + n): f"kernel_of_layer_{n}" for n in range(count)}


def test_a_sequence_that_repeats_with_a_copy_each_time_is_a_step():
    layer = distinct(18)
    steps = steps_of(draw(kernels="".join(layer), copies="h" + " " * 17, repeat=6, mark=None, kernel_names=layer))
    assert (steps.found_by, steps.confidence) == ("periodicity", "low")
    assert (steps.durations_ns == 18 * UNIT_NS).all()


def test_what_repeats_beside_a_few_kernels_that_take_most_of_the_time_is_no_step():
    layer = distinct(19)
    *repeating, other = layer
    few = "".join(repeating) * 6
    copies = ("h" + " " * 17) * 6

    def drawn(long: int) -> Timeline:
        return draw(kernels=few + other * long, copies=copies, kernel_names=layer)

    assert steps_of(drawn(long=18 * 4)).found_by == "periodicity"
    assert steps_of(drawn(long=18 * 6)).found_by == "none"
    longest = drawn(long=18 * 6)
    bounds, share = minor_repetition(longest.kernels, device_work(longest, 0, 0))
    # From the first begin to the last one there are five of the six.
    assert (np.diff(bounds) == 18 * UNIT_NS).tolist() == [True] * 5
    assert share == pytest.approx(5 / 12)


def test_layers_repeat_as_well_but_are_no_steps():
    layer = distinct(18)
    assert steps_of(draw(kernels="".join(layer), repeat=6, mark=None, kernel_names=layer)).found_by == "none"
    once = draw(kernels="".join(layer) * 6, copies="h", kernel_names=layer)
    assert steps_of(once).found_by == "none"


def test_a_short_sequence_that_repeats_is_a_loop_inside_a_step():
    loop = distinct(8)
    drawn = draw(kernels="".join(loop), copies="h" + " " * 7, repeat=12, mark=None, kernel_names=loop)
    assert steps_of(drawn).found_by == "none"


def test_work_without_any_rhythm_has_no_steps():
    steps = steps_of(draw(kernels="##  +++ #  ++"))
    assert (steps.found_by, steps.used, steps.count) == ("none", 0, 0)


def test_marks_that_launched_nothing_on_this_device_are_not_used():
    drawn = draw(kernels=FORWARD + "MM", repeat=6)  # ProfilerStep ranges, but no calls
    assert steps_of(drawn).found_by == "optimizer-kernels"


# What a report says of them


def test_step_stats_are_quantiles_over_all_places():
    drawn = draw(kernels="  #####   ", host="l         ", repeat=12)
    stats = step_stats(prepare(drawn))
    assert (stats.count, stats.used, stats.found_by, stats.confidence) == (12, 11, "profiler-step", "high")
    assert (stats.p10_ns, stats.median_ns, stats.p90_ns) == (10 * UNIT_NS,) * 3


def test_no_steps_have_no_stats():
    assert step_stats(prepare(draw(kernels="## ##", kernel_names={"#": GEMM}))).used == 0


def xla(name: str) -> tuple[str, str]:
    return "ranges", f"XlaModule:#prefix=jit({name}),hlo_module=jit_{name},program_id=7#"


def test_a_step_of_jax_is_the_module_that_is_called_so_and_not_one_that_takes_longer():
    drawn = draw(
        kernels="  ####    ",
        host=["l         ", "ss  eeeee "],
        legend={"s": xla("train_step"), "e": xla("evaluate")},
        repeat=5,
        mark=None,
    )
    steps = steps_of(drawn)
    assert (steps.found_by, steps.confidence, steps.used) == ("xla-module", "high", 4)
    assert set(steps.durations_ns.tolist()) == {10 * UNIT_NS}


def test_without_such_a_name_it_is_the_module_that_takes_longest_with_a_doubt():
    legend = {"s": xla("fn"), "e": xla("convert_element_type")}
    drawn = draw(kernels="  ####    ", host=["l         ", "sssss  e  "], legend=legend, repeat=5, mark=None)
    steps = steps_of(drawn)
    assert (steps.found_by, steps.confidence) == ("xla-module", "medium")
    assert host_marks(drawn, 0).starts.tolist() == [BASE_NS + each * 10 * UNIT_NS for each in range(5)]


def test_ranges_of_ones_own_go_before_xlas_and_its_passes_are_no_steps():
    legend = {"s": xla("train_step"), "i": ("ranges", "iteration"), "p": ("ranges", "XlaPass:#name=step-fusion-3#")}
    drawn = draw(
        kernels="  ####    ", host=["l         ", "ss      ii", "pppp      "], legend=legend, repeat=5, mark=None
    )
    assert host_marks(drawn, 0).found_by == "user-range"
    passes = draw(kernels="  ####    ", host=["l         ", "pppp      "], legend=legend, repeat=5, mark=None)
    assert host_marks(passes, 0) is None

"""What exactly does the terminal show at 80 columns? Literal text, so that a review shows each change."""

from __future__ import annotations

import io
import re
import textwrap
from itertools import pairwise

import pytest
from msgspec.structs import replace
from report.samples import ASKED, COMMUNICATION, GROWING, HEALTHY, INPUT_BOUND, SAMPLES
from rich.cells import cell_len
from rich.console import Console
from tables import of_each

from perfdoctor.records.findings import Outcome, Rows
from perfdoctor.records.predictions import PredictedStep, Prediction
from perfdoctor.records.savings import Range, Saving
from perfdoctor.report import terminal

WIDTHS = (40, 50, 60, 72, 80, 100, 160)
STYLES = re.compile(r"\x1b\[[0-9;]*m")
#: A unit that would be separated from its number by a line break.
UNIT = re.compile(r" *(?:%|(?:ns|µs|ms|s|GiB|MiB|B)(?!\w))")


def printed(diagnosis, width=80, *, show_all=False, **how):
    console = Console(file=io.StringIO(), width=width, **how)
    terminal.render(diagnosis, console, show_all=show_all)
    return console.file.getvalue()


def in_colour(diagnosis, width=80):
    return printed(diagnosis, width, force_terminal=True, color_system="truecolor", legacy_windows=False)


def text(snapshot):
    return textwrap.dedent(snapshot).lstrip("\n")


def test_an_input_bound_run():
    assert printed(INPUT_BOUND) == text("""
    Training waits for data (input-bound). Fixing it takes 61 % off each 701 ms
    step, to about 270 ms (2.6×).
    NVIDIA H100 80GB HBM3 · 1 rank · 10 of 12 steps used, found by profiler steps
    kineto 2.8.0

    One step, 701 ms
    ██████████████████████████▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░::,
    █  compute                                   231 ms  33 %
    ▒  exposed copies                           9.40 ms   1 %
    ░  idle: waiting for data (input-bound)      434 ms  62 %
    :  idle: after host syncs (blocking calls)  18.2 ms   3 %
    ,  idle: 2 smaller causes                   8.40 ms   1 %

     1  Training waits for data (input-bound)  input-wait
        saves 431 ms of 701 ms a step, 2.6× (1.9–2.7) · high confidence
        434.0 ms of a 701.0 ms step pass while the training waits for its next
        batch.
        Fix: Load batches in more worker processes (minutes of work, numerics
        unchanged)
        - symptom: Copies from pageable (unpinned) host memory (pageable-copies,
          6.10 ms)

     2  GPU idle after host syncs (blocking CUDA calls)  host-syncs
        saves 17.5 ms of 701 ms a step, 1.03× (1.01–1.03) · medium confidence
        12 calls a step wait for the GPU, and 18.2 ms pass before it has work again.
        Fix: Read the loss only when it is printed (minutes of work, numerics
        unchanged)

    Fixed one after the other
    as recorded  701 ms            ████████████████████████
    input-wait   270 ms   −431 ms  █████████░░░░░░░░░░░░░░░
    host-syncs   252 ms  −18.0 ms  █████████
    Replayed with input-wait, host-syncs fixed, the step takes about 252 ms (240 ms
    to 351 ms) instead of 701 ms: 2.8× (2.0–2.9).

    Not checked
      - 2 rules without collectives: exposed-communication, rank-skew. To check
        them, record a training of several ranks
      - 1 rule without samples of the GPUs: device-throttling. To check it, record
        with `perfdoctor run`, or analyse the output of nvidia-smi together with the
        trace

    Notes
      - 2 steps at the start were left out: they are longer than 1.5 times the
        median.

    Details, and every fix with code: perfdoctor explain input-wait
    """)


def test_an_answer_to_what_if():
    outlook = printed(ASKED).split("\n\n")[4] + "\n"
    assert outlook == text("""
    What if: fixed one after the other
    as recorded     701 ms           ████████████████████████
    input-wait=50%  486 ms  −215 ms  █████████████████░░░░░░░
    Replayed with input-wait=50% fixed, the step takes about 486 ms instead of
    701 ms: 1.4×.
    """)


def test_ranks_of_a_communication_bound_run():
    ranks = printed(COMMUNICATION).split("\n\n")[2] + "\n"
    assert ranks == text("""
              step  compute  comm.  copies  idle
    rank 0  321 ms     72 %   24 %    <1 %   3 %  █████████████████▓▓▓▓▓▓-
    rank 1  321 ms     72 %   24 %    <1 %   4 %  █████████████████▓▓▓▓▓▓-
    rank 2  321 ms     72 %   24 %    <1 %   4 %  █████████████████▓▓▓▓▓▓-
    rank 3  321 ms     72 %   24 %    <1 %   3 %  █████████████████▓▓▓▓▓▓-
    rank 4  321 ms     72 %   24 %    <1 %   4 %  █████████████████▓▓▓▓▓▓-
    rank 5  323 ms     83 %   13 %    <1 %   4 %  ████████████████████▓▓▓-
    rank 6  321 ms     72 %   24 %    <1 %   3 %  █████████████████▓▓▓▓▓▓-
    rank 7  321 ms     72 %   24 %    <1 %   4 %  █████████████████▓▓▓▓▓▓-
    """)


def test_of_many_ranks_the_slowest_and_the_median_are_shown():
    splits = tuple(replace(split, rank=split.rank + 8 * node) for node in (0, 1) for split in COMMUNICATION.time)
    lines = printed(replace(COMMUNICATION, time=splits)).split("\n\n")[2].splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == ["rank 5 (slowest)", "rank 7 (median)"]


def test_a_healthy_run():
    assert printed(HEALTHY) == text("""
    Nothing worth fixing: compute fills 96 % of each 212 ms step.
    NVIDIA H100 80GB HBM3 · 1 rank · 38 of 40 steps used, found by profiler steps
    kineto 2.8.0

    One step, 212 ms
    █████████████████████████████████████████████████████████████████████████████--?
    █  compute                                  203 ms  96 %
    ▒  exposed copies                          1.10 ms  <1 %
    -  idle: launch-bound (launches too slow)  5.10 ms   2 %
    ?  idle: cause unknown                     2.80 ms   1 %
    Costliest kernel: cutlass::Kernel2<cutlass_80_tensor…ign8>(T1::Params), 67 % of
    the step.
    """)


def test_the_costliest_kernel_is_named_where_it_takes_half_of_the_time_and_nothing_else_was_found():
    (split,), (row, *_) = HEALTHY.time, HEALTHY.kernels
    half = replace(row, total_ns=split.window_ns // 2)
    assert "Costliest kernel" in printed(replace(HEALTHY, kernels=(replace(half, total_ns=half.total_ns + 2),)))
    assert "Costliest kernel" not in printed(replace(HEALTHY, kernels=(half,)))
    assert "Costliest kernel" not in printed(replace(INPUT_BOUND, kernels=HEALTHY.kernels, time=HEALTHY.time))


def test_a_narrow_terminal_has_short_names_and_whole_numbers():
    head, step, *_ = printed(INPUT_BOUND, 40).split("\n\n")
    assert head + "\n" == text("""
    Training waits for data (input-bound).
    Fixing it takes 61 % off each 701 ms
    step, to about 270 ms (2.6×).
    NVIDIA H100 80GB HBM3 · 1 rank
    10 of 12 steps used, found by profiler
    steps
    kineto 2.8.0
    """)
    assert step + "\n" == text("""
    One step, 701 ms
    █████████████▒░░░░░░░░░░░░░░░░░░░░░░░░:,
    █  compute            231 ms  33 %
    ▒  copies            9.40 ms   1 %
    ░  idle: input wait   434 ms  62 %
    :  idle: host syncs  18.2 ms   3 %
    ,  idle: others      8.40 ms   1 %
    """)


def test_where_numbers_do_not_fit_the_ranks_have_only_their_bar():
    ranks = printed(COMMUNICATION, 40).split("\n\n")[2].splitlines()
    assert ranks[0].split() == ["step"]
    assert ranks[1] == "rank 0  321 ms  █████████████████▓▓▓▓▓▓-"
    assert printed(COMMUNICATION, 20).split("\n\n")[2].splitlines()[1] == "rank 0  321 ms"


def test_a_rank_s_bar_is_as_long_as_its_step():
    first, *others = COMMUNICATION.time
    slow = replace(first, step_ns=2 * others[0].step_ns)
    lines = printed(replace(COMMUNICATION, time=(slow, *others))).split("\n\n")[2].splitlines()[1:]
    lengths = [len(line.rpartition("  ")[2]) for line in lines]
    assert lengths[0] == 24
    assert set(lengths[1:]) == {12}


@of_each("name", [name for name in SAMPLES if name != "poisoned"])
@of_each("width", WIDTHS)
def test_no_line_is_too_long_and_no_number_separated_from_its_unit(name, width):
    for output in (printed(SAMPLES[name], width), STYLES.sub("", in_colour(SAMPLES[name], width))):
        lines = output.splitlines()
        assert max(map(cell_len, lines)) <= min(width, 100)
        assert not [line for line, after in pairwise(lines) if line[-1:].isdigit() and UNIT.match(after)]


def test_a_wide_terminal_is_not_filled():
    assert printed(INPUT_BOUND, 200) == printed(INPUT_BOUND, 100)


def test_the_bar_in_colour_names_its_parts_where_there_is_room():
    bar = in_colour(INPUT_BOUND).split("One step")[1].splitlines()[1]
    plain = STYLES.sub("", bar)
    assert plain == " compute 33 %" + " " * 14 + " input wait 62 %" + " " * 37
    assert cell_len(plain) == 80
    grounds = re.findall(r"48;2;(\d+;\d+;\d+)", bar)
    assert len(set(grounds)) == len(grounds) == 5


@pytest.mark.parametrize("colours", ["standard", None])
def test_with_few_colours_the_parts_differ_by_their_characters(colours):
    output = printed(INPUT_BOUND, force_terminal=True, color_system=colours, legacy_windows=False)
    bar = STYLES.sub("", output).split("One step")[1].splitlines()[1]
    assert [bar.count(character) for character in "█▒░:,"] == [26, 1, 50, 2, 1]


def test_what_to_do_next_is_the_last_line_and_can_be_copied():
    for width in WIDTHS:
        assert printed(INPUT_BOUND, width).splitlines()[-1].endswith("perfdoctor explain input-wait")
    assert "perfdoctor explain" not in printed(HEALTHY)


def test_many_skipped_rules_are_summed_up_by_what_they_lacked():
    skipped = [("kernels", "calls")] * 4 + [("kernels",)] * 2 + [("copies",)]
    outcomes = tuple(Outcome(f"rule-{number}", "skipped", missing) for number, missing in enumerate(skipped))
    output = printed(replace(HEALTHY, outcomes=(*outcomes, Outcome("a", "clear"), Outcome("b", "failed", error="no"))))
    assert "Not checked: 7 of 9 rules, for lack of kernels (6), host calls (4), copies (1)." in " ".join(output.split())
    assert "--all" in output
    assert "rule-3" not in output
    assert "\n\n\n" not in output
    assert "b failed (a bug in perfdoctor): no" in output
    everything = printed(replace(HEALTHY, outcomes=outcomes), show_all=True)
    assert "4 rules without kernels and host calls: rule-0, rule-1, rule-2, rule-3" in everything


def nothing_by_itself(steps, *, asked=False):
    """A diagnosis whose second finding saves nothing before the first is fixed, with these predicted `steps`."""
    first, second = INPUT_BOUND.findings
    second = replace(second, saving_ns_per_step=Saving(0, 0, 0))
    predicted = tuple(PredictedStep(rule, ns) for rule, ns in steps)
    prediction = Prediction(
        fixed=("input-wait",), step_ns=Range(1, 2, 3), speedup=Range(1.0, 1.0, 1.0), recorded_ns=701_000_000,
        steps=predicted, asked=asked,
    )  # fmt: skip
    return replace(INPUT_BOUND, findings=(first, second), prediction=prediction)


def test_a_fix_that_saves_only_after_others_says_how_much():
    one_by_one = [("input-wait", 270_000_000), ("host-syncs", 252_000_000)]
    assert "saves 18.0 ms, but only after the fixes above · medium" in printed(nothing_by_itself(one_by_one))
    for other in (
        nothing_by_itself(one_by_one[::-1]),
        nothing_by_itself(one_by_one, asked=True),
        nothing_by_itself([*one_by_one[:1], ("host-syncs", 270_000_000)]),
    ):
        assert "note: saves nothing by itself" in printed(other)
        assert "after the fixes above" not in printed(other)
    assert "after the fixes above" not in printed(INPUT_BOUND) + printed(GROWING)


def test_what_is_uncertain_is_shown_and_what_was_measured_only_on_request():
    first, second = INPUT_BOUND.findings
    uncertain = replace(second, confidence_because="Measured on 2 steps; 2 steps are few.")
    diagnosis = replace(INPUT_BOUND, findings=(first, uncertain))
    assert "Uncertain: 2 steps are few." in printed(diagnosis)
    assert "Measured" not in printed(diagnosis)
    assert "Medium confidence: measured on 2 steps; 2 steps are few." in printed(diagnosis, show_all=True)


def test_the_costliest_line_of_code_is_named_unless_the_summary_names_it():
    first, *others = INPUT_BOUND.findings
    table = Rows("Reads", ("op", "line", "idle"), ("text", "text", "ns"), (("aten::item", "train.py(7): step", 3),))
    at_line = replace(first, evidence=(table,))
    assert "    At: train.py(7): step\n" in printed(replace(INPUT_BOUND, findings=(at_line, *others)))
    named = replace(at_line, summary="It waits in train.py(7): step.")
    assert "At: " not in printed(replace(INPUT_BOUND, findings=(named, *others)))
    assert "At: " not in printed(INPUT_BOUND)

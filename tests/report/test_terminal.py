"""What exactly does one see at 80 columns? Literal text, so that a review shows the change."""

from __future__ import annotations

import io
import textwrap
from dataclasses import replace

from report.samples import ASKED, COMMUNICATION, HEALTHY, INPUT_BOUND
from rich.console import Console

from perfdoctor.report import terminal


def printed(diagnosis):
    console = Console(file=io.StringIO(), width=80)
    terminal.render(diagnosis, console)
    return console.file.getvalue()


def text(snapshot):
    return textwrap.dedent(snapshot).lstrip("\n")


def test_an_input_bound_run():
    assert printed(INPUT_BOUND) == text("""
    The GPU waits for the next batch: fixing it takes 61 % off each 701 ms step, to
    about 270 ms (2.6×).
    NVIDIA H100 80GB HBM3 · 1 rank · 10 of 12 steps used, found by profiler steps ·
    kineto 2.8.0

    One step, 701 ms
    ██████████████████████████▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░::-
    █  compute                                   231 ms  33 %
    ▒  exposed copies                           9.40 ms   1 %
    ░  idle: waits for the next batch            434 ms  62 %
    :  idle: a blocking call emptied the queue  18.2 ms   3 %
    -  idle: 2 smaller causes                   8.40 ms   1 %

     1  The GPU waits for the next batch  input-wait
        saves 431 ms of 701 ms a step, 2.6× (1.9–2.7) · high confidence
        434.0 ms of a 701.0 ms step pass while the training waits for its next
        batch.
        Fix: Load batches in more worker processes (minutes of work, numerics stay)
        - goes with it: Batches are copied from memory that is not pinned
          (pageable-copies, 6.10 ms)

     2  Blocking calls empty the queue  host-syncs
        saves 17.5 ms of 701 ms a step, 1.03× (1.01–1.03) · medium confidence
        12 calls a step wait for the GPU, and 18.2 ms pass before it has work again.
        Medium confidence: measured on 10 steps from kernels and host calls.
        Fix: Read the loss only when it is printed (minutes of work, numerics stay)

    Fixed one after the other
    as recorded  701 ms            ████████████████████████
    input-wait   270 ms   −431 ms  █████████░░░░░░░░░░░░░░░
    host-syncs   252 ms  −18.0 ms  █████████
    Played again with input-wait, host-syncs fixed, the step takes about 252 ms (240
    ms to 351 ms) instead of 701 ms: 2.8× (2.0–2.9).
    Why, and every fix with its code: perfdoctor explain input-wait

    Not looked at
      - 2 rules without collectives: exposed-communication, rank-skew. To wake:
        record a training of several ranks
      - 1 rule without device samples: device-throttling

    Notes
      - 2 steps at the start were left out: they are longer than 1.5 times the
        median.
    """)


def test_an_answer_to_what_if():
    outlook = printed(ASKED).split("\n\n")[4] + "\n"
    assert outlook == text("""
    What if: fixed one after the other
    as recorded     701 ms           ████████████████████████
    input-wait=50%  486 ms  −215 ms  █████████████████░░░░░░░
    Played again with input-wait=50% fixed, the step takes about 486 ms instead of
    701 ms: 1.4×.
    Why, and every fix with its code: perfdoctor explain input-wait
    """)


def test_ranks_of_a_communication_bound_run():
    ranks = printed(COMMUNICATION).split("\n\n")[2] + "\n"
    assert ranks == text("""
              step  compute  comm.  copies  idle
    rank 0  321 ms     72 %   24 %    <1 %   3 %  █████████████████▓▓▓▓▓▓░
    rank 1  321 ms     72 %   24 %    <1 %   4 %  █████████████████▓▓▓▓▓▓░
    rank 2  321 ms     72 %   24 %    <1 %   4 %  █████████████████▓▓▓▓▓▓░
    rank 3  321 ms     72 %   24 %    <1 %   3 %  █████████████████▓▓▓▓▓▓░
    rank 4  321 ms     72 %   24 %    <1 %   4 %  █████████████████▓▓▓▓▓▓░
    rank 5  323 ms     83 %   13 %    <1 %   4 %  ████████████████████▓▓▓░
    rank 6  321 ms     72 %   24 %    <1 %   3 %  █████████████████▓▓▓▓▓▓░
    rank 7  321 ms     72 %   24 %    <1 %   4 %  █████████████████▓▓▓▓▓▓░
    """)


def test_of_many_ranks_the_slowest_and_the_median_are_shown():
    splits = tuple(replace(split, rank=split.rank + 8 * node) for node in (0, 1) for split in COMMUNICATION.time)
    lines = printed(replace(COMMUNICATION, time=splits)).split("\n\n")[2].splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == ["rank 5 (slowest)", "rank 7 (median)"]


def test_a_healthy_run():
    assert printed(HEALTHY) == text("""
    Nothing worth fixing: compute fills 96 % of each 212 ms step.
    NVIDIA H100 80GB HBM3 · 1 rank · 38 of 40 steps used, found by profiler steps ·
    kineto 2.8.0

    One step, 212 ms
    █████████████████████████████████████████████████████████████████████████████░░:
    █  compute                                 203 ms  96 %
    ▒  exposed copies                         1.10 ms  <1 %
    ░  idle: the host issues work too slowly  5.10 ms   2 %
    :  idle: cause not proven                 2.80 ms   1 %
    """)

"""What made a long step long is the part that is longest beyond its usual length, step by step."""

from __future__ import annotations

from builders import BASE_NS, draw, only_place, timeline

from perfdoctor.metrics.accounting.step_rows import step_rows

UNIT_NS = 100_000


def test_starts_and_lengths_are_those_of_the_steps():
    rows = step_rows(only_place(draw(kernels="####  ", launched_us_before=50, repeat=9)), 6, 0.2)
    steps = rows.duration_ns.size
    assert rows.start_ns.tolist() == [6 * UNIT_NS * n for n in range(steps)]
    assert rows.duration_ns.tolist() == [6 * UNIT_NS] * steps
    assert sum(parts[0] for parts in rows.parts_ns.values()) == 6 * UNIT_NS
    assert rows.grown == ("",) * steps


def test_each_long_step_names_its_own_part():
    """Of twelve steps one computes for longer, and another one communicates."""
    kernels, collectives, calls, ranges = [], [], [], []
    at = BASE_NS
    for step in range(12):
        computing, talking = (10 if step == 4 else 4) * UNIT_NS, (7 if step == 8 else 2) * UNIT_NS
        length = computing + talking + 6 * UNIT_NS
        ranges.append({"start_ns": at, "end_ns": at + length, "name": f"ProfilerStep#{step}"})
        calls += [{"start_ns": at + n * 1000, "end_ns": at + n * 1000 + 500, "name": "cudaLaunchKernel",
                   "correlation": 2 * step + n + 1} for n in range(2)]  # fmt: skip
        first, second = at + UNIT_NS, at + UNIT_NS + computing
        kernels.append({"start_ns": first, "end_ns": second, "name": "k", "correlation": 2 * step + 1})
        collectives.append(
            {"start_ns": second, "end_ns": second + talking, "name": "nccl", "correlation": 2 * step + 2}
        )
        at += length
    drawn = timeline(kernels=kernels, collectives=collectives, calls=calls, ranges=ranges)
    rows = step_rows(only_place(drawn), 6, 0.2)
    assert [part for part in rows.grown if part] == ["compute", "exposed_communication"]
    long = [row for row, part in enumerate(rows.grown) if part]
    assert long[1] - long[0] == 4
    assert rows.parts_ns["compute"][long[0]] == 10 * UNIT_NS


def test_without_steps_there_are_no_rows():
    assert step_rows(only_place(draw(kernels="##  ## ", launched_us_before=50)), 6, 0.2) is None

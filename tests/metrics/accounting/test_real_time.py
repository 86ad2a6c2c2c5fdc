"""The step without a recorder: what recording cost is taken from where its rows are, and from nowhere else."""

from __future__ import annotations

import pytest
from builders import draw, timeline
from machine_builders import on_cores
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.real_time import (
    FRAME_NS,
    LEAST_EVENT_NS_WITH_DEVICE,
    MOST_EVENT_NS,
    MOST_EVENT_NS_WITH_DEVICE,
    SHORTEST_OP_NS,
    hidden_cost_ns,
    real_step_ns,
    real_time,
    stack_cost,
)
from perfdoctor.model.timeline import Timeline
from perfdoctor.report.words import wording
from perfdoctor.system.run_folder import ReportedLoader
from perfdoctor.vocabulary.rulebook import load_rules
from perfdoctor.vocabulary.signals import CPU_USE_NUMBERS

STEP_NS, OPS, OP_NS, PAUSE_NS = 10_000_000, 1_000, 4_000, 1_000


def of_the_host(steps: int = 6, op_ns: int = OP_NS) -> Timeline:
    """Steps of 10 ms: 1,000 ops of 4 µs with 1 µs of Python behind each, then 5 ms of Python without ops."""
    one = {"rank": 0, "process": 1, "thread": 1}
    ops, ranges = [], []
    for step in range(steps):
        begin = step * STEP_NS
        ranges.append({**one, "name": f"ProfilerStep#{step}", "start_ns": begin, "end_ns": begin + STEP_NS})
        starts = range(begin + PAUSE_NS, begin + OPS * (OP_NS + PAUSE_NS), OP_NS + PAUSE_NS)
        ops += [{**one, "name": "aten::add", "start_ns": start, "end_ns": start + op_ns} for start in starts]
    return timeline(ops=ops, ranges=ranges)


def timed(drawn: Timeline, unrecorded_ns: int) -> Timeline:
    return replace(drawn, unrecorded_step_ns=dict.fromkeys(drawn.ranks, unrecorded_ns))


def test_what_ops_cost_is_taken_from_ops_and_the_code_between_them() -> None:
    found = real_time(prepare(timed(of_the_host(), STEP_NS - OPS * 1_000)))
    assert found is not None
    assert found.unrecorded_ns == STEP_NS - OPS * 1_000
    assert found.event_ns == pytest.approx(1_000, rel=0.01)
    # Half a microsecond inside of each op of four; as much in the 6 ms beside them.
    assert found.stretch_by_part["compute"] == pytest.approx(4.0 / 3.5, rel=0.01)
    assert found.stretch_by_part["host_work"] == pytest.approx(6.0 / 5.5, rel=0.01)


def test_what_others_use_of_the_cores_explains_is_not_laid_on_the_recorder() -> None:
    """Recorded steps of 10 ms, others of 4: for 6 ms of a step the training thread had no core."""
    drawn = timed(of_the_host(), 4_000_000)
    beside = on_cores(drawn, waited=0.6, busy_cores=2.0, program_cores=0.4, waiting_threads=0.6)
    found, alone = (real_time(prepare(each)) for each in (beside, drawn))
    assert found is not None
    assert alone is not None
    assert (found.stretch, found.by_others_ns, found.event_ns) == (alone.stretch, 6_000_000, 0)
    assert (found.is_recorders, alone.is_recorders) == (False, True)
    said = [diagnose(each, list(load_rules().values())) for each in (beside, drawn)]
    blames = [" ".join((wording.verdict(each), *each.notes)).count("Recording made") for each in said]
    assert blames == [0, 0]
    assert any("can explain up to 6 ms of that" in note for note in said[0].notes), said[0].notes


def test_a_report_lays_on_the_recorder_what_its_rows_cost_and_no_more() -> None:
    """Recorded steps of 10 ms; 1,000 ops cost 2.1 ms at most."""
    of_rows, of_other_things = (
        diagnose(timed(of_the_host(), unrecorded_ns), list(load_rules().values()))
        for unrecorded_ns in (8_000_000, 4_000_000)
    )
    assert "Recording made the step 1.2 times as long" in " ".join(of_rows.notes)
    said = " ".join((wording.verdict(of_other_things), *of_other_things.notes))
    assert "Recorded steps are 2.5 times as long, 10.0 ms instead of 4.00 ms; recording itself explains 2.1" in said
    assert "larger batch" not in said
    assert "Recording itself explains 2.1" in said


def test_what_rows_cannot_have_cost_shortens_all_parts_alike() -> None:
    found = real_time(prepare(timed(of_the_host(), 4_000_000)))
    assert found is not None
    assert (found.unrecorded_ns, found.event_ns) == (4_000_000, MOST_EVENT_NS)
    left_ns = [found.recorded_ns * share / found.stretch_by_part[part] for part, share in PARTS.items()]
    assert sum(left_ns) == pytest.approx(4_000_000, rel=0.01)


def test_an_op_keeps_the_time_of_the_shortest_there_is() -> None:
    """All 2 ms beyond the recorded ops are theirs at most: 1,000 of 1 µs cannot have cost 1 µs each inside."""
    short = of_the_host(op_ns=1_000)
    found = real_time(prepare(timed(short, 8_000_000)))
    assert found is not None
    cost_inside_ns = 1_000_000 - OPS * SHORTEST_OP_NS
    assert found.event_ns == pytest.approx(2 * cost_inside_ns / OPS, rel=0.02)
    assert found.unrecorded_ns == 8_000_000


def test_ops_one_behind_the_other_keep_the_time_of_the_shortest_there_is() -> None:
    """Between 2,000 ops that begin 1.2 µs apart a row cost 0.5 µs at most, however long the rest of the step computes."""
    one = {"rank": 0, "process": 1, "thread": 1}
    ops, ranges = [], []
    for begin in range(0, 6 * STEP_NS, STEP_NS):
        ranges.append({**one, "name": f"ProfilerStep#{begin}", "start_ns": begin, "end_ns": begin + STEP_NS})
        loop = range(begin, begin + 2_000 * 1_200, 1_200)
        ops += [{**one, "name": "aten::eq", "start_ns": start, "end_ns": start + 700} for start in loop]
        ops.append({**one, "name": "aten::mm", "start_ns": begin + 2_400_000, "end_ns": begin + 9_400_000})
    found = real_time(prepare(timed(timeline(ops=ops, ranges=ranges), 8_000_000)))
    assert found is not None
    assert found.event_ns == pytest.approx(1_200 - SHORTEST_OP_NS, rel=0.01)
    assert found.unrecorded_ns == 8_000_000


def test_what_the_training_thread_slept_is_as_long_without_a_recorder() -> None:
    """Of 6 ms beside the ops it slept 5; what rows cannot have cost shortens the other 5 ms alone."""
    drawn = timed(of_the_host(), 6_000_000)
    used = {"rank": 0, "process": 1, "name": "recorded steps", "start_ns": 0, "end_ns": 6 * STEP_NS}
    slept = timeline(cpu_processes=[{**used, **dict.fromkeys(CPU_USE_NUMBERS, 0.0), "thread_cpu_ns": 6 * 5_000_000.0}])
    slept = replace(
        drawn,
        frames={**drawn.frames, "cpu_processes": slept["cpu_processes"]},
        recorded=drawn.recorded | {"cpu_processes"},
    )
    found = real_time(prepare(slept))
    assert found is not None
    assert found.recorded_ns * PARTS["host_work"] / found.stretch_by_part["host_work"] == pytest.approx(
        5_000_000, rel=0.01
    )
    left_ns = [found.recorded_ns * share / found.stretch_by_part[part] for part, share in PARTS.items()]
    assert sum(left_ns) == pytest.approx(6_000_000, rel=0.01)


PARTS = {"compute": 0.4, "host_work": 0.6}


@pytest.mark.parametrize("unrecorded_ns", [STEP_NS, int(STEP_NS / 1.09), STEP_NS * 2])
def test_a_step_that_is_hardly_longer_or_shorter_stays_as_recorded(unrecorded_ns: int) -> None:
    run = prepare(timed(of_the_host(), unrecorded_ns))
    assert real_step_ns(run) == run.step_ns == STEP_NS


def test_without_timed_steps_on_each_rank_nothing_is_known() -> None:
    assert real_time(prepare(of_the_host())) is None


@pytest.mark.parametrize(
    ("char", "workers", "steps", "known"),
    [
        ("i", 4, 16, False),  # two batches ahead for each worker, before and behind
        ("i", 4, 17, True),
        ("i", 0, 2, True),  # it makes its batches itself
        ("o", 4, 2, True),  # its workers keep up
    ],
)
def test_few_steps_from_a_queue_that_is_empty_in_the_long_run_are_not_the_step(char, workers, steps, known) -> None:
    drawn = draw(host=["o" * 50 + char * 50], repeat=6, unit_us=100)
    loaders = (ReportedLoader(6, workers, 2, 1_000),)
    found = replace(timed(drawn, 6_000_000), unrecorded_steps={0: steps}, loaders=loaders)
    assert (real_time(prepare(found)) is not None) == known


LAUNCH_BOUND = {"kernels": "## " * 10, "host": "l  " * 10, "repeat": 6, "unit_us": 10}


def with_an_op_a_launch() -> Timeline:
    """Kernels of 20 µs, one every 30 µs, as the host takes so long to launch the next one."""
    drawn = draw(**LAUNCH_BOUND)
    ops = drawn.calls.with_columns()
    rows = [
        {"rank": 0, "process": process, "thread": thread, "name": "aten::add", "start_ns": start - 5_000, "end_ns": end}
        for start, end, process, thread in zip(
            ops.start_ns.tolist(), ops.end_ns.tolist(), ops["process"].tolist(), ops["thread"].tolist(), strict=True
        )
    ]
    beside = timeline(ops=rows)
    return replace(drawn, frames={**drawn.frames, "ops": beside.ops}, recorded=drawn.recorded | {"ops"})


@pytest.mark.parametrize("unrecorded_ns", [280_000, 240_000, 205_000])  # the last: more than rows can have cost
def test_on_a_gpu_kernels_take_as_long_as_ever_and_idle_time_is_what_shrinks(unrecorded_ns: int) -> None:
    found = real_time(prepare(timed(with_an_op_a_launch(), unrecorded_ns)))
    assert found is not None
    assert (found.recorded_ns, found.unrecorded_ns) == (300_000, unrecorded_ns)
    assert found.stretch_by_part["compute"] == 1.0
    assert 0 < found.event_ns <= MOST_EVENT_NS_WITH_DEVICE
    assert found.stretch_by_part["launch_bound"] == pytest.approx(100_000 / (unrecorded_ns - 200_000), rel=0.01)


def test_savings_the_prediction_and_their_base_are_without_the_recorder() -> None:
    drawn, rules = (
        draw(host=["o" * 30 + " " * 10, " " * 30 + "f" * 10], repeat=6, unit_us=1000),
        tuple(load_rules().values()),
    )
    recorded, real = (diagnose(each, rules) for each in (drawn, timed(drawn, 20_000_000)))
    assert (recorded.base_ns, real.base_ns, real.recorded_ns) == (40_000_000, 20_000_000, 40_000_000)
    (before,), (after,) = ([a for a in each.findings if a.rule == "host-work"] for each in (recorded, real))
    assert 0 < after.saving_ns_per_step.likely <= 0.55 * before.saving_ns_per_step.likely
    assert after.speedup[1] == pytest.approx(20e6 / (20e6 - after.saving_ns_per_step.likely))
    assert real.prediction is not None
    assert (real.prediction.recorded_ns, real.prediction.unrecorded_ns) == (40_000_000, 20_000_000)
    assert real.prediction.step_ns[1] == 20_000_000 - after.saving_ns_per_step.likely
    assert any("2.0 times as long" in note for note in real.notes)
    assert not any("times as long" in note for note in recorded.notes)


def test_a_host_that_is_ahead_loses_what_its_rows_cost_where_the_step_does_not_show_it() -> None:
    """Kernels one behind the other, launched as they come; and kernels that wait for their launches."""
    ahead, behind = (
        prepare(replace(drawn, recorded=drawn.recorded | {"ops"})).places[0]
        for drawn in (draw(kernels="##++##++##++", host="l l l l l l ", repeat=6, unit_us=10), with_an_op_a_launch())
    )
    starts, ends = ahead.window.starts, ahead.window.ends
    calls = ahead.timeline.calls
    inside = int(ahead.window.overlap_ns(calls.start_ns, calls.end_ns).astype(bool).sum())
    cost_ns = hidden_cost_ns(ahead, starts, ends).sum()
    assert inside * LEAST_EVENT_NS_WITH_DEVICE <= cost_ns <= (inside + 6) * LEAST_EVENT_NS_WITH_DEVICE
    assert hidden_cost_ns(behind, behind.window.starts, behind.window.ends).sum() == 0


# --- Python stacks ---


def with_stacks(frames: str, unit_us: float = 1) -> Timeline:
    """Steps of 2,000 units, of which the device is idle for 1,600 while the host runs the user's code."""
    host = ["l" + " " * 1999, "f" * 2000, " " * 400 + frames]
    legend = {"a": ("functions", "<built-in function len>"), "b": ("functions", "torch/x.py(1): y")}
    return draw(kernels="#" * 400 + " " * 1600, host=host, legend=legend, repeat=6, unit_us=unit_us)


def test_each_frame_costs_the_same() -> None:
    count, share = stack_cost(prepare(with_stacks("ab" * 600)))
    assert count == pytest.approx(1201 * 5, abs=2)
    assert share == pytest.approx(count * FRAME_NS / (5 * 2_000_000))


def test_without_stacks_nothing_is_lost() -> None:
    assert stack_cost(prepare(draw(kernels="#", host=["l"], repeat=6))) == (0, 0.0)


def test_many_frames_are_noted_and_doubted() -> None:
    rules = [load_rules()["host-work"]]
    many, few = diagnose(with_stacks("ab" * 600), rules), diagnose(with_stacks("ab" * 600, unit_us=10), rules)
    assert any("Python frames were recorded" in note for note in many.notes)
    assert not any("Python frames were recorded" in note for note in few.notes)
    assert [each.findings[0].confidence for each in (many, few)] == ["medium", "high"]
    assert many.findings[0].confidence_because.endswith("the profiler recorded Python stacks, which slows the host.")

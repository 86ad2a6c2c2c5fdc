"""Who used the cores while the analysed steps ran: of samples by time, and by the processes' own count."""

from __future__ import annotations

import math

import pytest
from builders import BASE_NS, draw
from machine_builders import beside

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host import cpu_use
from perfdoctor.vocabulary.signals import CPU_NUMBERS

MS = 1_000_000


def run(samples=(), processes=(), *, on_clock=True, unit_us=1000):
    """Ten steps of 100 units; samples: (from unit, to unit, numbers)."""
    unit = unit_us * 1000
    rows = [
        {
            "start_ns": BASE_NS + a * unit,
            "end_ns": BASE_NS + b * unit,
            "is_on_clock": on_clock,
            "name": "cpu.csv",
            **more,
        }
        for a, b, more in samples
    ]
    drawn = draw(kernels="#" * 100, host=["l" + " " * 99], repeat=10, unit_us=unit_us)
    return prepare(beside(drawn, cpu_samples=rows, cpu_processes=processes))


def test_idle_cores_are_a_mean_over_time_of_the_samples_in_the_window():
    found = run([
        (-500, -100, {"idle_cores": 99}),
        (100, 200, {"idle_cores": 1, "allowed_cores": 8, "program_cores": 2}),
        (200, 500, {"idle_cores": 2, "allowed_cores": 8, "program_cores": 2}),
        (500, 600, {"idle_cores": 7, "allowed_cores": 4, "program_cores": 2}),  # a quota leaves 2
    ])  # fmt: skip
    assert cpu_use.idle_cores(found) == pytest.approx((1 * 100 + 2 * 300 + 2 * 100) / 500)


def test_others_are_neither_the_program_nor_the_recorder():
    found = run([(0, 900, {"busy_cores": 3.5, "program_cores": 2.0, "recorder_cores": 0.25})])
    assert cpu_use.other_cores(found) == 1.25
    assert cpu_use.program_cores(found) == 2.0


def test_steps_shorter_than_a_sample_are_described_by_those_that_meet_them():
    found = run([(-900, 5000, {"idle_cores": 1.5})], unit_us=10)
    assert cpu_use.idle_cores(found) == 1.5


def test_samples_that_are_not_on_the_recordings_clock_say_nothing_of_its_steps():
    found = run([(0, 900, {"idle_cores": 1.5})], on_clock=False)
    assert math.isnan(cpu_use.idle_cores(found))


def test_processes_count_exactly():
    rows = [
        {"rank": rank, "start_ns": BASE_NS, "end_ns": BASE_NS + 2_000 * MS, "cpu_ns": 3_000 * MS, "threads": 5 + rank,
         "involuntary_switches": 100 * (1 + rank), "thread_delay_ns": 500 * MS * rank, "torch_threads": 2 + rank,
         "allowed_cores": 4}
        for rank in (0, 1)
    ]  # fmt: skip
    found = run(processes=rows)
    assert cpu_use.threads_per_process(found) == 5.5
    assert cpu_use.involuntary_switches_per_second(found) == 75
    assert cpu_use.waiting_share(found) == 0.25
    assert cpu_use.cores_used(found) == 1.5
    assert cpu_use.torch_threads(found) == 3
    assert cpu_use.cores_allowed(found) == 4


def test_what_was_not_recorded_is_unknown_and_no_zero():
    found = run()
    numbers = (cpu_use.cores_allowed, cpu_use.idle_cores, cpu_use.other_cores, cpu_use.program_cores,
               cpu_use.steal_cores, cpu_use.throttled_share, cpu_use.waiting_threads,
               cpu_use.threads_per_process, cpu_use.torch_threads, cpu_use.involuntary_switches_per_second,
               cpu_use.waiting_share, cpu_use.cores_used)  # fmt: skip
    assert all(math.isnan(number(found)) for number in numbers)
    assert set(CPU_NUMBERS) >= {"busy_cores", "idle_cores"}

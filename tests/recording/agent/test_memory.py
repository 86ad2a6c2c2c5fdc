"""What the agent samples of a process's memory, and that it stops where that takes too long."""

from __future__ import annotations

import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from warm_torch import ALL_AT_ONE, Program

from perfdoctor.recording.tools import torch_profiler

sys.path.insert(0, str(torch_profiler.AGENT))
from perfdoctor_agent import memory
from perfdoctor_agent.memory import MemorySamples

sys.path.remove(str(Path(torch_profiler.AGENT)))


def on_gpu(*allocated: int, device: int = 0) -> SimpleNamespace:
    values = iter(allocated)
    return SimpleNamespace(
        cuda=SimpleNamespace(
            is_initialized=lambda: True,
            current_device=lambda: device,
            memory_allocated=lambda: next(values),
            memory_reserved=lambda: 9,
        )
    )


def test_on_a_gpu_it_is_what_torch_allocated_and_reserved() -> None:
    samples, torch = MemorySamples(), on_gpu(4, 5, device=3)
    samples.sample(torch)
    samples.sample(torch)
    report = samples.as_json()
    assert (report["kind"], report["device"]) == ("cuda", 3)
    assert [held for _, *held in report["samples"]] == [[4, 9], [5, 9]]


def test_moments_of_two_devices_are_not_mixed() -> None:
    samples = MemorySamples()
    samples.sample(on_gpu(4))
    samples.sample(on_gpu(5, device=1))
    assert [held for _, *held in samples.as_json()["samples"]] == [[5, 9]]


def test_where_memory_is_unknown_there_are_no_samples_and_no_error() -> None:
    samples = MemorySamples()
    samples.sample(on_gpu(4))
    samples.sample(SimpleNamespace())
    samples.sample(on_gpu(5))
    assert samples.as_json()["samples"] == []


def test_it_stops_where_a_sample_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_LONGEST_NS", -1)
    samples = MemorySamples()
    samples.sample(on_gpu(4))
    assert samples.as_json()["samples"] == []
    assert samples.is_off


@pytest.mark.parametrize(("took_ms", "last"), [((1, 1, 1, 1, 1, 1), 5), ((1, 1, 0.05, 0.05, 0.05, 0.05), 0)])
def test_it_stops_where_samples_take_much_of_short_steps(
    monkeypatch: pytest.MonkeyPatch, took_ms: tuple[float, ...], last: int
) -> None:
    """Steps of 20 ms; the first sample loads libraries, and a single one behind it may find cold caches."""
    used, now, many = [0.0], [0], []
    monkeypatch.setattr(memory.time, "thread_time_ns", lambda: used[0])
    monkeypatch.setattr(memory.time, "time_ns", lambda: now[0])
    samples = MemorySamples()

    def held(_: object) -> tuple[str, int, tuple[int, int]]:
        used[0] += many.pop() * 1e6
        return "heap", -1, (1, 2)

    monkeypatch.setattr(samples, "_held", held)
    off_at = 0
    for number, each in enumerate(took_ms, 1):
        many.append(each)
        now[0] += 20_000_000
        samples.sample(SimpleNamespace())
        off_at = off_at or number * samples.is_off
        if off_at:
            break
    assert off_at == last


KEEPING = """
import json, sys, time, torch
sys.path.insert(0, sys.argv[1])
from perfdoctor_agent import memory
memory._LONGEST_NS, memory._MOST_OF_TIME = 10**10, 10.0  # what looking costs has tests of its own
samples, kept = memory.MemorySamples(), []
for number in range(8):
    time.sleep(0.1)
    torch.randn(1_000_000)
    if sys.argv[2] == "keeps":
        kept.append(torch.randn(1_000_000))
    samples.sample(torch)
print(json.dumps(samples.as_json()))
"""


@ALL_AT_ONE
@pytest.mark.torch
@pytest.mark.parametrize(("what", "bytes_a_step"), [("keeps", 4_000_000), ("keeps nothing", 0)])
def test_without_a_gpu_tensors_that_are_kept_count_and_those_given_back_do_not(
    tmp_path: Path, what: str, bytes_a_step: int
) -> None:
    program = tmp_path / "keeping.py"
    program.write_text(KEEPING, "utf-8")
    code, output, errors = Program([program, torch_profiler.AGENT, what], tmp_path, os.environ).finish()
    assert code == 0, errors
    report = json.loads(output)
    held = [allocated for _, allocated, _ in report["samples"]]
    assert report["kind"] == "heap"
    rises = [after - before for before, after in pairwise(held[2:])]
    assert rises == pytest.approx([bytes_a_step] * 5, abs=50_000)

"""What the agent counts of its process: the kernel's own counters, before and behind the recorded steps."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfdoctor.recording.tools import torch_profiler

sys.path.insert(0, str(torch_profiler.AGENT))
from perfdoctor_agent import processor
from perfdoctor_agent.processor import ProcessorUse

sys.path.remove(str(Path(torch_profiler.AGENT)))

TORCH = SimpleNamespace(get_num_threads=lambda: 7, get_num_interop_threads=lambda: 3)


def test_it_counts_what_was_used_between_begin_and_end() -> None:
    use, begun = ProcessorUse(), time.time_ns()
    before = resource.getrusage(resource.RUSAGE_THREAD)
    use.begin()
    while resource.getrusage(resource.RUSAGE_THREAD).ru_utime < before.ru_utime + 0.1:
        pass
    use.end(TORCH)
    facts = use.facts
    assert 0.09e9 < facts["thread_cpu_ns"] <= facts["cpu_ns"] + 1e6
    assert begun <= facts["start_unix_ns"] < facts["end_unix_ns"] <= time.time_ns()
    assert (facts["torch_threads"], facts["interop_threads"]) == (7, 3)
    assert facts["threads"] >= 1
    assert all(isinstance(value, int) and value >= 0 for value in facts.values())
    use.end(TORCH)
    assert use.facts is facts  # the first end counts


def test_where_the_kernel_shows_nothing_there_are_no_facts_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> dict[str, int]:
        raise OSError

    monkeypatch.setattr(processor, "_reading", refused)
    use = ProcessorUse()
    use.begin()
    use.end(TORCH)
    assert use.facts == {}


def test_without_a_begin_there_is_no_end() -> None:
    use = ProcessorUse()
    use.end(TORCH)
    assert use.facts == {}

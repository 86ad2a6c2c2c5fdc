"""copies-in-compute-stream: batches are copied in the kernels' own stream."""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw_steps, findings, of_step, only_finding, summary
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.timeline import Timeline
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000


def in_stream(drawn: Timeline, stream: int = 7) -> Timeline:
    """The picture with its copies in that stream; kernels run in 7."""
    copies = drawn.copies.with_columns(stream=np.full(len(drawn.copies), stream, np.int64))
    return replace(drawn, frames={**drawn.frames, "copies": copies})


def step(exposed: int, char: str = "h", *, of: int = 40, stream: int = 7) -> Timeline:
    """A copy of `exposed` ms in front of each step's compute."""
    picture = draw_steps(
        copies=char * exposed + " " * (of - exposed),
        kernels=" " * exposed + "#" * (of - exposed),
    )
    return in_stream(picture, stream)


def test_it_fires_where_copies_and_kernels_share_a_stream():
    finding = only_finding("copies-in-compute-stream", step(10))
    assert finding.values == {"copies_per_step": 1.0, **of_step("exposed", 10.0, 40.0), "stream": 7, "hideable_ms": 10}
    assert finding.saving_ns_per_step == Saving(5 * MS, 10 * MS, 10 * MS)
    assert "run in stream 7" in summary(finding)


def test_little_compute_hides_little():
    """39 ms of copies beside 1 ms of kernels: another stream hides 1 ms."""
    assert only_finding("copies-in-compute-stream", step(39)).saving_ns_per_step == Saving(MS // 2, MS, 39 * MS)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("copies-in-compute-stream", step(1, of=40)) == []  # 2.5 %
    assert len(findings("copies-in-compute-stream", step(1, of=33))) == 1  # 3.03 %


def test_it_stays_silent_where_the_copy_has_a_stream_of_its_own():
    assert findings("copies-in-compute-stream", step(10, stream=8)) == []


@pytest.mark.parametrize("char", ["H", "d", "x", "m"])
def test_it_stays_silent_where_another_stream_would_not_help(char):
    assert findings("copies-in-compute-stream", step(10, char)) == []


def test_it_is_a_symptom_of_exposed_copies():
    found = diagnose(step(10), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "exposed-copies")
    assert "copies-in-compute-stream" in [each.rule for each in above.symptoms]
    assert "copies-in-compute-stream" not in [each.rule for each in found]

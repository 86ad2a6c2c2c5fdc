"""host-syncs: blocking calls that drain the queue."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary

OPS = {"recorded": ["kernels", "copies", "collectives", "calls", "ops", "ranges"]}


def step(wait: int, char: str = "s", *, of: int = 40, **more):
    """The host stands in a blocking call until `wait` units after the device ran dry, and launches then."""
    busy = of - wait
    host = ["l " + char * (of - 2), "o"]
    return draw(kernels=" " + "#" * busy + " " * (wait - 1), host=host, repeat=6, **OPS, **more)


def test_it_fires_where_the_device_runs_dry_under_a_sync():
    finding = only_finding(
        "host-syncs", step(10, unit_us=1000), recoverable_share_low=0.4, recoverable_share_likely=0.8
    )
    # idle from 31 to 41 of each step of 40 ms: the sync lasts until 40, the launch until 41
    assert finding.values["lost_ms"] == 10.0
    assert finding.values["step_ms"] == 40.0
    assert finding.values["lost_percent"] == 25.0
    assert finding.values["dry_per_step"] == 1.0
    assert finding.values["call"] == "cudaStreamSynchronize"
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (4_000_000, 8_000_000)
    assert "10.0 ms of a 40.0 ms step (25 %) are lost 1 times a step" in summary(finding)
    assert "`cudaStreamSynchronize`" in summary(finding)


def test_it_names_the_call_in_which_the_host_stood_longest():
    picture = draw(
        kernels=" ##########            ",
        host=["l E ssssssssss E       ", "o"],
        legend={"E": ("calls", "cudaEventSynchronize")},
        repeat=5,
        **OPS,
    )
    finding = only_finding("host-syncs", picture)
    assert finding.values["call"] == "cudaStreamSynchronize"
    table = finding.evidence[1]
    assert [row[:2] for row in table.rows] == [("cudaStreamSynchronize", 4), ("cudaEventSynchronize", 8)]


def test_it_stays_silent_just_below_the_threshold():
    assert findings("host-syncs", step(2, of=80)) == []  # 2.5 %
    assert len(findings("host-syncs", step(2, of=66))) == 1  # 3.03 %


def test_it_stays_silent_where_the_queue_is_still_full_when_the_call_returns():
    picture = draw(
        kernels="##########++++++++++",
        host=["ll ssssssssssss     ", "o"],
        host_ahead=5,
        repeat=6,
        **OPS,
    )
    assert findings("host-syncs", picture) == []


@pytest.mark.parametrize("name", ["cudaStreamWaitEvent", "cuStreamWaitEvent", "cudaEventQuery"])
def test_it_stays_silent_where_only_a_stream_waits_for_an_event(name):
    assert findings("host-syncs", step(10, "z", legend={"z": ("calls", name)})) == []


def test_a_wait_for_the_loader_is_no_sync():
    picture = draw(
        kernels=" " + "#" * 20 + " " * 19,
        host=["l" + " " * 39, " " * 15 + "i" * 25, "o"],
        repeat=6,
        **OPS,
    )
    assert findings("host-syncs", picture) == []


# Where it came from


def test_it_says_which_op_and_which_line_made_the_call():
    picture = draw(
        kernels=" " + "#" * 30 + " " * 9,
        host=["l " + "s" * 38, " " + "v" * 39, " " + "t" * 39, "U" * 40],
        legend={
            "v": ("ops", "aten::_local_scalar_dense"),
            "t": ("functions", "torch/_tensor.py(900): item"),
            "U": ("functions", "train.py(31): step"),
        },
        repeat=6,
        unit_us=1000,
    )
    finding = only_finding("host-syncs", picture)
    assert finding.evidence[2].rows[0][:3] == (
        "cudaStreamSynchronize",
        "aten::_local_scalar_dense",
        "train.py(31): step",
    )
    assert "from `aten::_local_scalar_dense` in `train.py(31): step`" in summary(finding)


def test_an_op_that_only_stands_near_the_call_is_not_named():
    """The op ended before the call was made."""
    picture = draw(
        kernels=" " + "#" * 30 + " " * 9, host=["l  " + "s" * 37, "oo"], repeat=6, unit_us=1000
    )  # fmt: skip
    assert only_finding("host-syncs", picture).evidence[2].rows[0][:3] == ("cudaStreamSynchronize", "", "")


def test_the_call_that_cost_most_comes_first_and_not_the_one_that_waited_longest():
    """The host stands long in an event's wait while the device is busy, and briefly in the sync that drains it."""
    picture = draw(
        kernels=" " + "#" * 30 + " " * 9,
        host=["l " + "E" * 27 + "  ssssssssss"[:11], "o"],
        legend={"E": ("calls", "cudaEventSynchronize")},
        repeat=6,
        unit_us=1000,
    )
    finding = only_finding("host-syncs", picture)
    assert finding.evidence[1].rows[0][0] == "cudaEventSynchronize"
    assert finding.values["call"] == "cudaStreamSynchronize"

"""nccl-socket-fallback: between machines over sockets, though something faster was meant."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary
from machine_builders import beside, fact, way

from perfdoctor.records.savings import Saving

OVER_SOCKETS = [way("NET/Socket/0", 0, 4), way("NET/Socket/0", 4, 0, host=1, process=9)]
TWO = fact("machines", "8", 2.0)


def given(*facts, ways=OVER_SOCKETS):
    return beside(nccl_facts=[TWO, *facts], transports=ways)


@pytest.mark.parametrize(
    ("reason", "situation", "confidence"),
    [("plugin_failed", "plugin", "high"), ("no_infiniband", "", "medium"), ("no_verbs", "", "medium")],
)
def test_it_fires_and_tells_why(reason, situation, confidence):
    finding = only_finding("nccl-socket-fallback", given(fact(reason)))
    assert (finding.situation, finding.confidence) == (situation, confidence)
    assert summary(finding).startswith("2 connections between 2 machines use TCP sockets")


def test_it_fires_where_it_was_switched_off():
    finding = only_finding("nccl-socket-fallback", given(fact("environment", "NCCL_IB_DISABLE=1")))
    assert "NCCL_IB_DISABLE=1 is set" in summary(finding)


def test_it_fires_on_a_number_that_nccl_ends_with_a_full_stop():
    """ncclLoadParam prints `NCCL_IB_DISABLE set by environment to 1.`, and words without the stop."""
    finding = only_finding("nccl-socket-fallback", given(fact("environment", "NCCL_IB_DISABLE=1.")))
    assert finding.situation == "disabled"
    assert finding.values["why"] == "NCCL_IB_DISABLE=1 is set"
    assert findings("nccl-socket-fallback", given(fact("environment", "NCCL_IB_DISABLE=0."))) == []


def environment(*settings: str):
    return given(*(fact("environment", setting, count=count) for count, setting in enumerate(settings, start=1)))


def test_of_several_settings_each_counts_whatever_was_logged_more_often():
    finding = only_finding("nccl-socket-fallback", environment("NCCL_IB_DISABLE=1.", "NCCL_NET=IB"))
    assert finding.values["why"] == "NCCL_IB_DISABLE=1 is set"
    finding = only_finding("nccl-socket-fallback", environment("NCCL_NET=Socket", "NCCL_IB_DISABLE=0."))
    assert finding.values["why"] == "NCCL_NET=Socket is set"
    both = only_finding("nccl-socket-fallback", environment("NCCL_NET=Socket", "NCCL_IB_DISABLE=1."))
    assert "NCCL_IB_DISABLE=1 and NCCL_NET=Socket are set" in summary(both)
    assert findings("nccl-socket-fallback", environment("NCCL_NET=IB", "NCCL_IB_DISABLE=0.")) == []


def test_beside_a_recording_it_bounds_the_time():
    drawn = draw(kernels="####    ", nccl="    ====", launched_us_before=50, repeat=6)
    both = beside(drawn, nccl_facts=[TWO, fact("no_verbs")], transports=OVER_SOCKETS)
    assert only_finding("nccl-socket-fallback", both).saving_ns_per_step == Saving(0, 0, 400_000)


def test_it_stays_silent_on_plain_ethernet():
    """Nothing says that there was anything better."""
    assert findings("nccl-socket-fallback", given()) == []


def test_it_stays_silent_just_below_two_machines():
    """On one machine the library of InfiniBand is missing, too, and nothing goes over the network."""
    one = beside(nccl_facts=[fact("machines", "8", 1.0), fact("no_verbs")], transports=[way("NET/Socket/0", 0, 4)])
    assert findings("nccl-socket-fallback", one) == []


def test_it_stays_silent_where_the_ways_go_over_infiniband():
    ways = [way("NET/IB/0/GDRDMA", 0, 4), way("P2P/CUMEM/read", 0, 1)]
    assert findings("nccl-socket-fallback", given(fact("plugin_failed"), ways=ways)) == []

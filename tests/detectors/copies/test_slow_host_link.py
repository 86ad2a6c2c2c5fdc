"""slow-host-link: large copies far below what the GPU's host link gives."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary
from counters_builder import sampled
from measured_builders import measurement, with_rates
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.timeline import UserValues
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000
H100 = "NVIDIA H100 80GB HBM3"  # 63 GB/s


def step(rate: float, char: str = "h", *, copied: int = 10, of: int = 40, **more):
    return draw(
        **{
            "copies": char * copied + " " * (of - copied),
            "kernels": " " * copied + "#" * (of - copied),
            "launched_us_before": 50,
            "repeat": 6,
            "unit_us": 1000,
            "gigabytes_per_second": rate,
            "gpu": H100,
            **more,
        }
    )


def test_it_fires_where_the_link_is_slow():
    finding = only_finding("slow-host-link", step(12.6), reachable_share_of_peak=0.8)
    assert finding.values == {
        "gigabytes_per_second": pytest.approx(12.6),
        "peak_gigabytes_per_second": pytest.approx(63),
        "rate_percent": pytest.approx(20),
        "exposed_ms": 10.0,
        "exposed_percent": 25.0,
        "likely_gigabytes_per_second": pytest.approx(25.2),
        "most_gigabytes_per_second": pytest.approx(50.4),
        "full_link_percent": 0,
        "free_link_percent": 0,
    }
    # a slot one generation older gives 25.2 GB/s (half of the time), the best one 50.4 (a quarter of it)
    assert finding.saving_ns_per_step == Saving(0, 5 * MS, 7.5 * MS)
    assert finding.situation == ""
    assert "12.6 GB/s, 20 % of the 63 GB/s" in summary(finding)


def test_what_an_older_slot_gives_is_reported_as_such_and_nothing_is_promised():
    finding = only_finding("slow-host-link", step(27.7))
    assert finding.situation == "older-slot"
    assert finding.saving_ns_per_step.likely == 0
    assert "one generation older" in summary(finding)


def test_it_stays_silent_just_below_either_threshold():
    assert findings("slow-host-link", step(31.6)) == []  # 50.2 % of the peak
    assert len(findings("slow-host-link", step(31.4))) == 1
    assert findings("slow-host-link", step(12.6, copied=1)) == []  # 2.5 % of the step
    assert len(findings("slow-host-link", step(12.6, copied=1, of=33))) == 1


def test_it_stays_silent_where_the_gpu_is_not_known():
    assert findings("slow-host-link", step(12.6, gpu="")) == []


def test_it_stays_silent_where_memory_is_pageable():
    assert findings("slow-host-link", step(12.6, "H")) == []


def test_it_stays_silent_where_two_copies_share_the_link():
    both = {"copies": ["h" * 10 + " " * 30, "h" * 10 + " " * 30]}
    assert findings("slow-host-link", step(12.6, **both)) == []
    duplex = {"copies": ["h" * 10 + " " * 30, "d" * 10 + " " * 30]}
    assert len(findings("slow-host-link", step(12.6, **duplex))) == 1, "the link sends and receives at once"


def test_it_stays_silent_where_copies_are_small():
    assert findings("slow-host-link", step(0.1)) == []  # 1 MB each


def test_it_is_a_symptom_of_exposed_copies():
    found = diagnose(step(12.6), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "exposed-copies")
    assert "slow-host-link" in [each.rule for each in above.symptoms]


def test_a_short_copy_beside_a_long_one_does_not_make_it_slow():
    """A batch that another stream brings meanwhile: for 1 of 10 ms both share the link, for 2 it is too long."""
    assert len(findings("slow-host-link", step(12.6, copies=["h" * 10 + " " * 30, "  h" + " " * 37]))) == 1
    assert findings("slow-host-link", step(12.6, copies=["h" * 10 + " " * 30, "  hh" + " " * 36])) == []


def test_what_only_latency_makes_slow_is_too_small_to_tell():
    """Over a link of 50 GB/s, with 10 µs of latency each: 2 MiB come at 40 GB/s, and 256 KiB at 17, a third of the peak."""
    for size, rate in ((2 << 20, 40.4), (256 << 10, 17.2)):
        unit_us = size / rate / 1000
        assert findings("slow-host-link", step(rate, copied=1, of=4, unit_us=unit_us)) == []
    unit_us = (2 << 20) / 12.6 / 1000 + 0.001
    assert len(findings("slow-host-link", step(12.6, copied=1, of=4, unit_us=unit_us, launched_us_before=5))) == 1


def saved(drawn) -> tuple[int, int]:
    saving = only_finding("slow-host-link", drawn, reachable_share_of_peak=0.8).saving_ns_per_step
    return saving.likely, saving.high


def test_likely_is_what_the_machines_own_copies_gave():
    """Measured at 42 GB/s, 12.6 take 10 ms where 3 would do; the best slot gives 50.4."""
    assert saved(with_rates(step(12.6), measurement("h2d_pinned", 42e9))) == (7 * MS, 7.5 * MS)
    # as slow when nothing else ran: it is the slot, and nothing of the training's
    assert saved(with_rates(step(12.6), measurement("h2d_pinned", 12.6e9))) == (0, 7.5 * MS)
    # faster than what is expected of the best slot
    assert saved(with_rates(step(12.6), measurement("h2d_pinned", 63e9))) == (8 * MS, 8 * MS)


def test_the_users_own_value_of_the_link_counts_more():
    drawn = with_rates(step(12.6), measurement("h2d_pinned", 42e9))
    assert saved(replace(drawn, user_values=UserValues(peaks={"host_link": 63e9}))) == (5 * MS, 7.5 * MS)


@pytest.mark.parametrize(
    ("busy", "said"), [(0.25, "Meanwhile the link was only 25 % busy"), (0.92, "Meanwhile the link was 92 % busy")]
)
def test_the_gpus_counters_say_whether_the_link_was_full(busy, said):
    finding = only_finding("slow-host-link", sampled(step(12.6), {}, copying={"pcie_rx_share": busy}))
    assert said in summary(finding)
    (measure,) = [each for each in finding.evidence if "by the GPU's counters" in getattr(each, "label", "")]
    assert measure.value == pytest.approx(busy, abs=0.01)

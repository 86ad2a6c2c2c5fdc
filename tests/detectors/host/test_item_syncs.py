"""item-syncs: values are read from the device one by one."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, paused_ms_per_step, summary

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host.sync_sources import syncs

SCALAR = ("ops", "aten::_local_scalar_dense")


def step(wait: int, op: tuple[str, str] = SCALAR, *, of: int = 40, around: str = " ", **more):
    """In each step the host stands in a sync inside `op` until `wait` ms after the device ran dry."""
    host = ["l " + "s" * (of - 2), "  " + "v" * (of - 2), "o" + around * (of - 1)]
    legend = {"v": op, "U": ("functions", "train.py(7): step"), **more.pop("legend", {})}
    busy = of - wait
    return draw(
        kernels=" " + "#" * busy + " " * (wait - 1), host=host, repeat=6, unit_us=1000, legend=legend, **more
    )  # fmt: skip


def test_it_fires_where_a_value_is_read_in_each_step():
    finding = only_finding("item-syncs", step(10), recoverable_share_low=0.4, recoverable_share_likely=0.8)
    assert (finding.values["lost_ms"], finding.values["step_ms"], finding.values["lost_percent"]) == (10.0, 40.0, 25.0)
    assert (finding.values["op"], finding.values["where"]) == ("aten::_local_scalar_dense", "")
    assert finding.values["reads_per_step"] == pytest.approx(1.0, abs=0.25)
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (4_000_000, 8_000_000)
    assert "mostly `aten::_local_scalar_dense`" in summary(finding)


def test_it_names_the_users_line_where_functions_were_recorded():
    finding = only_finding("item-syncs", step(10, around="U"))
    assert finding.values["where"] == " in train.py(7): step"
    assert finding.evidence[2].rows[0][:2] == ("aten::_local_scalar_dense", "train.py(7): step")


def test_it_stays_silent_just_below_the_threshold():
    assert findings("item-syncs", step(2, of=80)) == []  # 2.5 %
    assert len(findings("item-syncs", step(2, of=66))) == 1  # 3.03 %


@pytest.mark.parametrize("name", ["aten::copy_", "aten::mul", "aten::to"])
def test_it_stays_silent_where_another_op_made_the_host_wait(name):
    assert findings("item-syncs", step(10, ("ops", name))) == []


def test_it_stays_silent_where_the_queue_is_still_full_when_the_value_is_there():
    host = ["ll ssssssssssss     ", "   vvvvvvvvvvvv     ", "o"]
    drawn = draw(kernels="##########++++++++++", host=host, host_ahead=5, repeat=6, legend={"v": SCALAR})
    assert findings("item-syncs", drawn) == []


def test_it_stays_silent_inside_the_optimizer_which_has_a_rule_of_its_own():
    assert findings("item-syncs", step(10, around="u")) == []


def test_the_idle_of_all_calls_is_the_idle_after_syncs():
    (place,) = prepare(step(10)).places
    assert int(syncs(place).idle_ns.sum()) == place.idle_causes["host_sync"].total_ns


def test_the_number_is_what_plain_counting_gives():
    """Every pause ends with a launch right after a read: all of it is lost."""
    lost_ms = only_finding("item-syncs", step(7)).values["lost_ms"]
    assert lost_ms == pytest.approx(paused_ms_per_step(step(7)), rel=0.03)

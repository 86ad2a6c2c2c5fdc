"""optimizer-syncs: the update of the parameters waits for a value from the device."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, paused_ms_per_step, summary


def step(wait: int, around: str = "u", *, of: int = 40, first: str = " ", legend=None, last: str = " "):
    """In each step the host stands in a sync until `wait` ms after the device ran dry, inside `around`."""
    host = ["l " + "s" * (of - 2), " " + first + around * (of - 2), "o" + " " * (of - 2) + last]
    busy = of - wait
    return draw(
        kernels=" " + "#" * busy + " " * (wait - 1), host=host, repeat=6, unit_us=1000, legend=legend or {}
    )  # fmt: skip


def test_it_fires_where_the_optimizers_step_waits():
    finding = only_finding("optimizer-syncs", step(10), recoverable_share_low=0.4, recoverable_share_likely=0.8)
    assert (finding.values["lost_ms"], finding.values["step_ms"], finding.values["lost_percent"]) == (10.0, 40.0, 25.0)
    assert finding.values["times_per_step"] == pytest.approx(1.0, abs=0.25)
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (4_000_000, 8_000_000)
    assert finding.situation == ""
    assert "around the optimizer step" in summary(finding)


def test_it_fires_between_a_scalers_check_and_the_update():
    legend = {
        "n": ("ops", "aten::_amp_foreach_non_finite_check_and_unscale_"),
        "v": ("ops", "aten::_local_scalar_dense"),
    }
    finding = only_finding("optimizer-syncs", step(10, "v", first="n", last="u", legend=legend))
    assert finding.situation == "scaler"
    assert finding.values["lost_ms"] == pytest.approx(10.0, rel=0.25)
    assert "GradScaler" in summary(finding)


@pytest.mark.parametrize(
    "name", ["torch/nn/utils/clip_grad.py(40): clip_grad_norm_", "torch/amp/grad_scaler.py(300): _maybe_opt_step"]
)
def test_it_knows_clipping_and_the_scaler_by_their_functions(name):
    assert len(findings("optimizer-syncs", step(10, "z", legend={"z": ("functions", name)}))) == 1


def test_it_stays_silent_just_below_the_threshold():
    assert findings("optimizer-syncs", step(2, of=80)) == []  # 2.5 %
    assert len(findings("optimizer-syncs", step(2, of=66))) == 1  # 3.03 %


@pytest.mark.parametrize("around", ["r", "f", " "])
def test_it_stays_silent_where_another_part_of_the_step_waits(around):
    assert findings("optimizer-syncs", step(10, around)) == []


def test_it_stays_silent_where_the_scaler_skipped_the_update():
    """The check is followed by no update in its step: what the host waits for then belongs to the next step."""
    legend = {
        "n": ("ops", "aten::_amp_foreach_non_finite_check_and_unscale_"),
        "v": ("ops", "aten::_local_scalar_dense"),
    }
    assert findings("optimizer-syncs", step(10, "v", first="n", legend=legend)) == []


def test_the_number_is_what_plain_counting_gives():
    """Every pause ends with a launch right after a read: all of it is lost."""
    lost_ms = only_finding("optimizer-syncs", step(7)).values["lost_ms"]
    assert lost_ms == pytest.approx(paused_ms_per_step(step(7)), rel=0.03)

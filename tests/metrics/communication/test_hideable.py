"""What of exposed communication could run beside compute that does not need it?"""

from __future__ import annotations

import pytest
from builders import draw
from collective_builders import described

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.hideable import hideable, purposes, sent_ns

UNIT_NS = 100_000
TWO_THIRDS = 2 / 3


def of_step(*, named: str = "", types: str | None = None, **picture):
    """What is found in one step of six: in units of time."""
    host = {"host": ["l   ", "n" * 4], "legend": {"n": ("ops", named)}} if named else {}
    drawn = draw(repeat=6, launched_us_before=50, **host, **picture)
    run = prepare(drawn if types is None else described(drawn, data_type=types))
    (place,) = run.places
    return run, place, hideable(run, place, TWO_THIRDS)


def in_units(place, ns: float) -> float:
    return ns / place.units / UNIT_NS


def test_gradients_hide_behind_the_backward_pass():
    _, place, found = of_step(kernels="#" * 12 + " " * 20, nccl=" " * 12 + "=" * 20)
    assert in_units(place, found.gradients_ns) == pytest.approx(8, rel=0.01)  # of 12 units of compute
    _, place, found = of_step(kernels="#" * 12 + " " * 4, nccl=" " * 12 + "=" * 4)
    assert in_units(place, found.gradients_ns) == pytest.approx(4, rel=0.01)  # all of them


def test_parameters_hide_behind_the_layer_before_and_the_first_of_a_step_behind_none():
    """Three layers of 2, 8 and 3 units, each in front of which 4 units of parameters are gathered."""
    nccl, kernels = "aaaa  aaaa        aaaa   r", "    ##    ########    ### "
    _, place, found = of_step(kernels=kernels, nccl=nccl)
    # one behind 2 units, one whole behind 8, one behind 3; but a third of them begins a step, behind the update
    assert in_units(place, found.parameters_ns) == pytest.approx((2 + 4 + 3) * 2 / 3, rel=0.05)


def test_sums_inside_layers_hide_behind_nothing():
    picture = {"kernels": "####    ####    ", "nccl": "    ====    ===="}
    run, place, found = of_step(named="RedistributeBackward", **picture)
    assert purposes(run, place).in_layers.all()
    assert (found.gradients_ns, found.parameters_ns, found.other_ns) == (0, 0, 0)
    assert in_units(place, found.in_layers_ns) == pytest.approx(8, rel=0.05)  # if they were split
    assert sent_ns(run, place) == (0, 0)
    _, place, found = of_step(named="aten::add", **picture)
    assert in_units(place, found.gradients_ns) == pytest.approx(8 * TWO_THIRDS, rel=0.05)


@pytest.mark.parametrize(("types", "wide", "narrow"), [("Float", 8, 0), ("", 8, 0), ("BFloat16", 0, 8)])
def test_only_what_is_not_known_to_have_16_bits_can_be_halved(types, wide, narrow):
    run, place, _ = of_step(kernels="#" * 8 + " " * 8, nccl=" " * 8 + "=" * 8, types=types)
    found = [in_units(place, ns) for ns in sent_ns(run, place)]
    assert found == pytest.approx([wide, narrow], rel=0.01)

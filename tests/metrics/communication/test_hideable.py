"""What of exposed communication could run beside compute that does not need it?"""

from __future__ import annotations

import pytest
from builders import draw
from collective_builders import MIB, described

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.hideable import DEFAULT_BUCKET_BYTES, hideable, purposes, saved_ns

UNIT_NS = 100_000
TWO_THIRDS = 2 / 3


def of_step(*, named: str = "", types: str | None = None, size: int = -1, **picture):
    """What is found in one step of six: in units of time."""
    host = {"host": ["l   ", "n" * 4], "legend": {"n": ("ops", named)}} if named else {}
    drawn = draw(repeat=6, launched_us_before=50, **host, **picture)
    columns = {"bytes": size} if types is None else {"bytes": size, "data_type": types}
    run = prepare(described(drawn, **columns))
    (place,) = run.places
    return run, place, hideable(run, place, TWO_THIRDS)


def in_units(place, ns: float) -> float:
    return ns / place.units / UNIT_NS


def test_gradients_hide_behind_the_backward_pass_but_for_the_last_bucket():
    """One message that can be cut in two: 20 units and a backward pass of 8, then 4 units of which all would fit."""
    _, place, found = of_step(kernels="#" * 12 + " " * 20, nccl=" " * 12 + "=" * 20)
    assert in_units(place, found.gradients_ns) == pytest.approx(8 / 2, rel=0.01)
    _, place, found = of_step(kernels="#" * 12 + " " * 4, nccl=" " * 12 + "=" * 4)
    assert in_units(place, found.gradients_ns) == pytest.approx(4 / 2, rel=0.01)


@pytest.mark.parametrize(("took", "backward"), [(20, 8), (4, 8), (8, 8), (6, 2)])
def test_buckets_end_as_late_as_one_sent_after_the_other(took, backward):
    """100 MiB make four of DDP's buckets: bucket n is ready after n quarters of the backward pass."""
    compute = backward * 3 // 2
    _, place, found = of_step(
        kernels="#" * compute + " " * took, nccl=" " * compute + "=" * took, size=4 * DEFAULT_BUCKET_BYTES
    )
    over = 0.0
    for number in range(1, 5):
        over = max(over, number * backward / 4) + took / 4
    assert in_units(place, found.gradients_ns) == pytest.approx(took - (over - backward), rel=0.01)


def test_what_is_hidden_already_is_not_won_again():
    """Four equal messages, three of them beside the backward pass: the last has to be exposed."""
    *_, found = of_step(kernels="#" * 24 + " " * 2, nccl=" " * 8 + "==  " * 3 + "    " + "==", size=MIB)
    assert found.gradients_ns == 0


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
    assert in_units(place, found.in_layers_ns) == pytest.approx(8 / 2, rel=0.05)  # if they were split in two
    assert saved_ns(run, place) == (0, 0)
    _, place, found = of_step(named="aten::add", **picture)
    assert in_units(place, found.gradients_ns) == pytest.approx(8 * TWO_THIRDS / 2, rel=0.05)  # of two messages


@pytest.mark.parametrize(("types", "likely", "most"), [("Float", 4, 4), ("c10::Odd", 0, 4), ("BFloat16", 0, 0)])
def test_only_32_bits_can_be_halved_and_an_unknown_type_at_most(types, likely, most):
    run, place, _ = of_step(kernels="#" * 8 + " " * 8, nccl=" " * 8 + "=" * 8, types=types)
    found = [in_units(place, ns) for ns in saved_ns(run, place)]
    assert found == pytest.approx([likely, most], rel=0.01)

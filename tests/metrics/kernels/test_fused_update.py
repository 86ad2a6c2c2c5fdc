"""What one update of all tensors would take: passes over memory that are left, and launches that grow with the model."""

from __future__ import annotations

import pytest
from builders import ELEMENTWISE, draw, only_place

from perfdoctor.metrics.kernels.fused_update import fused_update, launches


@pytest.mark.parametrize(
    ("parameters", "tensors", "least", "most"),
    [(7e9, 291, 330, 340), (124e6, 148, 5, 7), (1e6, 400, 11, 13), (10, 1, 1, 1)],
)
def test_launches_grow_with_tensors_and_with_numbers(parameters, tensors, least, most):
    """36 tensors, or 320 chunks of 65,536 numbers, in a launch: GPT-2 needs a handful, a model of 7 B hundreds."""
    assert least <= launches(tensors, parameters) <= most


OTHER = ELEMENTWISE.replace("Add", "Mul")


def place(optimizer: str, *, unit_us: float = 50, gpu: str = "", one: str = ELEMENTWISE, other: str = OTHER):
    """40 kernels of `unit_us` inside an optimizer's step, in five steps; half of them of another name."""
    return only_place(
        draw(
            kernels=" " + "ef" * 20 + "G" * 20,
            host=["l" * 41, "w" * 41],
            kernel_names={"e": one, "f": other},
            legend={"w": ("ranges", optimizer)},
            repeat=5,
            unit_us=unit_us,
            gpu=gpu,
        )
    )


@pytest.mark.parametrize(
    ("optimizer", "low", "likely", "high"),
    [
        ("Optimizer.step#AdamW.step", 7 / 14, 7 / 20, 7 / 23),
        ("Optimizer.step#MyAdam.step", 7 / 14, 7 / 20, 7 / 23),
        ("Optimizer.step#SGD.step", 5 / 5, 5 / 8, 5 / 11),
        *[(f"Optimizer.step#{name}.step", 1, 1, 1) for name in ("NAdam", "RAdam", "Adamax")],  # torch has none of them
        ("Optimizer.step#Lion.step", 1, 1, 1),  # nothing but launches is saved where there is no fused one
        ("optimizer_step", 5 / 5, 5 / 8, 5 / 11),  # fewer than five different kernels are no Adam's
    ],
)
def test_as_many_passes_are_left_as_the_fused_implementation_makes(optimizer, low, likely, high):
    of = place(optimizer)
    rows = of.kernels.name.equals(ELEMENTWISE, OTHER)
    for case, left in (("low", low), ("likely", likely), ("high", high)):
        found = fused_update(of, rows, case, 2_000, 10_000)
        assert found.ns / of.units == pytest.approx(40 * 48_000 * left + found.launches * 2_000, rel=0.05)


def test_a_large_model_is_updated_in_many_launches():
    """40 kernels of 50 ms on a GPU of 2,039 GB/s pass over 2 s · 2,039e9 ÷ 4 numbers, 20 times over each: 51e9 of them."""
    of = place("Optimizer.step#AdamW.step", unit_us=50_000, gpu="NVIDIA A100-SXM4-80GB")
    found = fused_update(of, of.kernels.name.equals(ELEMENTWISE, OTHER), "likely", 2_000, 10_000)
    assert found.launches == pytest.approx(2 * 2039e9 / 4 / 20 / (320 * 65536), rel=0.06)


def test_of_kernels_that_may_be_start_and_end_alone_nothing_is_left_at_the_most():
    of = place("Optimizer.step#AdamW.step", unit_us=5)
    found = fused_update(of, of.kernels.name.equals(ELEMENTWISE, OTHER), "high", 2_000, 10_000)
    assert found.ns / of.units == pytest.approx(found.launches * 2_000)


@pytest.mark.parametrize("case", ["low", "likely", "high"])
@pytest.mark.parametrize(
    ("optimizer", "kernel"),
    [
        ("Optimizer.step#SGD.step", ELEMENTWISE),
        ("Optimizer.step#MyAdam.step", "my_adam"),
        ("optimizer_step", ELEMENTWISE),
    ],
)
def test_of_one_kernel_a_tensor_only_launches_are_saved(optimizer, kernel, case):
    """SGD without momentum, or an update that a library wrote as one kernel."""
    of = place(optimizer, one=kernel, other=kernel)
    found = fused_update(of, of.kernels.name.equals(kernel), case, 2_000, 10_000)
    assert found.launches == 2  # 40 tensors, at most 36 in each
    assert found.ns / of.units == pytest.approx(40 * 48_000 + 2 * 2_000)


def test_where_the_names_of_torchs_kernels_were_shortened_an_adam_has_as_many_passes_as_ever():
    of = place("Optimizer.step#AdamW.step", other=ELEMENTWISE)
    found = fused_update(of, of.kernels.name.equals(ELEMENTWISE), "likely", 2_000, 10_000)
    assert found.ns / of.units == pytest.approx(40 * 48_000 * 7 / 20 + found.launches * 2_000)

"""Which kernels update the parameters?"""

from __future__ import annotations

import pytest
from builders import draw, only_place

from perfdoctor.metrics.kernels.optimizer import in_optimizer, is_fused


def test_kernels_launched_inside_the_optimizers_step_are_its_own():
    place = only_place(
        draw(
            kernels="  # + # + # +",
            host=["l l l l l l  ",
                  "    uuuuu    "],
        )
    )  # fmt: skip
    assert in_optimizer(place).tolist() == [False, False, True, True, True, False]


def test_the_moment_of_the_launch_counts_and_not_that_of_the_kernel():
    place = only_place(draw(kernels="        # +", host=["l   l", "uuu  "]))
    assert in_optimizer(place).tolist() == [True, False]


@pytest.mark.parametrize(
    "name", ["Optimizer.step#SGD.step", "optimizer", "optimizer_step", "Optimizer.update", "## optimizer ##"]
)
@pytest.mark.parametrize("signal", ["ranges", "ops"])
def test_marks_of_the_optimizer_are_known_in_both_signals(name, signal):
    place = only_place(draw(kernels="#", host=["l", "z"], legend={"z": (signal, name)}))
    assert in_optimizer(place).tolist() == [True]


@pytest.mark.parametrize("name", ["Optimizer.zero_grad#SGD.zero_grad", "optimizer state loading", "non_optimizer_part"])
def test_other_marks_are_not_the_optimizers_step(name):
    place = only_place(draw(kernels="#", host=["l", "z"], legend={"z": ("ranges", name)}))
    assert in_optimizer(place).tolist() == [False]


def test_without_calls_or_marks_no_kernel_is_known_to_be_an_update():
    assert in_optimizer(only_place(draw(kernels="##", host="u"))).tolist() == [False]
    assert in_optimizer(only_place(draw(kernels="##", host="l"))).tolist() == [False]


@pytest.mark.parametrize(("char", "fused"), [("M", True), ("e", False)])
def test_one_launch_that_updates_many_tensors_is_fused(char, fused):
    assert is_fused(only_place(draw(kernels=char))).tolist() == [fused]

"""Does each measured launch stand for the kernels that it is one of, and for no others?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import frame, only_place
from ncu_builders import MS, profiles, steps, with_ncu

from perfdoctor.metrics.kernels.profiles import measured
from perfdoctor.model.profile_matches import is_same_gpu, matched
from perfdoctor.model.timeline import UNKNOWN, Device

ADD = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::AddFunctor<float>>(int, T2, T3)"
ADD_KINETO = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int, at::native::AddFunctor<float>)"
EXP = "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda(at::Iterator&)::{lambda()#1}>(int)"
SOFTMAX = "void softmax_warp_forward<float, float, 10, false>(float*)"


def kernels(*rows: tuple):
    """(name, blocks, threads) each, one behind the other."""
    return frame("kernels", [
        {"name": name, "blocks": blocks, "threads_per_block": threads, "start_ns": 10 * at, "end_ns": 10 * at + 5}
        for at, (name, blocks, threads) in enumerate(rows)
    ])  # fmt: skip


def launches(*rows: tuple):
    return profiles(*({"name": name, "blocks": blocks, "threads_per_block": threads} for name, blocks, threads in rows))


def stand_ins(kernel_rows, profile_rows, steps: int = 0) -> list[list[int]]:
    """For each kernel the launches that stand for it."""
    sets, of = matched(kernels(*kernel_rows), launches(*profile_rows), steps)
    return [sets[number].tolist() if number != UNKNOWN else [] for number in of.tolist()]


def test_a_launch_stands_for_the_kernels_with_its_name_and_size():
    rows = [
        (ADD_KINETO, 64, 128),
        (SOFTMAX, 64, 128),
        (ADD_KINETO, 32, 128),
        (ADD_KINETO, 64, 256),
        (ADD_KINETO, 64, 128),
    ]
    assert stand_ins(rows, [(ADD, 64, 128)]) == [[0], [], [], [], [0]]


def test_another_functor_of_the_same_function_is_another_kernel():
    assert stand_ins([(EXP, 64, 128), (ADD_KINETO, 64, 128)], [(ADD, 64, 128)]) == [[], [0]]
    assert stand_ins([(EXP, 64, 128)], [(ADD, 64, 128)]) == [[]]


def test_a_bare_name_stands_for_the_only_kernel_of_that_function_and_size():
    bare = [("vectorized_elementwise_kernel", 64, 128)]
    assert stand_ins([(EXP, 64, 128), (EXP, 32, 128)], bare) == [[0], []]
    assert stand_ins([(EXP, 64, 128), (ADD, 64, 128)], bare) == [[], []]  # of which of them?


def test_without_sizes_the_name_decides():
    assert stand_ins([(SOFTMAX, 64, 128), (SOFTMAX, 32, 128)], [(SOFTMAX, UNKNOWN, UNKNOWN)]) == [[0], [0]]
    assert stand_ins([(SOFTMAX, UNKNOWN, UNKNOWN)], [(SOFTMAX, 64, 128), (SOFTMAX, 32, 128)]) == [[0, 1]]


def test_as_many_launches_as_a_step_has_kernels_stand_for_them_one_by_one():
    both = [(SOFTMAX, 64, 128), (SOFTMAX, 64, 128)]
    assert stand_ins(both * 3, both, steps=3) == [[0], [1]] * 3
    assert stand_ins(both * 3, both) == [[0, 1]] * 6  # no steps: which is which?
    assert stand_ins(both * 3, [*both, both[0]], steps=3) == [[0, 1, 2]] * 6


def test_a_cuda_graph_is_no_kernel():
    graph = frame(
        "kernels",
        [{"name": SOFTMAX, "blocks": 64, "threads_per_block": 128, "start_ns": 0, "end_ns": 5, "is_graph": True}],
    )
    assert matched(graph, launches((SOFTMAX, 64, 128)))[1].tolist() == [UNKNOWN]


@pytest.mark.parametrize("name", ["</script>[/]", "", "((((", "<<<", "a" * 100_000])
def test_any_name_can_be_joined(name):
    assert stand_ins([(name, 1, 1), (SOFTMAX, 1, 1)], [(name, 1, 1)]) == [[0], []]


def test_nothing_joins_nothing():
    assert stand_ins([], [(SOFTMAX, 1, 1)]) == []
    assert stand_ins([(SOFTMAX, 1, 1)], []) == [[]]


def test_numbers_are_means_weighted_by_time_and_unknown_stays_unknown():
    """0.2 for 1 µs and 0.8 for 3 µs: 0.65; a launch that was not measured has no say."""
    drawn = with_ncu(
        steps({"name": SOFTMAX, "ns": MS}, {"name": "other", "ns": MS}),
        [
            {"name": SOFTMAX, "sm_share": 0.2, "memory_share": 0.1, "gpu_time_ns": 1000, "stall": "wait"},
            {"name": SOFTMAX, "sm_share": 0.8, "memory_share": 0.5, "gpu_time_ns": 3000, "stall": "barrier"},
            {"name": SOFTMAX, "memory_share": 0.9, "gpu_time_ns": 4000, "stall": "long scoreboard"},
        ],
    )
    found = measured(only_place(drawn))
    is_softmax = found.rows.name.equals(SOFTMAX)
    assert found.known.tolist() == is_softmax.tolist()
    assert found.number("sm_share")[is_softmax] == pytest.approx([0.65] * is_softmax.sum())
    assert found.number("memory_share")[is_softmax][0] == pytest.approx((0.1 * 1 + 0.5 * 3 + 0.9 * 4) / 8)
    assert np.isnan(found.number("sm_share")[~is_softmax]).all()
    assert np.isnan(found.number("tensor_share")).all()
    assert found.word("stall", int(np.flatnonzero(is_softmax)[0])) == "long scoreboard"


@pytest.mark.parametrize(
    ("sm", "memory", "dram", "busiest"),
    [(0.3, 0.5, 0.4, 0.5), (0.6, 0.5, 0.4, 0.6), (0.3, float("nan"), 0.4, 0.4), (1.2, 0.1, 0.1, 1.0)],
)
def test_the_busiest_unit_is_that_of_both_sides(sm, memory, dram, busiest):
    row = {"sm_share": sm, "memory_share": memory, "dram_share": dram}
    found = measured(only_place(with_ncu(steps({"ns": MS}), [row])))
    assert found.busiest_share[0] == pytest.approx(busiest)


@pytest.mark.parametrize("row", [{"sm_share": 0.3}, {"memory_share": 0.3}, {"dram_share": 0.3}, {}])
def test_with_one_side_not_measured_nobody_knows_how_far_it_is(row):
    assert np.isnan(measured(only_place(with_ncu(steps({"ns": MS}), [row]))).busiest_share).all()


def test_the_largest_estimate_of_the_whole_kernel_counts():
    given = [
        {"launch": 0, "name": "A", "speedup_share": 0.2}, {"launch": 0, "name": "B", "speedup_share": 0.4},
        {"launch": 0, "name": "C", "speedup_share": 0.9, "is_global": False}, {"launch": 1, "name": "B"},
    ]  # fmt: skip
    rows = [{"name": "some_kernel"}, {"name": "other"}]
    found = measured(only_place(with_ncu(steps({"ns": MS}, {"ns": MS, "name": "other"}), rows, given)))
    own = found.rows.name.equals("some_kernel")
    assert set(found.estimated_share[own]) == {0.4}
    assert np.isnan(found.estimated_share[~own]).all()
    assert set(found.estimated_by("A")[own]) == {0.2}
    assert np.isnan(found.estimated_by("C")).all()


@pytest.mark.parametrize(
    ("device", "profile", "used"),
    [
        (Device(0, 0, "NVIDIA H100 80GB HBM3"), {"gpu": "NVIDIA H100 80GB HBM3"}, True),
        (Device(0, 0, "NVIDIA H100 80GB HBM3"), {"gpu": "Tesla T4"}, False),
        (Device(0, 0, "Tesla T4"), {"gpu": "T4"}, True),
        (Device(0, 0, "", compute_capability=(9, 0)), {"compute_capability": 90}, True),
        (Device(0, 0, "", compute_capability=(9, 0)), {"compute_capability": 75}, False),
        (Device(0, 0, ""), {"compute_capability": 75, "gpu": "Tesla T4"}, True),
        (None, {"compute_capability": 75, "gpu": "Tesla T4"}, True),
    ],
)
def test_a_launch_on_another_kind_of_gpu_stands_for_nothing(device, profile, used):
    found = measured(only_place(with_ncu(steps({"ns": MS}, device=device), [profile])))
    assert found.known.all() == used
    assert found.known.any() == used


def test_gpus_are_the_same_by_what_vendors_put_around_their_names():
    assert is_same_gpu("NVIDIA GH200 480GB", "GH200 480GB")
    assert not is_same_gpu("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB")

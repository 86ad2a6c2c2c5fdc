"""FLOP of one op by the shapes of its inputs, against numbers by hand; what is not recorded is not counted."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfdoctor.metrics.work.flops import OpFlop, is_counted, work_of_op

BF16, FP8, FLOAT = "c10::BFloat16", "c10::Float8_e4m3fn", "float"


def work(op: str, shapes: list, types: list | str = BF16, values: list | None = None) -> OpFlop | None:
    kinds = [types] * len(shapes) if isinstance(types, str) else types
    given = json.dumps(values) if values is not None else ""
    return work_of_op(op, json.dumps(shapes), json.dumps(kinds), given)


@pytest.mark.parametrize(
    ("op", "shapes", "flop", "numbers"),
    [
        ("aten::mm", [[3, 5], [5, 7]], 2 * 3 * 5 * 7, 15 + 35 + 21),
        ("aten::mm", [[3, 5], [5, 7], [3, 7]], 2 * 3 * 5 * 7, 15 + 35 + 21),  # out= is no factor
        ("aten::addmm", [[7], [3, 5], [5, 7], [], []], 2 * 3 * 5 * 7, 15 + 35 + 21),
        ("aten::bmm", [[4, 3, 5], [4, 5, 7]], 2 * 4 * 3 * 5 * 7, 4 * (15 + 35 + 21)),
        ("aten::baddbmm", [[4, 3, 7], [4, 3, 5], [4, 5, 7], [], []], 2 * 4 * 3 * 5 * 7, 4 * (15 + 35 + 21)),
        ("aten::mm", [[3, 0], [0, 7]], 0, 21),
        # 11 rows in groups, each group with one of 4 matrices of 5 × 7
        ("aten::_grouped_mm", [[11, 5], [4, 5, 7], [4]], 2 * 11 * 5 * 7, 55 + 140 + 77),
        # 3 × 11 by 11 × 7, cut along what is summed over: as many products, and a result for each group
        ("aten::_grouped_mm", [[3, 11], [11, 7], [4]], 2 * 3 * 11 * 7, 33 + 77),
        ("aten::_grouped_mm", [[4, 3, 5], [5, 11], [4]], 2 * 3 * 5 * 11, 60 + 55 + 33),
    ],
)
def test_a_product_is_two_flop_for_each_pair_of_numbers(op, shapes, flop, numbers):
    factors = [np.empty(shape) for shape in shapes["add" in op :][:2]]
    results = None if "grouped" in op else np.matmul(*factors).size
    assert work(op, shapes) == OpFlop(flop, flop, flop, 2 * numbers, "bf16", results)


def test_types_tell_bytes_and_peaks():
    assert work("aten::_scaled_mm", [[32, 64], [64, 16], [], []], FP8) == OpFlop(
        65536, 65536, 65536, 2048 + 1024 + 512, "fp8", 32 * 16
    )
    assert work("aten::_int_mm", [[32, 64], [64, 16]], "signed char").data_type == "int8"
    assert work("aten::mm", [[2, 2], [2, 2]], "double").moved_bytes == 12 * 8
    unknown = work_of_op("aten::mm", "[[2, 3], [3, 4]]", "", "")  # from an old recording, or from nsys
    assert (unknown.flop, unknown.moved_bytes, unknown.data_type) == (48, None, "")
    # Two numbers of 4 bits in each element: 64 is 128 in truth.
    packed = work("aten::_scaled_mm", [[32, 64], [64, 16]], "c10::Float4_e2m1fn_x2")
    assert (packed.flop, packed.data_type) == (2 * 32 * 128 * 16, "fp4")


@pytest.mark.parametrize(
    ("op", "shapes", "types"),
    [
        ("aten::mm", [[3, 5], [6, 7]], BF16),  # do not fit
        ("aten::mm", [[3, 5]], BF16),
        ("aten::mm", [], BF16),
        ("aten::mm", [[], []], BF16),
        ("aten::mm", [[3, 5], [5, 7]], "c10::complex<float>"),  # other work
        ("aten::bmm", [[4, 3, 5], [2, 5, 7]], BF16),
        ("aten::mm", [[[3, 5]], [5, 7]], BF16),
        ("aten::mm", [[3, -5], [-5, 7]], BF16),
        ("aten::mm", [[3, "5"], [5, 7]], BF16),
        ("aten::_grouped_mm", [[11, 5], [4, 6, 7], [4]], BF16),
    ],
)
def test_what_does_not_fit_together_is_not_counted(op, shapes, types):
    assert work(op, shapes, types) is None


@pytest.mark.parametrize("text", ["", "{", "[[", "7", '{"a": 1}', "[" * 5000, "null"])
def test_text_that_is_no_list_of_shapes_tells_nothing(text):
    for op in ("aten::mm", "aten::convolution", "aten::_scaled_dot_product_flash_attention"):
        assert work_of_op(op, text, text, text) is None


@pytest.mark.parametrize("op", ["aten::linear", "aten::matmul", "aten::conv2d", "aten::add", "mm", "ProfilerStep#3"])
def test_ops_that_only_call_others_are_not_counted_beside_them(op):
    assert not is_counted(op)


CONV = [[2, 8, 16, 16], [24, 4, 3, 5], [24], [], [], [], [], [], []]


def convolution(**other):
    settings = {"stride": "[2, 1]", "padding": "[1, 2]", "dilation": "[1, 2]", "transposed": "False",
                "more": "[0, 0]", "groups": "2", **other}  # fmt: skip
    return ["", "", "", *settings.values()]


def test_a_convolution_lays_its_weight_at_each_place_of_the_result():
    """Side 1: (16 + 2 − 2 − 1) // 2 + 1 = 8; side 2: (16 + 4 − 8 − 1) // 1 + 1 = 12."""
    flop = 2 * 2 * (24 * 4 * 3 * 5) * 8 * 12
    moved = 2 * (2 * 8 * 16 * 16 + 24 * 4 * 3 * 5 + 2 * 24 * 8 * 12)
    assert work("aten::convolution", CONV, BF16, convolution()) == OpFlop(flop, flop, flop, moved, "bf16")
    gradients = [[2, 24, 8, 12], CONV[0], CONV[1], *[[]] * 8]
    settings = ["", "", "", "[24]", *convolution()[3:], "[True, True, True]"]
    assert work("aten::convolution_backward", gradients, BF16, settings).flop == 2 * flop
    settings[-1] = "[False, True, False]"
    assert work("aten::convolution_backward", gradients, BF16, settings).flop == flop


@pytest.mark.parametrize(
    "values",
    [
        None,  # older recordings
        convolution(stride=""),
        convolution(stride="[0, 0]"),
        convolution(stride="[2, 1, 1]"),
        convolution(stride="99999999999999999999"),
        convolution(transposed="maybe"),
        convolution(dilation="[30, 30]"),  # larger than the image
        convolution(groups=""),
    ],
)
def test_a_convolution_whose_places_are_not_known_is_not_counted(values):
    assert work("aten::convolution", CONV, BF16, values) is None


Q, K = [2, 8, 128, 64], [2, 2, 96, 64]
FLASH = "aten::_scaled_dot_product_flash_attention"


@pytest.mark.parametrize(("causal", "pairs"), [("False", 128 * 96), ("True", 96 * 97 // 2 + 32 * 96), ("", None)])
def test_attention_counts_all_pairs_and_needs_the_unmasked_ones(causal, pairs):
    """8 heads of queries share 2 of keys; the n-th query sees n keys, and never more than there are."""
    assert (pairs or 128 * 96) == sum(min(n, 96) if causal == "True" else 96 for n in range(1, 129))
    found = work(FLASH, [Q, K, K, [], [], []], BF16, ["", "", "", "0.", causal, "False"])
    head = 2 * 2 * 8 * (64 + 64)
    assert (found.flop, found.model_flop) == (head * 128 * 96, head * 128 * 96)
    assert found.needed_flop == (None if pairs is None else head * pairs)
    assert found.moved_bytes == 2 * (2 * 8 * 128 * 64 * 2 + 2 * 2 * 2 * 96 * 64)


def test_the_gradient_of_attention_has_five_products_of_which_the_model_asks_for_four():
    found = work(f"{FLASH}_backward", [Q, Q, K, K, Q, [2, 8, 128], [], [], [], [], [], []], BF16, [""] * 11 + ["False"])
    one = 2 * 2 * 8 * 128 * 96 * 64
    assert (found.flop, found.model_flop, found.needed_flop) == (5 * one, 4 * one, 5 * one)


def flash_package(causal="True", windows=("-1", "-1")):
    shapes = [[2, 96, 8, 64], [2, 128, 8, 64], [2, 128, 8, 64], *[[]] * 8]
    values = ["", "", "", "0.", "0.125", causal, *windows, "0.", "", "False"]
    return work("flash_attn::_flash_attn_forward", shapes, BF16, values)


def test_the_flash_attention_package_ties_its_mask_at_the_end():
    found = flash_package()
    assert found.flop == 2 * 2 * 8 * 96 * 128 * 128
    assert found.needed_flop == 2 * 2 * 8 * 128 * sum(128 - 96 + n for n in range(1, 97))


def test_windows_and_packed_sequences_are_not_counted():
    assert flash_package(windows=("127", "0")) is None
    assert flash_package(windows=("", "")) is None
    packed = [[256, 8, 64], [256, 8, 64], [256, 8, 64], [5], [5], [], [], [], []]
    assert work("aten::_flash_attention_forward", packed, BF16, [""] * 8 + ["True"]) is None
    dense = [[2, 128, 8, 64]] * 3 + [[]] * 6
    assert work("aten::_flash_attention_forward", dense, BF16, [""] * 8 + ["False"]).flop == 4 * 2 * 8 * 128 * 128 * 64
    with_lengths = [*dense[:3], [5], [5], *dense[5:]]
    assert work("aten::_flash_attention_forward", with_lengths, BF16, [""] * 8 + ["False"]) is None


@pytest.mark.parametrize(
    "shapes",
    [
        [Q, K],
        [Q, [2, 3, 96, 64], [2, 3, 96, 64]],  # three heads of keys for eight
        [Q, K, [2, 2, 95, 64]],
        [Q, [2, 2, 96, 32], K],
        [Q, [2, 0, 96, 64], [2, 0, 96, 64]],
        [Q[1:], K[1:], K[1:]],
    ],
)
def test_attention_of_shapes_that_do_not_belong_together_is_not_counted(shapes):
    assert work(FLASH, shapes, BF16, ["", "", "", "0.", "False"]) is None

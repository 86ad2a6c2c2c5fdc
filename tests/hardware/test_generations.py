"""Names as drivers write them, and what GPUs of their generations have."""

from __future__ import annotations

import pytest

from perfdoctor.hardware.generations import Generation, generation, vendor


@pytest.mark.parametrize(
    ("name", "capability", "tensor_cores"),
    [
        ("GeForce GTX 1080 Ti", (6, 1), False),
        ("Tesla P100-PCIE-16GB", (6, 0), False),
        ("NVIDIA GeForce GTX 1660 SUPER", (7, 5), False),
        ("NVIDIA T1000", (7, 5), False),
        ("Tesla V100-SXM2-32GB", (7, 0), True),
        ("Tesla T4", (7, 5), True),
        ("NVIDIA TITAN RTX", (7, 5), True),
        ("Quadro RTX 4000", (7, 5), True),
        ("NVIDIA RTX 2000 Ada Generation", (8, 9), True),
        ("NVIDIA RTX 5000 Ada Generation", (8, 9), True),
        ("NVIDIA RTX A4000", (8, 6), True),
        ("NVIDIA A10G", (8, 6), True),
        ("NVIDIA A100-SXM4-40GB", (8, 0), True),
        ("NVIDIA GeForce RTX 4090", (8, 9), True),
        ("NVIDIA H100 80GB HBM3", (9, 0), True),
        ("NVIDIA B200", (10, 0), True),
    ],
)
def test_a_name_says_the_generation(name, capability, tensor_cores):
    found = generation(name)
    assert (found.capability, found.tensor_cores, found.vendor) == (capability, tensor_cores, "NVIDIA")
    assert found.is_before_ampere == (capability < (8, 0))


def test_the_recorded_capability_counts_more_than_the_name():
    assert generation("NVIDIA Something New", (9, 9)) == Generation((9, 9), tensor_cores=True)
    assert generation("NVIDIA Something Old", (6, 1)) == Generation((6, 1), tensor_cores=False)
    assert generation("NVIDIA GeForce GTX 1650", (7, 5)) == Generation((7, 5), tensor_cores=False)


@pytest.mark.parametrize("name", ["", "AMD Radeon Pro W6800", "Apple M2", "NVIDIA Something New"])
def test_of_others_nothing_is_known(name):
    assert generation(name) is None


@pytest.mark.parametrize(
    ("name", "whose"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA"), ("Tesla V100-DGXS-32GB", "NVIDIA"), ("AMD Instinct MI300X", "AMD"),
        ("AMD Radeon Pro W6800", "AMD"), ("gfx90a:sramecc+", "AMD"), ("Intel(R) Arc(TM) A770", "Intel"), ("Apple M2", "Apple"),
        ("", ""), ("a GPU", ""),
    ],
)  # fmt: skip
def test_a_name_says_whose_gpu_it_is(name, whose):
    assert vendor(name) == whose


def test_what_rocm_writes_as_capability_says_nothing_of_nvidias_generations():
    known = generation("AMD Instinct MI210", (9, 0))
    assert (known.vendor, known.has("bf16"), known.has("fp8"), known.is_before_ampere) == ("AMD", True, False, False)
    assert generation("AMD Radeon Pro W6800", (10, 3)) is None

"""The user's value counts more than a measured rate, that more than the data sheet; shares stay the data sheet's."""

from __future__ import annotations

import numpy as np
import pytest
from builders import SGEMM, draw, only_place, timeline
from measured_builders import H100, matmuls, measurement, with_rates
from msgspec.structs import replace

from perfdoctor.metrics.work.device_peaks import attained, measured, peaks
from perfdoctor.metrics.work.half_precision import half_speedup
from perfdoctor.metrics.work.roofline import least_ns
from perfdoctor.model.timeline import Device, UserValues

RATES = (*matmuls(bf16={512: 30e12, 8192: 712e12}), measurement("memory_copy", 3e12))


def drawn(gpu: str = H100, **user: object):
    picture = with_rates(draw(kernels="####", gpu=gpu), *RATES)
    return only_place(replace(picture, user_values=UserValues(**user)))


def test_what_was_reached_stands_beside_the_data_sheet():
    place = drawn()
    assert peaks(place).matmul_flop_per_second("bf16") == pytest.approx(989.4e12)
    assert attained(place).matmul_flop_per_second("bf16") == 712e12
    assert attained(place).memory_bytes_per_second == 3e12
    assert attained(place).matmul_flop_per_second("fp16") == pytest.approx(989.4e12), "not measured: the data sheet's"


def test_the_users_value_counts_more():
    place = drawn(peaks={"bf16": 800e12})
    assert attained(place).matmul_flop_per_second("bf16") == peaks(place).matmul_flop_per_second("bf16") == 800e12
    assert attained(place).memory_bytes_per_second == 3e12


def test_rates_of_another_gpu_are_not_taken():
    assert measured(drawn("NVIDIA H100 PCIe")) is None
    assert measured(drawn("")) is None
    assert measured(drawn(gpu=H100, peaks={})) is not None
    user_says = only_place(
        replace(with_rates(draw(kernels="####", gpu=H100), *RATES), user_values=UserValues(gpu="NVIDIA A100 80GB PCIe"))
    )
    assert measured(user_says) is None


def test_a_gpu_that_the_table_lacks_has_only_what_was_measured():
    place = only_place(with_rates(draw(kernels="####", gpu="NVIDIA Z1"), *RATES, device="nvidia z1 "))
    assert peaks(place) is None
    assert dict(attained(place).flop_per_second) == {"bf16": 712e12}


# --- a product of known size ---


def product(size: int, *measurements, peaks=None):
    """One fp32 product of `size`³, of 10 ms."""
    common = {"correlation": 1, "process": 1}
    shapes = {"input_shapes": f"[[{size}, {size}], [{size}, {size}]]", "input_types": '["float", "float"]'}
    recorded = timeline(
        kernels=[{**common, "name": SGEMM, "start_ns": 1_000, "end_ns": 10_001_000}],
        calls=[{**common, "name": "cudaLaunchKernel", "start_ns": 100, "end_ns": 200}],
        ops=[{**shapes, "name": "aten::mm", "process": 1, "start_ns": 50, "end_ns": 300}],
        devices=[Device(0, 0, H100)],
    )
    measured = with_rates(recorded, *measurements) if measurements else recorded
    return only_place(replace(measured, user_values=UserValues(peaks=peaks or {})))


BOTH = matmuls(bf16={512: 40e12, 8192: 600e12}, fp16={512: 20e12, 8192: 640e12}, fp32={512: 20e12, 8192: 40e12})


@pytest.mark.parametrize(
    ("size", "ratio"), [(512, 2.0), (8192, 16.0), (2048, np.sqrt(2.0 * 16.0)), (64, 2.0), (16384, 16.0)]
)
def test_the_ratio_of_rates_is_that_of_the_size(size, ratio):
    """Between two sizes it changes evenly with the logarithm; beyond them it is the outermost."""
    assert half_speedup(product(size, *BOTH)).tolist() == pytest.approx([ratio])


def test_without_measurement_or_by_the_users_peaks_there_is_no_ratio():
    assert np.isnan(half_speedup(product(512))).all()
    assert np.isnan(half_speedup(product(512, *BOTH, peaks={"bf16": 900e12}))).all()
    assert np.isnan(half_speedup(product(512, *matmuls(bf16={512: 1e12}, fp32={2048: 1e12})))).all()


def test_the_least_time_goes_by_what_was_reached_and_at_best_by_the_data_sheet():
    place = product(8192, *BOTH)
    flop = 2 * 8192**3
    assert least_ns(place).tolist() == pytest.approx([flop / 40e12 * 1e9])
    assert least_ns(place, at_best=True).tolist() == pytest.approx([flop / 66.9e12 * 1e9], rel=1e-3)
    assert least_ns(product(8192)).tolist() == least_ns(product(8192), at_best=True).tolist()

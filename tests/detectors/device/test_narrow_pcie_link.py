"""narrow-pcie-link: a link with fewer lanes, or slower, than GPU and slot could."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary
from machine_builders import beside, samples

MS = 1_000_000
WHOLE = {"pcie_generation": 4.0, "pcie_width": 16.0, "max_pcie_generation": 4.0, "max_pcie_width": 16.0}


def linked(count: int = 5, **given):
    return samples(count, **{**WHOLE, **given})


def test_it_fires_on_a_link_with_half_of_its_lanes():
    finding = only_finding("narrow-pcie-link", beside(device_samples=linked(pcie_width=8.0)))
    assert "GPU 0 runs at generation 4 with 8 lanes under load, although it supports generation 4 with 16" in summary(
        finding
    )
    # 16 GT/s x 128/130 / 8 bits: 1.969 GB/s a lane
    assert finding.evidence[0].value == pytest.approx(16e9 * 128 / 130 / 8 * 8)
    assert finding.evidence[1].value == pytest.approx(16e9 * 128 / 130 / 8 * 16)


def copying(char: str = "h", rate: float = 15.0):
    """4 of 10 ms are copies alone, at so many GB/s."""
    drawn = draw(
        kernels="######    ", copies=" " * 6 + char * 4, launched_us_before=50, repeat=8, unit_us=1000,
        gigabytes_per_second=rate,
    )  # fmt: skip
    return beside(drawn, device_samples=linked(pcie_width=8.0))


def test_copies_wait_for_the_half_that_is_missing():
    """With all lanes, which GPU and slot have together, copies that fill the link would take half."""
    saving = only_finding("narrow-pcie-link", copying()).saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (
        0,
        pytest.approx(2 * MS, rel=0.01),
        pytest.approx(2 * MS, rel=0.01),
    )


def test_what_is_slower_than_even_the_narrow_link_has_another_cause():
    """8 lanes give 15.75 GB/s, of which 8 % are acknowledgements and 24 of 280 bytes headers."""
    link = 16e9 * 128 / 130 / 8 * 8 * (57.88 / 62.96) * (256 / 280)
    saving = only_finding("narrow-pcie-link", copying(rate=4.0)).saving_ns_per_step
    assert saving.likely == pytest.approx(2 * MS * 4e9 / link, rel=0.01)
    assert saving.high == pytest.approx(2 * MS, rel=0.01)


def test_copies_that_another_link_would_not_make_faster_do_not_count():
    small = copying(rate=0.4)  # 1.6 MB
    for drawn in (copying("H"), small):
        assert only_finding("narrow-pcie-link", drawn).saving_ns_per_step.high == 0


def test_it_fires_on_a_lower_generation_and_names_the_worst():
    rows = linked(pcie_generation=3.0) + linked(device=1, pcie_generation=1.0, pcie_width=8.0) + linked(device=2)
    finding = only_finding("narrow-pcie-link", beside(device_samples=rows))
    assert (finding.values["gpu"], finding.values["gpus"], finding.values["sampled"]) == (1, 2, 3)


def test_it_stays_silent_on_a_link_that_rests_while_its_gpu_is_idle():
    rows = linked(utilization_share=0.0, pcie_generation=1.0)
    assert findings("narrow-pcie-link", beside(device_samples=rows)) == []


def test_it_stays_silent_where_the_link_was_whole_at_any_time_under_load():
    rows = linked(5, pcie_generation=[1.0, 1.0, 1.0, 1.0, 4.0])
    assert findings("narrow-pcie-link", beside(device_samples=rows)) == []


@pytest.mark.parametrize("link", [{"pcie_width": 0.0}, {"pcie_generation": 99.0}, {"pcie_generation": 0.0}], ids=str)
def test_it_stays_silent_on_a_link_that_there_is_not(link):
    assert findings("narrow-pcie-link", beside(device_samples=linked(**link))) == []


def test_it_stays_silent_where_load_is_not_known():
    rows = linked(utilization_share=float("nan"), pcie_generation=1.0)
    assert findings("narrow-pcie-link", beside(device_samples=rows)) == []


def test_it_stays_silent_just_below_the_number_of_samples():
    assert findings("narrow-pcie-link", beside(device_samples=linked(2, pcie_width=8.0))) == []
    assert len(findings("narrow-pcie-link", beside(device_samples=linked(3, pcie_width=8.0)))) == 1

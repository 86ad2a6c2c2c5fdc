"""Where does a late rank compute longer: in which module, range or function?"""

from __future__ import annotations

import pytest
from builders import draw, only_finding, summary

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.work.longer_where import longer_kernels, longer_within
from perfdoctor.model.timeline import merge

LEGEND = {"a": ("ranges", "attention"), "m": ("ranges", "mlp"), "f": ("ranges", "forward")}


def rank(number: int, attention: int, mlp: int, *, signal: str = "ranges"):
    """A step with kernels of attention and others, launched inside of such ranges, then a collective."""
    unit = 20
    legend = {letter: (signal, name) for letter, (_, name) in LEGEND.items()}
    wide = attention + mlp
    return draw(
        kernels=" " + "G" * attention + "E" * mlp + " " * (2 * unit - wide),
        nccl=" " * (1 + wide) + "=" * (2 * unit - wide),
        host=["f" * wide, "a" * attention + "m" * mlp],
        legend=legend, kernel_names={"E": "mlp_kernel"}, repeat=6, rank=number, device=number, unit_us=1000,
        launched_us_before=50,
    )  # fmt: skip


def places(*ranks: tuple[int, int], **more: str):
    return prepare(merge([rank(number, *own, **more) for number, own in enumerate(ranks)])).places


@pytest.mark.parametrize("signal", ["ranges", "modules"])
def test_the_innermost_place_that_is_longer_is_named(signal):
    usual, other, late = places((5, 10), (5, 10), (15, 10), signal=signal)
    assert longer_within(late, [usual, other], 0.6) == "attention"


def test_a_device_that_is_slower_everywhere_has_no_place():
    usual, other, late = places((5, 10), (5, 10), (8, 16))
    assert longer_within(late, [usual, other], 0.6) == ""


def test_work_that_others_do_not_have_is_named_too():
    usual, other, late = places((0, 10), (0, 10), (12, 10))
    assert longer_within(late, [usual, other], 0.6) == "attention"


def test_without_others_nothing_is_longer():
    (late,) = places((5, 10))
    assert longer_within(late, [], 0.6) == ""
    assert longer_kernels(late, []) == ()


def test_the_kernels_that_are_longer_are_evidence():
    usual, other, late = places((5, 10), (5, 10), (5, 20))
    (table,) = longer_kernels(late, [usual, other])
    assert [row[0] for row in table.rows] == ["mlp_kernel"]
    assert table.rows[0][1:] == (20_000_000, 10_000_000)


def test_the_straggler_is_told_with_the_place():
    ranks = merge([rank(number, *own) for number, own in enumerate([(5, 10), (5, 10), (15, 10), (5, 10)])])
    finding = only_finding("rank-skew", ranks)
    assert finding.values["late_rank"] == 2
    assert finding.values["within"] == "attention"
    assert "most of it in `attention`" in summary(finding)

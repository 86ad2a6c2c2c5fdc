"""How many tokens do the experts of each rank compute, and what does moving them cost?"""

from __future__ import annotations

import pytest
from builders import draw, draw_steps, findings, only_finding, summary
from collective_builders import MS, described
from msgspec.structs import replace

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.experts import permutation, tokens_of_experts
from perfdoctor.model.timeline import Text, Timeline, merge

GROUPED = {"g": ("ops", "aten::_grouped_mm"), "i": ("ops", "aten::index_put_")}


def rank_with(number: int, tokens: int, matrices: str = "[4, 256, 512]") -> Timeline:
    """Compute inside a grouped product, then an exposed all-to-all whose bytes are not known."""
    drawn = draw_steps(
        kernels=" GGGGGGGGGGGGGGGGGGG          ",
        nccl="                    ==========",
        host=["gggggggggggggggggggg          "],
        legend=GROUPED, rank=number, device=number,
    )  # fmt: skip
    shapes = Text.of([f"[[{tokens}, 256], {matrices}, [4]]"] * len(drawn.ops))
    types = Text.of(['["c10::BFloat16", "c10::BFloat16", "int"]'] * len(drawn.ops))
    ops = drawn.ops.with_columns(input_shapes=shapes, input_types=types)
    return described(replace(drawn, frames={**drawn.frames, "ops": ops}), kind="all_to_all")


def job(*tokens: int, **more: str) -> Timeline:
    return merge([rank_with(number, own, **more) for number, own in enumerate(tokens)])


def test_the_rows_of_grouped_products_are_the_tokens_of_a_ranks_experts():
    loads = tokens_of_experts(prepare(job(1000, 3000)))
    assert loads is not None
    assert loads.ranks == (0, 1)
    assert set(loads.sizes[:, 0].tolist()) == {1000, 3000}
    assert loads.even[0] == 2000
    assert tokens_of_experts(prepare(job(1000))) is None
    assert tokens_of_experts(prepare(job(1000, 3000, matrices="[256, 512]"))) is None  # gradients of weights


def test_uneven_tokens_are_found_where_no_bytes_are_recorded():
    finding = only_finding("all-to-all-imbalance", job(1000, 1000, 1000, 5000))
    assert finding.situation == "tokens"
    assert finding.values["loaded_rank"] == 3
    assert finding.values["excess_percent"] == pytest.approx(150)  # 5,000 of a mean of 2,000
    assert "compute 150 % more tokens than those of the mean rank" in summary(finding)
    assert "all-to-alls of experts" in summary(finding)
    assert findings("all-to-all-imbalance", job(2000, 2000, 2000, 2000)) == []


def test_what_moves_tokens_is_evidence_only_where_there_are_experts():
    host = {"host": ["l", "i" * 4], "legend": GROUPED, "launched_us_before": 5}
    moves = draw(kernels=" ee#", nccl="    =", unit_us=1000, **host)
    experts = described(moves, kind="all_to_all", group_name="mesh_ep [0, 1]")
    (measure,) = permutation(prepare(experts))
    assert measure.value == 3 * MS
    assert permutation(prepare(described(moves, kind="all_reduce", group_name="mesh_dp [0, 1]"))) == ()

"""Is it known what each group of ranks is for, by its name where it has one, else by what it sends?"""

from __future__ import annotations

import pytest
from builders import draw
from collective_builders import described

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.parallelism import GroupUse, group_uses
from perfdoctor.views.pages import communication


def uses(groups, kinds, **host):
    drawn = draw(kernels="# " * len(kinds), nccl=" =" * len(kinds), **host)
    return group_uses(prepare(described(drawn, group_name=groups, kind=kinds)))


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        ("3 mesh_dp_shard_cp [0, 1]", "sharded"),
        ("mesh_dp_replicate [0, 4]", "hybrid"),
        ("mesh_tp [0, 1, 2, 3]", "tensor"),
        ("mesh_cp [0, 1]", "sequence"),
        ("mesh_pp [0, 4]", "pipeline"),
        ("mesh_ep [0, 1]", "expert"),
        ("mesh_dp [0, 1]", "data"),
        ("tp:0 [0, 1]", "tensor"),
        ("7 DATA_PARALLEL_GROUP_WITH_CP", "data"),
        ("8 TENSOR_MODEL_PARALLEL_GROUP", "tensor"),
        ("9 PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"),
        ("10 EXPERT_MODEL_PARALLEL_GROUP", "expert"),
        ("11 EXPERT_DATA_PARALLEL_GROUP", "data"),
        ("12 CONTEXT_PARALLEL_GROUP", "sequence"),
    ],
)
def test_a_name_says_what_a_group_is_for_whatever_it_sends(group, kind):
    assert uses([group], ["all_reduce"]) == {(group, ""): GroupUse(kind, by_name=True)}


def test_without_a_name_what_is_sent_says_it():
    found = uses(["0 [0, 1]", "0 [0, 1]", "1 [0, 2]"], ["all_gather", "reduce_scatter", "all_reduce"])
    assert {key[0]: use.kind for key, use in found.items()} == {"0 [0, 1]": "sharded", "1 [0, 2]": "hybrid"}
    assert [use.kind for use in uses(["1 [0, 2]"], ["all_reduce"]).values()] == ["data"]
    assert [use.kind for use in uses(["1 [0, 2]"], ["broadcast"]).values()] == [""]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("## sparse_data_dist ##", "embeddings"), ("MoELayer.forward", "expert"), ("aten::mm", "exchange")],
)
def test_an_all_to_all_is_known_by_what_runs_around_it(name, kind):
    host = {"host": ["l", "n"], "legend": {"n": ("ranges", name)}}
    assert [use.kind for use in uses(["0 [0, 1]"], ["all_to_all"], **host).values()] == [kind]


def test_recordings_without_groups_are_told_apart_by_kind():
    found = uses(["", ""], ["all_reduce", "all_to_all"])
    assert {key: use.kind for key, use in found.items()} == {("", "all_reduce"): "data", ("", "all_to_all"): "exchange"}


def test_the_page_shows_what_a_group_is_for_and_that_few_bytes_in_much_time_are_waiting():
    drawn = draw(kernels="# ", nccl=" ====", unit_us=100)
    rows = described(drawn, group_name="mesh_tp [0, 1]", kind="all_gather", bytes=64, group_size=2)
    (table,) = communication.view(prepare(rows), None)
    shown = {column.name: column.values[0] for column in table.columns}
    assert shown["parallelism"] == "tensor"
    assert shown["waiting"] == pytest.approx(300_000, rel=0.01)  # one step over the slowest network takes 100 µs


def test_sums_of_one_size_with_a_product_between_each_are_of_layers_where_ops_were_recorded():
    def kinds_of(drawn, sizes):
        rows = described(drawn, group_name="7 [0, 1]", kind="all_reduce", bytes=sizes, group_size=2)
        return [use.kind for use in group_uses(prepare(rows)).values()]

    def drawn(name, kernels="G " * 4):
        host = {"host": [" ", "n" * 9], "legend": {"n": ("ops", name)}, "launched_us_before": 5}
        return draw(kernels=" " + kernels, nccl="  =" + " =" * 3, **host)

    assert kinds_of(drawn("aten::mm"), 1 << 20) == ["tensor"]
    assert kinds_of(drawn("aten::mm"), [1 << 20, 2 << 20, 3 << 20, 4 << 20]) == ["data"]  # as gradients are
    assert kinds_of(drawn("torch::autograd::AccumulateGrad"), 1 << 20) == ["data"]
    assert kinds_of(drawn("Optimizer.step#Muon.step"), 1 << 20) == ["data"]
    assert kinds_of(drawn("aten::mm", "e " * 4), 1 << 20) == ["data"]
    assert kinds_of(draw(kernels="G " * 4, nccl=" =" * 4), 1 << 20) == ["data"]  # hooks would not be seen


def test_few_whole_numbers_are_part_of_the_exchange_that_they_announce():
    host = {"host": ["l", "n"], "legend": {"n": ("ranges", "MoELayer.forward")}}
    drawn = draw(kernels="# " * 2, nccl=" =" * 2, **host)
    kinds = ["all_gather", "all_to_all"]
    rows = described(drawn, group_name=["0 [0, 1]", "1 [0, 1]"], kind=kinds, data_type=["Long", "BFloat16"], bytes=64)
    assert [use.kind for use in group_uses(prepare(rows)).values()] == ["expert", "expert"]


def test_scattered_and_gathered_embeddings_are_no_sharded_parameters():
    host = {"host": ["l", "n"], "legend": {"n": ("ops", "fbgemm::permute_pooled_embs")}}
    found = uses(["", "", ""], ["all_to_all", "reduce_scatter", "all_gather"], **host)
    assert {use.kind for use in found.values()} == {"embeddings"}
    assert {use.kind for use in uses(["", ""], ["reduce_scatter", "all_gather"]).values()} == {"sharded"}


def test_messages_of_ring_attention_divide_a_sequence():
    host = {"host": ["l", "n"], "legend": {"n": ("functions", "ring_flash_attn.py(10): ring_flash_attn_forward")}}
    drawn = draw(kernels="# ", nccl=" =", **host)
    rows = described(drawn, group_name="0 [0, 1]", kind="send_recv", group_size=2)
    assert [use.kind for use in group_uses(prepare(rows)).values()] == ["sequence"]

"""Is it seen how a model was compiled and distributed, and does a finding's advice fit that?"""

from __future__ import annotations

import pytest
from builders import draw, timeline
from collective_builders import described

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.program import facts
from perfdoctor.vocabulary.rulebook import load_rules


def known(**picture):
    return facts(prepare(draw(repeat=3, **picture))) - {"gpu", "torch", "forward"}


def named(name: str, signal: str = "ops"):
    return {"host": ["l   ", "nnnn"], "legend": {"n": (signal, name)}}


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("## Call CompiledFxGraph f7p6gslkv3uw ##", "compiled"),
        ("Torch-Compiled Region: 0/0", "compiled"),
        ("DistributedDataParallel.forward", "ddp"),
        ("FSDP::pre_forward", "fsdp"),
        ("FullyShardedDataParallel.forward", "fsdp fsdp1"),
        ("torch/distributed/fsdp/_fully_shard/_fsdp_state.py(245): _pre_forward", "fsdp"),
        ("torch/distributed/fsdp/_runtime_utils.py(370): _pre_forward", "fsdp fsdp1"),
        ("DeepSpeedEngine.forward", "deepspeed"),
        ("megatron/core/distributed/distributed_data_parallel.py(300): forward", "megatron"),
        ("RedistributeBackward", "tensor-parallel"),
        ("Redistribute", ""),  # FSDP2's parameters are DTensors, too
    ],
)
def test_it_is_known_by_ranges_and_ops(name, fact):
    for signal in ("ops", "ranges"):
        assert known(kernels="####", **named(name, signal)) == set(fact.split())


def test_what_sends_is_known_by_its_marks():
    assert known(host=["oo==oo"], legend={"=": ("ranges", "gloo:all_reduce")}) == {"gloo", "gradients"}


def test_compiled_code_is_known_by_its_kernels_and_a_kernel_of_ones_own_is_not():
    assert known(kernels="####", kernel_names={"#": "triton_poi_fused_add_0"}) == {"compiled"}
    assert known(kernels="####", kernel_names={"#": "triton_my_softmax"}) == frozenset()


def test_a_graph_that_is_launched_is_known_by_the_call():
    assert known(kernels="@@@@", host=["@"]) == {"cuda-graphs"}


def test_without_ops_the_collectives_show_what_is_likely_and_with_them_only_names_do():
    assert known(kernels="### ", nccl="   =") == {"ddp", "gradients"}
    assert known(kernels="##  ", nccl="  ar") == {"fsdp", "gradients"}
    assert known(kernels="### ", nccl="   =", host=["l l ", "oooo"]) == {"gradients"}
    assert known(kernels="##  ", nccl="  ar", host=["l ll", "oooo"]) == {"gradients"}


@pytest.mark.parametrize(("types", "is_16_bit"), [(["BFloat16"] * 2, True), (["BFloat16", "Float"], False), (["BFloat16", ""], False)])  # fmt: skip
def test_gradients_of_16_bits_are_known_only_where_all_types_are(types, is_16_bit):
    rows = [{"start_ns": 1000 * n, "end_ns": 1000 * n + 500, "name": "ncclKernel", "data_type": data_type} for n, data_type in enumerate(types)]  # fmt: skip
    run = prepare(timeline(kernels=[{"start_ns": 0, "end_ns": 3000, "name": "k"}], collectives=rows))
    assert ("sends-16-bit" in facts(run)) is is_16_bit


def advice(name: str) -> str:
    """All code to paste that a report shows for a step that is launch-bound and waits for an all-reduce."""
    run = draw(
        kernels="## ## ## ##    ", nccl="           ====", repeat=6, unit_us=10,
        host=["l  l  l  l l   ", "nnnnnnnnnnnnnnn"], legend={"n": ("ops", name)},
    )  # fmt: skip
    found = diagnose(run, list(load_rules().values())).findings
    assert {"launch-bound", "exposed-communication"} <= {each.rule for each in found}
    return "\n".join(fix.how for each in found for fix in each.fixes)


def test_advice_fits_the_program():
    plain, compiled, ddp = (advice(name) for name in ("aten::add", "Torch-Compiled Region: 0/0", "DistributedDataParallel.forward"))  # fmt: skip
    assert "torch.compile(" in plain
    assert "torch.compile(" not in compiled
    assert "triton.cudagraphs" in compiled
    assert "bucket_cap_mb" in ddp
    assert "bucket_cap_mb" not in plain
    assert "register_post_accumulate_grad_hook" in plain
    assert not any("FSDP" in text or "fully_shard" in text for text in (plain, compiled, ddp))


def test_who_has_a_gpu_and_who_serves_is_known():
    assert facts(prepare(draw(kernels="#", host=["l"]))) == {"gpu", "torch"}
    assert facts(prepare(draw(host=["oooo"], repeat=3))) == {"torch", "forward"}
    legend = {"v": ("ops", "vllm::unified_attention"), "s": ("ranges", "step[DECODE bs=32]")}
    served = {name: facts(prepare(draw(kernels="#", host=["l" + name], legend=legend))) for name in "vs"}
    assert served == {
        "v": {"forward", "gpu", "inference", "torch", "vllm"},
        "s": {"gpu", "inference", "sglang", "torch"},
    }


@pytest.mark.parametrize(("exchanged_ns", "exchanges"), [(600, True), (400, False)])
def test_communication_is_an_exchange_where_most_of_what_is_exposed_is_sent_from_rank_to_rank(exchanged_ns, exchanges):
    """What runs beside compute counts for nothing."""
    rows = [
        {"start_ns": 0, "end_ns": 3000, "name": "ncclKernel", "kind": "all_reduce"},
        {"start_ns": 4000, "end_ns": 4000 + exchanged_ns, "name": "ncclKernel", "kind": "send_recv"},
        {"start_ns": 5000, "end_ns": 5500, "name": "ncclKernel", "kind": "all_reduce"},
    ]
    kernels = [{"start_ns": 0, "end_ns": 3000, "name": "k"}, {"start_ns": 7000, "end_ns": 8000, "name": "k"}]
    assert ("exchanges" in facts(prepare(timeline(kernels=kernels, collectives=rows)))) is exchanges


@pytest.mark.parametrize(
    ("op", "types", "size", "sums"),
    [
        ("aten::add", ["Float"], 1 << 20, True),
        ("aten::add", ["Float"], -1, True),
        ("aten::add", ["Float"], 4, False),  # a loss, or a metric, of a forward pass
        ("MmBackward0", ["Float"], 4, True),
        ("MmBackward0", ["Long", "bool"], 1 << 20, False),
    ],
)
def test_sums_of_numbers_may_be_gradients_unless_they_are_small_and_nothing_trains(op, types, size, sums):
    drawn = draw(
        kernels="#" + "  " * len(types), nccl=" " + " =" * len(types), host=["l ll"[: 1 + len(types)], "nnnn"],
        legend={"n": ("ops", op)},
    )  # fmt: skip
    run = prepare(described(drawn, kind="all_reduce", data_type=types, bytes=size))
    assert ("gradients" in facts(run)) is sums


def test_small_messages_are_no_exchange_and_no_reason_against_one():
    rows = [
        {"start_ns": 4000, "end_ns": 4400, "name": "ncclKernel", "kind": "all_to_all", "bytes": 1 << 20},
        {"start_ns": 5000, "end_ns": 5900, "name": "ncclKernel", "kind": "all_gather", "bytes": 64},
    ]
    kernels = [{"start_ns": 0, "end_ns": 3000, "name": "k"}, {"start_ns": 7000, "end_ns": 8000, "name": "k"}]
    assert "exchanges" in facts(prepare(timeline(kernels=kernels, collectives=rows)))

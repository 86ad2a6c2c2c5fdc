"""Is a recorded program a training, inference, or not known to be either?"""

from __future__ import annotations

import pytest
from builders import GEMM, draw
from tables import of_each

from perfdoctor.metrics.program import KindOfWork, kind_of_work
from perfdoctor.vocabulary.names import serving

LAYERS = {"L": ("ops", "aten::linear"), "S": ("ops", "aten::silu"), "N": ("ops", "aten::rms_norm")}


def kind(host: str = "LNSL", *, kernels: str = "#", kernel_names: dict[str, str] | None = None, **more) -> KindOfWork:
    legend = {**LAYERS, **{char: what for char, what in more.items() if isinstance(what, tuple)}}
    return kind_of_work(draw(kernels=kernels, host=[host], legend=legend, kernel_names=kernel_names))


def test_layers_without_a_backward_pass_are_inference():
    assert kind() == KindOfWork("inference")


@of_each(
    ("signal", "name"),
    [
        ("ops", "autograd::engine::evaluate_function: SiluBackward0"),
        ("ops", "SiluBackward0"),
        ("ops", "CompiledFunctionBackward"),
        ("ops", "aten::threshold_backward"),
        ("ranges", "Optimizer.step#AdamW.step"),
        ("ranges", "backward"),
        ("functions", "torch/_tensor.py(520): backward"),
        ("functions", "torch/optim/adamw.py(200): step"),
    ],
)
def test_anything_of_a_backward_pass_or_an_optimizer_is_training(signal, name):
    assert kind("LNSLB", B=(signal, name)).kind == "training"


def test_a_kernel_of_a_backward_pass_is_training_where_nothing_else_was_recorded():
    norm = "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel<float, float>(float const*)"
    assert kind("l", kernel_names={"#": norm}).kind == "training"
    assert kind("l", kernel_names={"#": GEMM}) == KindOfWork("unknown"), "kernels alone look alike"


@of_each(
    ("name", "only_in_training"),
    [
        ("igemm_wrw_gtcx35_nhwc_fp16_bx0_ex0_bt256x128x16", True),
        ("void ck::kernel_grouped_conv_bwd_weight_xdl_cshuffle_v3<float>(int)", True),
        ("void flash_bwd_dq_dk_dv_loop_kernel<64>(int)", True),
        ("layer_norm_bwd", True),
        ("void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float>(int)", True),
        ("igemm_bwd_gtcx35_nhwc_fp32_bx0_ex0_bt128x128x32", False),
        ("void ck::kernel_grouped_conv_bwd_data_multiple_d_xdl_cshuffle<float>(int)", False),
        ("void at::native::(anonymous namespace)::indexing_backward_kernel<float, 4>(long const*)", False),
    ],
)
def test_kernels_of_gradients_that_forward_passes_run_as_well_are_no_proof(name, only_in_training):
    assert kind(kernel_names={"#": name}).kind == ("training" if only_in_training else "inference")


@of_each(
    ("signal", "name"),
    [
        ("ops", "aten::nll_loss_forward"),
        ("ranges", "FSDP::post_forward (blocks.8)"),
        ("ops", "DistributedDataParallel.forward"),
    ],
)
def test_the_forward_pass_of_what_may_be_a_training_is_unknown(signal, name):
    assert kind("LNSLB", B=(signal, name)).kind == "unknown"


def test_products_alone_are_no_model():
    assert kind("LLLL").kind == "unknown"


@of_each(
    ("signal", "name", "server"),
    [
        ("ops", "vllm::unified_attention_with_output", "vLLM"),
        ("ranges", "execute_8192_context_9(sq8155sk8430)_generation_37(sq37sk3)", "vLLM"),
        ("ranges", "execute_context_1(888_788544)_generation_0(0)", "vLLM"),
        ("ranges", "execute_new_2_cached_37", "vLLM"),
        ("ranges", "gpu_model_runner: forward", "vLLM"),
        ("ranges", "step[DECODE bs=32]", "SGLang"),
        ("functions", "sglang/srt/managers/scheduler.py(900): run_batch", "SGLang"),
        ("functions", "transformers/generation/utils.py(2800): _sample", "transformers' generate()"),
        ("functions", "xfuser/core/pipeline.py(10): forward", "xDiT"),
        ("ranges", "model_inference", ""),
        ("ranges", "run_batch", ""),
    ],
)
def test_a_server_names_itself(signal, name, server):
    assert kind("lB", B=(signal, name)) == KindOfWork("inference", server)


def test_a_server_inside_a_training_is_training():
    """Reinforcement learning samples with a server, and trains."""
    host = {"B": ("ops", "vllm::unified_attention"), "O": ("ranges", "Optimizer.step#AdamW.step")}
    assert kind("lBO", **host) == KindOfWork("training")


@pytest.mark.parametrize(
    "name",
    [
        "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16>(int)",
        "void paged_attention_ll4mi_QKV_mfma16_kernel<0>(int)",
        "void (anonymous namespace)::store_kvcache<2048l, 4, false, long>(int)",
        "kernel_unified_attention_2d",
        "void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(int)",
        "void marlin::Marlin<__nv_bfloat16, 256>(int4 const*)",
    ],
)
def test_a_kv_cache_is_inference_by_its_kernels_alone(name):
    assert kind("l", kernel_names={"#": name}).kind == "inference"


@pytest.mark.parametrize(
    "name", ["validation step", "train_iteration", "batch_norm", "attention", "my_decode_utils.py"]
)
def test_ranges_of_others_are_no_iterations_of_a_server(name):
    assert serving.ITERATION.search(name) is None

"""What does a real kernel's name prove? Names as recordings hold them, shortened only inside their argument lists."""

from __future__ import annotations

import pytest
from tables import of_each

from perfdoctor.vocabulary.kinds import KERNEL_FAMILIES, MATH_PATHS
from perfdoctor.vocabulary.names.kernels import built_for, family, input_type, math_path
from perfdoctor.vocabulary.names.nccl import COLLECTIVE

#: name, family, math path, type of the inputs
MATMULS = [
    ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "gemm", "tensor_core", "half"),
    ("nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_NNT", "gemm", "tensor_core", "half"),
    ("nvjet_qqtst_128x128_128x6_2x1_v_bz_TNT", "gemm", "tensor_core", "half"),
    ("nvjet_sss_128x64_32x7_1x2_h_bz_TNN", "gemm", "tensor_core", "tf32"),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
        "gemm", "no_tensor_core", "fp32",
    ),
    (
        "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas",
        "gemm", "tensor_core", "tf32",
    ),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "gemm", "tensor_core", "half",
    ),
    ("ampere_sgemm_128x64_tn", "gemm", "no_tensor_core", "fp32"),
    ("volta_sgemm_128x32_sliced1x4_nn", "gemm", "no_tensor_core", "fp32"),
    ("maxwell_sgemm_128x128_nt", "gemm", "no_tensor_core", "fp32"),
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", "gemm", "tensor_core", "half"),
    ("volta_dgemm_64x64_nn", "gemm", "no_tensor_core", "fp64"),
    ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", "gemm", "tensor_core", "half"),
    ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "gemm", "tensor_core", "half"),
    ("turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_nn", "gemm", "tensor_core", "half"),
    ("turing_h1688gemm_128x128_ldg8_stages_32x1_tn", "gemm", "tensor_core", "half"),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4::Params)",
        "gemm", "tensor_core", "tf32",
    ),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(T1::Params)",
        "gemm", "tensor_core", "half",
    ),
    ("void cutlass::Kernel<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)", "gemm", "no_tensor_core", "fp32"),
    (
        "void cutlass::device_kernel<cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_2x1x1_0_tnn_align8_warpspecialized>(T1::Params)",
        "gemm", "tensor_core", "half",
    ),
    (
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(cublasGemvParamsEx)",
        "gemm", "no_tensor_core", "fp32",
    ),
    ("Cijk_Alik_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SE_1LDSB1_APM1_ABV0", "gemm", "tensor_core", "half"),
    ("Cijk_Ailk_Bljk_SB_MT128x64x16_SN_1LDSB0_APM1_ABV0", "gemm", "unknown", "fp32"),
    ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>(Params)", "attention", "tensor_core", "half"),
    ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)", "attention", "tensor_core", "half"),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)", "attention", "tensor_core", "fp32"),
    (
        "void convolveNd_dgrad_float_engine<float, 3, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*)",
        "convolution", "no_tensor_core", "fp32",
    ),
    ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int)", "convolution", "no_tensor_core", "fp32"),
    ("maxwell_scudnn_128x64_relu_interior_nn_v1", "convolution", "no_tensor_core", "fp32"),
    ("volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "convolution", "tensor_core", "half"),
    (
        "void xmma_cudnn::implicit_gemm::fprop_implicit_gemm::kernel<xmma_cudnn::Ampere_hmma_tf32_traits<float, float>>(Params)",
        "convolution", "tensor_core", "tf32",
    ),
    (
        "void xmma_cudnn::implicit_gemm::dgrad::kernel<xmma_cudnn::Ampere_hmma_fp32_traits<cutlass::half_t, float>>(Params)",
        "convolution", "tensor_core", "half",
    ),
    (  # "tensor16x8x16" is the shape of a tensor-core instruction
        "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn",
        "convolution", "tensor_core", "half",
    ),
]  # fmt: skip

#: Names of Inductor's own matmuls: the name shows neither the unit nor the type, so neither is denied.
TRITON_MATMULS = [
    "triton_mm",
    "triton_bmm_1",
    "triton_tem_fused_mm_2",
    "triton_tem_fused_addmm_relu_3",
    "_scaled_mm_kernel",
]

OTHERS = [
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>(int)", "elementwise"),
    ("triton_poi_fused_add_relu_0", "elementwise"),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(float*)", "elementwise"),
    ("triton_red_fused__log_softmax_4", "reduction"),
    ("triton_per_fused_native_layer_norm_3", "normalization"),
    # What follows a product or a convolution, with the name of that in its own.
    ("triton_poi_fused__native_batch_norm_legit_functional_convolution_relu_3", "normalization"),
    ("triton_poi_fused_convolution_relu_0", "elementwise"),
    ("triton_red_fused_convolution_backward_3", "reduction"),
    ("triton_poi_fused_addmm_gelu_view_15", "elementwise"),
    ("triton_per_fused_bmm_softmax_2", "reduction"),
    ("triton_per_fused__flash_attn_backward__unsafe_view_mul_sigmoid_sigmoid_backward_sum_view_8", "reduction"),
    ("triton_tem_fused_convolution_1", "convolution"),
    ("triton_tem_fused_flex_attention_0", "attention"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(R)", "reduction"),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(float*)", "reduction"),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)", "normalization"),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct)", "normalization"),
    ("void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>(int)", "optimizer"),
    ("void kOptimizer32bit2State<__nv_bfloat16, 0>(__nv_bfloat16*, __nv_bfloat16*, float*, float*)", "optimizer"),
    ("void at::native::multi_tensor_apply_kernel<TensorListMetadata<1>, UnaryOpFunctor<float, std::sqrt>>(int)", "elementwise"),
    ("void at::native::(anonymous namespace)::embedding_bag<float, long>(long*)", "embedding"),
    ("split_embedding_codegen_forward_weighted_kernel<float, float, long, 4>", "embedding"),
    ("split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1<float>", "embedding"),
    ("void fbgemm_gpu::permute_2D_lengths_kernel<long>(int)", "elementwise"),
    ("void fbgemm_gpu::bounds_check_indices_kernel_v1<long, false>(int)", "other"),
    ("MIOpenBatchNormFwdTrainSpatialNorm", "normalization"),
    ("my_extension_kernel", "other"),
    ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u>(P)", "attention"),
    ("void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>(float*)", "attention"),
    ("void flashinfer::activation::act_and_mul_kernel<__half, silu>(__half*)", "elementwise"),
    ("void flashinfer::sampling::TopKTopPSamplingFromProbKernel<512u>(float*)", "reduction"),
]  # fmt: skip

#: Names of compute kernels with a word of communication in them.
NO_COLLECTIVES = [
    "triton_poi_fused_all_reduce_0",
    "triton_poi_fused_all_reduce_lift_fresh_0",
    "triton_red_fused__to_copy_add_all_gather_into_tensor_mean_3",
    "void SoftmaxWarpImpl<WarpAllReduce, float>(float*)",
    "void deep_ep::layout::get_dispatch_layout<256, 4, 8>(long const*)",
    "void deep_ep::legacy::layout::get_dispatch_layout<256, 4, 8>(long const*)",
    "void hybrid_ep::scan<8, 4>(bool const*)",
    "all_gather_matmul_kernel",
    "gemm_all_reduce_persistent_kernel",
    "all_gather_copy_in_kernel",
    "small_reduce_kernel",
    "loop_all_gather_fusion_2",
    "void aiter::local_device_load_rmsnorm<__hip_bfloat16, 512, 2>(__hip_bfloat16*)",
]


def ids(rows: list[tuple]) -> list[str]:
    return [row[0][:40] for row in rows]


@of_each(("name", "expected", "path", "reads"), MATMULS)
def test_a_matmul_is_known_by_family_math_path_and_input_type(name, expected, path, reads):
    assert (family(name), math_path(name), input_type(name)) == (expected, path, reads)


@pytest.mark.parametrize("name", TRITON_MATMULS)
def test_a_matmul_by_triton_is_never_said_to_miss_the_tensor_cores(name):
    assert family(name) == "gemm"
    assert math_path(name) != "no_tensor_core"
    assert input_type(name) != "fp32"


@of_each(("name", "expected"), OTHERS)
def test_other_kernels_are_known_by_family(name, expected):
    assert family(name) == expected


@pytest.mark.parametrize("name", [name for name, _ in OTHERS if "gemm" in name])
def test_kernels_of_the_library_fbgemm_are_no_matmuls(name):
    assert family(name) != "gemm"


@of_each("name", [name for name, *_ in MATMULS + OTHERS] + TRITON_MATMULS + NO_COLLECTIVES)
def test_no_compute_kernel_is_taken_for_a_collective(name):
    assert not COLLECTIVE.search(name)


@of_each("name", [name for name, *_ in MATMULS + OTHERS])
def test_answers_are_words_that_reports_know(name):
    assert family(name) in KERNEL_FAMILIES
    assert math_path(name) in MATH_PATHS
    assert input_type(name) in ("half", "tf32", "fp32", "fp64", "unknown")


@pytest.mark.parametrize("name", ["", "k", "<unnamed>", "\ud800", "内核"])
def test_a_name_that_tells_nothing_is_unknown(name):
    assert (family(name), math_path(name), input_type(name)) == ("other", "unknown", "unknown")


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8", (8, 0)),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", (8, 0)),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>", (8, 0)),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", (9, 0)),
        ("sm100_xmma_gemm", (10, 0)),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", (7, 5)),
        ("volta_sgemm_128x64_nn", (7, 0)),
        ("void at::native::vectorized_elementwise_kernel<4, smem80>", (0, 0)),
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32", (0, 0)),
    ],
)
def test_a_librarys_kernel_says_for_which_generation_it_was_built(name, capability):
    assert built_for(name) == capability

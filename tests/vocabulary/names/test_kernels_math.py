"""On which units does a matmul compute, and what does it read? One table of real names, by library."""

from __future__ import annotations

import pytest
from tables import of_each

from perfdoctor.vocabulary.names.kernels import (
    alignment,
    family,
    input_type,
    is_depthwise,
    is_vector_product,
    math_path,
)

#: name, math path, type of the inputs; what a name does not prove is unknown
NAMES = """
cuBLAS from Hopper on: the first letter of the types is the type of A
nvjet_sm100_tst_64x32_64x16_2x1_2cta_v_bz_TNT | tensor_core | half
nvjet_sm90_hss_320x128_64x3_1x2_h_bz_coopB_NNT | tensor_core | half
nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN | tensor_core | half
nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_TNT | tensor_core | half
nvjet_tss_128x64_64x8_2x1_v_bz_TNN | tensor_core | half
nvjet_ddd_64x32_32x5_1x1_v_bz_TNN | tensor_core | fp64

cuBLAS and cuDNN before
Volta_hmma_implicit_gemm_fprop_fp32_nhwc_128x128x64x1_1x3x3x0x1 | tensor_core | half
volta_fp16_scudnn_fp16_128x64_relu_small_nn_v1 | no_tensor_core | half
cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1 | no_tensor_core | fp32
_5x_cudnn_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1 | no_tensor_core | fp32
ampere_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1 | tensor_core | half
maxwell_fp16_sgemm_fp16_128x64_nn | no_tensor_core | half
volta_h884gemm_64x128_ldg8_nn | tensor_core | half
turing_sgemm_64x64_nn | no_tensor_core | fp32
volta_gcgemm_32x32_nt | no_tensor_core | fp32
ampere_dgemm_128x64_nn | unknown | fp64
void gemmSN_NN_kernel<float, 256, 4, 2, 8, 4, 4, false, cublasGemvTensorStridedBatched<float const>>(P) | no_tensor_core | fp32
void gemvNSP_kernel<__half, __half, __half, float, 1, 32, 4, 1024>(cublasGemvParams) | no_tensor_core | half
std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float, float, false>(P) | no_tensor_core | fp32
std::enable_if<true, void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, true>(P) | no_tensor_core | half
void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, cublasGemvTensorStridedBatched<__nv_bfloat16 const>, cublasGemvTensorStridedBatched<__nv_bfloat16> >(P) | no_tensor_core | half
void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<__nv_bfloat16 const>, cublasGemvTensorStridedBatched<float> > >(P) | no_tensor_core | half
void gemv2N_kernel<int, int, float2, float2, float2, float2, 128, 8, 4, 4, 1, false>(P) | no_tensor_core | unknown
void wgrad_alg1_nd_float_engine<float, float, (int)3, (int)0, (int)5, (int)7>(int) | no_tensor_core | fp32
void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int) | no_tensor_core | fp32
void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int) | no_tensor_core | fp32
void convolveNd_dgrad_float_engine<__half, (int)3, (int)512, (int)6>(int) | no_tensor_core | half
void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(P) | unknown | fp32

xmma: (storage)(storage)_(math)(sum)
sm90_xmma_gemm_i8i32_i8i32_i32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_execute_kernel | tensor_core | half
sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas | tensor_core | tf32
sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x64_stage3_warpsize2x2x1_tensor16x8x32_execute_kernel__5x_cublas | tensor_core | half
sm80_xmma_gemm_bf16f32_bf16f32_f32_tn_n_tilesize96x128x32_stage4_warpsize2x2x1_execute_kernel__5x_cublas | tensor_core | half
sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize96x128x32_stage4_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas | tensor_core | half
sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16_stage4_warpsize2x2x1_tensor8x8x4_execute_kernel__5x_cublas | tensor_core | fp64
sm86_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize128x32x8_stage3_warpsize2x1x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn | no_tensor_core | fp32

CUTLASS 2 and 3
cutlass_80_tensorop_i16832gemm_s8_128x64_128x3_tn_align16 | tensor_core | half
void cutlass::Kernel2<cutlass_75_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_tn_align8>(P) | tensor_core | half
void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(P) | tensor_core | fp64
void cutlass_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_256x64_16x4_nhwc_unity_stride>(T1::Params) | tensor_core | tf32
void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4>, cute::tuple<cute::C<128>>, cutlass::bfloat16_t>>>(P) | tensor_core | half
void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<S, CollectiveMma<M, cute::TiledMMA<cute::MMA_Atom<cute::SM80_16x8x8_F32TF32TF32F32_TN>, L>>>>(P) | tensor_core | tf32
void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<S, CollectiveMma<M, cute::TiledMMA<cute::MMA_Atom<cute::SM80_8x8x4_F64F64F64F64_TN>, L>>>>(P) | tensor_core | fp64
void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<S, CollectiveMma<M, cute::TiledMMA<cute::MMA_Atom<cute::SM100_MMA_MXF8F6F4_SS<F>>, L>>>>(P) | tensor_core | half
void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<S, CollectiveMma<M, cute::TiledMMA<cute::MMA_Atom<cute::UniversalFMA<float, float, float, float>>, L>>>>(P) | no_tensor_core | fp32

CuTe for Python
kernel_cutlass_kernel_torchaoprototypemxfp8_gmmSm100GroupedBlockScaledGemmKernel_object_at__TiledMMA_ThrLayoutVMNK21111000_PermutationMNK____MMAAtom_ThrID21__1 | tensor_core | half
kernel_cutlass_kernel___main__DenseGemmKernel_object_at__TiledMMA_ThrLayoutVMNK11110000_PermutationMNK____MMAAtom_ThrID10_ShapeMNK12812816_TVLayoutA1128161281128_T_0 | tensor_core | half
kernel_cutlass_kernel___main__PersistentDenseGemmKernel_object_at__TiledMMA_ThrLayoutVMNK11110000_PermutationMNK____MMAAtom_ThrID10_ShapeMNK1281288_TVLayoutA112881281128_0 | tensor_core | tf32
kernel_cutlass_kernel___main__SimtGemm_object_at__TiledMMA_ThrLayoutVMNK116161011610_PermutationMNK____MMAAtom_ThrID10_ShapeMNK111_TVLayoutA110110_0 | unknown | unknown

Attention
cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0 | tensor_core | half
void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>>, 128, cutlass::bfloat16_t, float>>>>(P) | tensor_core | half
flash_fwd_kernel | unknown | unknown
_attn_fwd | unknown | unknown
fmha_cutlassF_f16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t, cutlass::arch::Sm80>::Params) | tensor_core | half
fmha_cutlassB_f32_aligned_64x64_k64_sm70(P) | no_tensor_core | fp32
fmha_cutlassF_f16_notaligned_64x64_rf_sm50(P) | no_tensor_core | half

Tensile, hipBLASLt, MIOpen, composable kernel
Cijk_Ailk_Bjlk_SB_MT64x16x16_MI16x16x1_SN | tensor_core | fp32
Cijk_Ailk_Bljk_HSS_MT96x96x32_MI16x16x1 | tensor_core | half
Cijk_Alik_Bljk_DB_MT64x64x16_MI16x16x4x1 | tensor_core | fp64
Cijk_Alik_Bljk_BBS_BH_Bias_AS_SAV_MT16x16x16_SN_GSU1 | unknown | half
Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN | tensor_core | half
Cijk_Alik_Bljk_F8BS_BH_Bias_MT16x16x16_MI16x16x1 | tensor_core | half
igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt32x256x32_wt16x64x4 | tensor_core | half
igemm_wrw_gtcx3_nhwc_fp32_bx0_ex1_bt64x32x32_wt16x16x4 | tensor_core | fp32
naive_conv_ab_nonpacked_wrw_nchw_float_double_float | no_tensor_core | fp32
miopenSp3AsmConv_v21_1_3_gfx9_fp32_f2x3_stride1 | unknown | unknown
_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28GridwiseGemm | tensor_core | unknown

Kernels that people write
void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u>(float*) | tensor_core | half
triton_tem_fused_mm_2 | unknown | unknown
matmul_kernel | unknown | unknown
hgemm_mma_m16n8k16_stages_kernel | tensor_core | half
sgemm_wmma_m16n16k8_tf32_kernel | tensor_core | tf32

Each channel by itself
void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(P) | no_tensor_core | fp32
void dgrad2d_grouped_direct_kernel<__half, __half, int, float, 3, 3>(cudnnTensorStruct) | no_tensor_core | half
"""
ROWS = [tuple(part.strip() for part in line.rsplit("|", 2)) for line in NAMES.splitlines() if line.count(" | ") == 2]


@of_each(("name", "path", "reads"), ROWS)
def test_units_and_inputs_are_known_by_the_name(name, path, reads):
    assert (math_path(name), input_type(name)) == (path, reads)
    assert family(name) in ("gemm", "convolution", "attention")


def test_kernels_of_which_the_name_only_sounds_alike_are_not_taken_for_tensor_core_kernels():
    assert math_path("SubTensorOpWithCastTensor1d") == "unknown"
    assert input_type("transpose_CNHW2NCHW_V2_2D_WG_off64") == "unknown"


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x128_32x3_nt_align1>(P)", 1),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(P)", 2),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute", 4),
        ("nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN", 0),
        ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", 0),
    ],
)
def test_the_alignment_a_kernel_was_built_for_is_in_some_names(name, elements):
    assert alignment(name) == elements


def test_products_with_a_vector_and_depthwise_convolutions_are_known():
    assert is_vector_product("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4>(P)")
    assert is_vector_product("void gemmk1_kernel<int, float, 256, 5, false>(P)")
    assert not is_vector_product("ampere_sgemm_128x64_tn")
    assert is_depthwise("void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, float, float>(P)")
    assert not is_depthwise("volta_scudnn_128x64_relu_interior_nn_v1")

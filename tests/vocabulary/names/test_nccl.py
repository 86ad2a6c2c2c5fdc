"""Are collectives known by their kernels and by the names around their calls?"""

from __future__ import annotations

import pytest
from tables import of_each

from perfdoctor.vocabulary.kinds import KERNEL_FAMILIES
from perfdoctor.vocabulary.names import nccl
from perfdoctor.vocabulary.names.kernels import family, family_or_communication
from perfdoctor.vocabulary.names.nccl import COLLECTIVE, collective_kind

COLLECTIVES = [
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
    ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
    ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "broadcast"),
    ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce"),
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "all_reduce"),
    ("ncclKernel_AllToAll_RING_LL_Sum_int8_t(ncclDevComm*)", "all_to_all"),
    ("rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", "other"),
    ("void mscclpp_allreduce_kernel(int)", "all_reduce"),
    ("void c10d::symmetric_memory::multimem_all_reduce_kernel<c10::BFloat16, 16>(int)", "all_reduce"),
    ("two_shot_all_reduce_kernel", "all_reduce"),
    ("void nvshmemi_barrier_kernel(int)", "barrier"),
    ("nvshmemx_alltoallmem_on_stream_kernel", "all_to_all"),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "all_reduce"),
    ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", "all_to_all"),
    ("void deep_ep::internode_ll::combine<true, 7168, 9, 6>(void*)", "all_to_all"),
    ("void uccl::internode::notify_dispatch<false, 2>(int const*)", "all_to_all"),
    ("EpDispatchIntraNodeKernel_bf16", "all_to_all"),
    ("void a2a_dispatch_send_kernel<true, 16, 8, Fixed<7168>>(unsigned long)", "all_to_all"),
    ("moeA2ADispatchKernel(int const*, DispatchKernelPointers)", "all_to_all"),
    ("c10d::nvshmem_extension::(anonymous namespace)::allToAllV(void*, void*, long*)", "all_to_all"),
    ("exchangeSplitAndOffset(long*, long*, int)", "all_to_all"),
    (
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(P)1, __half, 8>(P)",
        "all_reduce",
    ),
    ("void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8, __nv_bfloat16, true>(T*)", "all_reduce"),
    ("moereduce_allreduce_fusion_kernel_oneshot_lamport<__nv_bfloat16, 8, true, true, true>", "all_reduce"),
    ("void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true, false>(AllReduceParams)", "all_reduce"),
    ("void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8>(aiter::RankData*)", "all_reduce"),
    ("void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(aiter::RankData*)", "reduce_scatter"),
    (
        "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 4>, true>>(A)",
        "all_reduce",
    ),
    ("void userbuffers_fp16_sum_inplace_gpu_rw<4>(int, int, int)", "all_reduce"),
    ("void userbuffers_fp16_sum_inplace_gpu_mc_ag<8>(int, int)", "all_gather"),
    ("void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8<4, __nv_fp8_e4m3>(int)", "reduce_scatter"),
    ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", "send_recv"),
    ("ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymkDevWorkArgs4K)", "all_reduce"),
    # kernels that people write, in Triton and by hand
    ("_mxfp8_all_to_all_expert_major_kernel", "all_to_all"),
    ("_combine_all_to_all_kernel", "all_to_all"),
    ("on_device_all_to_all_v_kernel", "all_to_all"),
    ("_one_shot_all_reduce_kernel", "all_reduce"),
    ("cp_engine_producer_all_gather_push", "all_gather"),
    ("ring_reduce_scatter_kernel", "reduce_scatter"),
    ("void stream_executor::gpu::RaggedAllToAllKernel<unsigned short, 2l>(void const*)", "all_to_all"),
    ("void deep_ep::legacy::intranode::dispatch<8, 768, 8192>(int4*)", "all_to_all"),
    ("void hybrid_ep::dispatch_kernel<hybrid_ep::inter_node_group<32>>(P)", "all_to_all"),
    ("EpCombineLowLatencyAsyncSend_bf16", "all_to_all"),
    ("kernel_combine_token_intra_node", "all_to_all"),
    ("mscclKernel_Sum_hip_bfloat16_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)", "other"),
]


@of_each(("name", "kind"), COLLECTIVES)
def test_a_collective_is_known_with_its_kind(name, kind):
    assert COLLECTIVE.search(name)
    assert collective_kind(name) == kind
    assert family(name) in KERNEL_FAMILIES
    assert family(name) != "attention"
    assert family_or_communication(name) == "communication"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_allgather_base", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("allreduce_coalesced", "all_reduce"),
        ("alltoall_base", "all_to_all"),
        ("batch_isend_irecv", "send_recv"),
    ],
)
def test_names_of_process_groups_tell_the_kind_as_well(name, kind):
    assert collective_kind(name) == kind


@pytest.mark.parametrize(
    ("kernel", "data_type"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "f32"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "float"),
        ("ncclKernel_AllToAll_RING_LL_Sum_int8_t(ncclDevComm*)", "int8_t"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", ""),
    ],
)
def test_a_kernel_may_name_its_data_type(kernel, data_type):
    assert nccl.data_type(kernel) == data_type


@of_each(
    ("pattern", "names", "others"),
    [
        (nccl.FULL_PRECISION_KERNEL, ["ncclDevKernel_AllReduce_Sum_f32_RING_LL"], ["ncclDevKernel_AllReduce_Sum_f16_RING"]),
        (nccl.FULL_PRECISION, ["float", "Float32"], ["bfloat16", "float64"]),
        (nccl.IN_LAYERS, ["two_shot_all_reduce_kernel", "multimem_all_reduce_kernel"], ["ncclDevKernel_AllReduce_Sum_f32"]),
        (nccl.IN_PARTS, ["ncclAllGather", "ncclAlltoAll"], ["ncclAllReduce", "ncclGroupStart"]),
        (nccl.LIBRARY_RANGE, ["nccl:all_reduce", "rccl:send"], ["nccl:coalesced", "ncclAllReduce"]),
        (nccl.POINT_TO_POINT, ["nccl:send 0->1", "nccl:recv 1<-0"], ["nccl:all_to_all"]),
        (nccl.HOST_TRANSPORT, ["gloo:all_reduce", "mpi:barrier"], ["nccl:all_reduce", "gloo_thread"]),
        (nccl.HOST_MESSAGE, ["gloo:send", "mpi:recvAnySource"], ["nccl:send 0->1", "gloo:all_reduce"]),
        (nccl.ON_HOST, ["gloo_thread", "c10d::allreduce_", "_c10d_functional::wait_tensor", "DistributedDataParallel.sync"], ["nccl:all_reduce"]),
        (nccl.STARTS_COLLECTIVE, ["c10d::allreduce_", "c10d::_allgather_base_"], ["c10d::wait"]),
        (nccl.ERROR_ENDS, ["init.cc", "group.cc"], ["net.cc"]),
        (nccl.HARMLESS, ["NET/Plugin: Could not find: libnccl-net.so", "No plugin found"], ["Cuda failure 'out of memory'"]),
        (nccl.ADAPTER, ["NET/IB/0", "NET/IBext_v8/3"], ["NET/Socket/0"]),
    ],
)  # fmt: skip
def test_names_around_collectives_are_distinguished(pattern, names, others):
    assert all(pattern.search(name) for name in names)
    assert not any(pattern.search(name) for name in others)

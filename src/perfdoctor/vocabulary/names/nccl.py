"""Which collective is this? Kernels of NCCL and its kin, ranges and ops around their calls, gloo and MPI on the host.

Sources of the conventions: NCCL's and RCCL's kernel names (`ncclDevKernel_AllReduce_Sum_f32_RING_LL`), the ranges of
PyTorch's process groups (`nccl:all_reduce`, `gloo:all_reduce`; torch/csrc/distributed/c10d), its ops (`c10d::…`), and
NCCL's own NVTX ranges (`ncclAllReduce`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from perfdoctor.patterns import regex

# --- kernels ---

#: Collectives that others than NCCL have kernels of their own for (Triton, symmetric memory, inference engines), by
#: the word anywhere in the name. Those that are fused with a product compute, and copies around a call talk to nobody.
_OWN = (
    r"(?<!warp)(?<!warp_)(?<!block)(?<!block_)(?<!quad)(?<!sm)(?<!over)all_?(?:reduce|gather|to_?all)"
    r"|reduce_?scatter"
)
#: Kernels that talk to other devices: NCCL, RCCL, MSCCL, NVSHMEM and rocSHMEM, PyTorch's symmetric memory, the custom
#: all-reduces of inference engines (vLLM, SGLang, TensorRT-LLM, FlashInfer, AITER, QuickReduce), Transformer Engine's
#: userbuffers, and the all-to-alls of experts (DeepEP and its kin, MORI, pplx-garden, TensorRT-LLM). Inductor names
#: what it fuses after the calls around it (`triton_poi_fused_all_reduce_0` fills the buffer that is reduced next), as
#: XLA does, and a softmax "all-reduces" inside a warp: neither talks to anybody.
COLLECTIVE = regex(
    r"^(?!triton_(?:poi|red|per|for|tem|mm|bmm|spl)_|triton__|(?:loop|input|wrapped)_).*(?:"
    r"\bnccl|ncclDevKernel|ncclKernel|\brccl|msccl|nvshmem|rocshmem|multimem_|symm_mem|symmetric_memory::"
    rf"|(?<!\w)(?!\w*(?:gemm|matmul|copy))\w*(?:{_OWN})"
    r"|quickreduce::|cross_device_(?:reduce|store)|userbuffers_|exchangeSplitAndOffset|\bmoe_?A2A|\bkernel_(?:dispatch|combine)_token"
    r"|\ba2a_(?:dispatch|combine)_(?:send|recv)|hybrid_ep::\w*(?:dispatch|combine|sync)"
    r"|deep_ep::(?!(?:\w+::)*(?:layout::|\w*epilogue))"
    r"|\b(?:intra|inter)node(?:_ll)?::(?:notify_|cached_notify|dispatch|combine)"
    r"|\bEp(?:Dispatch|Combine)(?:Intra|Inter|LowLatency)|oneccl|hccl|\bgloo::)",
    re.IGNORECASE,
)
_KINDS = {
    kind: regex(pattern, re.IGNORECASE)
    for kind, pattern in {
        "all_reduce": r"all_?reduce|cross_device_reduce|userbuffers_\w+_gpu_(rw|rr|mc)(?!_(rs|ag))",
        "reduce_scatter": r"reduce_?scatter|userbuffers_\w+_rs",
        "all_gather": r"all_?gather|userbuffers_\w+_ag",
        "all_to_all": r"all_?to_?all|deep_ep|hybrid_ep|exchangeSplitAndOffset|moe_?A2A|a2a_(dispatch|combine)"
        r"|(intra|inter)node(_ll)?::|Ep(Dispatch|Combine)(Intra|Inter|LowLatency)|kernel_(dispatch|combine)_token",
        "send_recv": r"send|recv",
        "broadcast": r"broadcast|bcast",
        "barrier": r"barrier",
        "reduce": r"reduce",
    }.items()
}
#: The element type in the name of a collective's kernel.
_DATA_TYPE = regex(
    r"_(float|half|double|bfloat16|u?int\d+_t|bf16|f16|f32|f64|f8e4m3|f8e5m2|[iu](?:8|32|64))(?![a-z0-9])",
    re.IGNORECASE,
)
#: Kernels that compute a sum, or the like, of fp32.
FULL_PRECISION_KERNEL = regex(r"_(Sum|Avg|PreMulSum|SumPostDiv)_(float|f32)(?![a-z0-9])|_(f32)_(RING|TREE)")
#: fp32 among the data types of collectives, as PyTorch, NCCL and RCCL write it.
FULL_PRECISION = regex(r"^(float|f32|fp32|float32)$", re.IGNORECASE)
#: And those of 16 bits or fewer, which are no wider than what models compute in.
HALF_PRECISION = regex(r"^(half|bfloat16|b?f16|fp16|float16|f8\w*|float8\w*)$", re.IGNORECASE)
#: Whole numbers and flags, which are no gradients.
WHOLE_NUMBERS = regex(r"^(bool|byte|char|short|int|long|[iu]\d+|u?int\d+(_t)?)$", re.IGNORECASE)
#: The sums that tensor parallelism takes inside layers: PyTorch's symmetric memory and the inference engines'.
IN_LAYERS = regex(r"multimem|_shot_|cross_device_reduce|symm", re.IGNORECASE)

# --- groups of ranks ---

#: What a group is for, by its name or description: torchtitan's meshes (`mesh_dp_shard_cp`), Megatron's
#: (`DATA_PARALLEL_GROUP_WITH_CP`), DeepSpeed's and the servers' (`tp:0`). The first that fits counts; what follows a
#: blank separates patterns of one kind.
PARALLELISM = {
    kind: regex(pattern, re.IGNORECASE)
    for kind, pattern in {
        "data by word": r"data_?parallel",
        "hybrid": r"replicate|hsdp",
        "sharded": r"shard|fsdp|(?<![a-z])zero",
        "expert": r"(?<![a-z])(ep|moe)(?![a-z])|expert",
        "pipeline": r"(?<![a-z])pp(?![a-z])|pipeline|embedding_group",
        "sequence": r"(?<![a-z])(cp|sp)(?![a-z])|context|sequence|ulysses",
        "tensor": r"(?<![a-z])(tp|mp)(?![a-z])|tensor|model_?parallel",
        "data": r"(?<![a-z])dd?p(?![a-z])",
    }.items()
}
#: Attention over a sequence whose parts go round the ranks that hold it.
RING_ATTENTION = regex(r"ring_?(flash_?)?attn|ring_?attention|zigzag|attn_forward_func_with_kv_p2p", re.IGNORECASE)
#: Whose all-to-alls these are, by names of ops, ranges, functions and kernels: TorchRec's embeddings, a layer of
#: experts, a sequence that is divided by heads (DeepSpeed-Ulysses).
EXCHANGED = {
    "embeddings": regex(r"fbgemm|torchrec|\bkjt\b|permute_pooled|SplitEmbedding|sparse_data_dist", re.IGNORECASE),
    "sequence": regex(r"ulysses|seq_?all_?to_?all", re.IGNORECASE),
    "expert": regex(
        r"(?<![a-z])(?-i:(?:moe|MoE|MOE)(?![a-rt-z]))|experts?(?![a-z])|grouped_(mm|gemm)|GroupedBlockScaledGemm|deep_ep|token_dispatch"
        r"|_ep(?=[A-Z_])|all_to_all_expert",
        re.IGNORECASE,
    ),
}

# --- ranges and ops of the host ---

#: Any of NCCL's or PyTorch's ranges around it; NCCL's own (NVTX) begin so.
NAMED_NCCL = regex(r"nccl", re.IGNORECASE)
OWN_RANGE = regex(r"^nccl")
#: Of NCCL's own ranges those whose size is that of one rank's part (NCCL, src/collectives.cc).
IN_PARTS = regex(r"^nccl(AllGather|ReduceScatter|All[tT]oAll|Gather|Scatter)$")
#: The range that ProcessGroupNCCL opens around each call of the library; `nccl:coalesced` ends a group of them.
LIBRARY_RANGE = regex(r"^(nccl|rccl|xccl|hccl):(?!coalesced)", re.IGNORECASE)
POINT_TO_POINT = regex(r"^(nccl|rccl|xccl|hccl):(send|recv)", re.IGNORECASE)
#: The same with the numbers of both ends in their group: `nccl:send 0->1`, `nccl:recv 1<-0`.
BETWEEN = regex(r"^(?:nccl|rccl|xccl|hccl):(?:send|recv) (\d{1,9})(->|<-)(\d{1,9})\b", re.IGNORECASE)
#: What ends a group of them: one kernel sends and receives all its messages.
COALESCED = regex(r"^(nccl|rccl|xccl|hccl):coalesced", re.IGNORECASE)
#: The same of libraries that work on the host: gloo, MPI, oneCCL, UCC. They mark their own threads.
HOST_TRANSPORT = regex(r"^(gloo|mpi|ccl|ucc):", re.IGNORECASE)
GLOO = regex(r"^gloo:")
#: A send or receive there: the name says it, and no other call has such a one.
HOST_MESSAGE = regex(r"^(gloo|mpi|ccl|ucc):(send|recv)", re.IGNORECASE)
#: What the training thread does for collectives on the host: starting them, waiting in DistributedDataParallel, or in
#: functional collectives (DTensor), whose results wait for themselves: `_c10d_functional::wait_tensor`.
ON_HOST = regex(
    r"^(gloo|mpi|ccl|ucc)[:_]|^(_?c10d|_c10d_functional(_autograd)?)::|DistributedDataParallel.{0,200}(sync|wait)",
    re.IGNORECASE,
)
#: What the training thread calls to start a collective (torch.distributed).
STARTS_COLLECTIVE = regex(
    r"^c10d::\w*(reduce|gather|scatter|broadcast|alltoall|all_to_all|barrier|send|recv)", re.IGNORECASE
)

#: In the column `peers` of a send or receive: in front of the rank that it goes to, and of the one that it comes from.
SENT_TO, RECEIVED_FROM = ">", "<"

# --- NCCL's log ---

#: The file in which an error ends that costs a collective or the communicator. Below, many are tried again or expected
#: at the end.
ERROR_ENDS = regex(r"^(init|group|enqueue|collectives|sendrecv)\.cc$")
#: Warnings of what is looked for and may be missing: NCCL goes on without it.
HARMLESS = regex(
    r"libibverbs|[Cc]ould not find|[Nn]o plugin|deprecated|NVLS|cuMem|Missing \"iommu|ulimit|NUMA|RAS ", re.IGNORECASE
)
#: The adapter of a connection by InfiniBand or RoCE, by its number, and the rank whose GPU sends where that is not the
#: member itself (PXN): `NET/IB/0`, `NET/IB/3(19)`.
ADAPTER = regex(r"NET/IB\w*/(\d{1,9})(?:\((\d{1,9})\))?")


@lru_cache(maxsize=65536)
def parallelism(group: str) -> str:
    """What a group is for by its name or description: a key of `kinds.PARALLELISM`; "" where neither says it."""
    named = next((kind for kind, pattern in PARALLELISM.items() if pattern.search(group)), "")
    return named.partition(" ")[0]


@lru_cache(maxsize=65536)
def peers_of(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks that a row with these `peers` sends to and receives from: `>1 <1 <3`."""
    ranks = {
        sign: tuple(int(each[1:]) for each in text.split() if each[0] == sign) for sign in (SENT_TO, RECEIVED_FROM)
    }
    return ranks[SENT_TO], ranks[RECEIVED_FROM]


@lru_cache(maxsize=65536)
def collective_kind(name: str) -> str:
    """all_reduce, all_gather, reduce_scatter, all_to_all, send_recv, broadcast, reduce, barrier or other.

    Works on kernel names (`ncclDevKernel_AllReduce_Sum_f32_RING_LL`) and on c10d names (`_allgather_base`).
    """
    return next((kind for kind, pattern in _KINDS.items() if pattern.search(name)), "other")


def data_type(kernel: str) -> str:
    """The element type that a collective's kernel names (`f32`, `bfloat16`, `u8`); "" where it names none."""
    found = _DATA_TYPE.search(kernel)
    return found[1].lower() if found else ""

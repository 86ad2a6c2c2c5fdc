"""Which framework, and which ways of compiling and distributing a model does a recording name? Words that
speak of one need it.

Sources: the C++ names of PyTorch's kernels (`at::native::…`), the ranges of torch.compile
(`## Call CompiledFxGraph … ##`, `Torch-Compiled Region: 0/0`), of torch.nn.parallel
(`DistributedDataParallel.forward`), of FSDP1 (`FullyShardedDataParallel.forward`) and FSDP2 (`FSDP::pre_forward`), of
DeepSpeed (`DeepSpeedEngine.forward`), the autograd functions of DTensor, by which tensor
parallelism sums (`RedistributeBackward`), and the functions of all of them in torch.profiler's stacks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import shipped_table
from perfdoctor.vocabulary.names.base_names import without_numbers

#: Kernels of PyTorch, of its compiler, and of libraries that only work with its tensors.
TORCH_KERNEL = regex(
    r"\bat::|\bat_cuda_detail::|\bc10::|torch|triton_(poi|red|per|for|tem|spl)_|triton__|\bvllm::|\bfbgemm"
    r"|multi_tensor_apply_kernel|nvfuser|CudaCodeGen|\bTensorIterator(?:Base)?\b",
    re.IGNORECASE,
)
#: Ranges and functions of PyTorch.
TORCH = regex(r"(^|/)torch/|^(aten|autograd|torch|c10d?)::|^ProfilerStep#|^Optimizer\.|^enumerate\(DataLoader\)")
#: Triton without a framework: the launcher in stacks, and the arguments' kinds that older versions append to a name.
TRITON_KERNEL = regex(r"_(?:\d+(?:d|de|c|e))+$")
TRITON_FUNCTION = regex(r"(^|/)triton/(runtime|backends|compiler)/")

COMPILED = regex(
    r"CompiledFxGraph|^Torch-Compiled Region|^CompiledFunction(Backward)?$|torchinductor_\w+/|"
    r"torch/_inductor/output_code\.py"
)
#: The key of a compiled graph in the range around its call: another one on each rank.
_GRAPH_KEY = regex(r"(?<=CompiledFxGraph )\w+")
#: Inductor's kernels. Those of TorchScript's fusers (nvFuser) are no sign of torch.compile.
COMPILED_KERNEL = regex(r"triton_(poi|red|per|for|tem|spl)_|triton__")
DDP = regex(
    r"DistributedDataParallel|torch\.distributed\.ddp\.|torch/nn/parallel/distributed\.py|torch::distributed::reducer"
)
#: Both generations; and the first, whose options the second does not have.
FSDP = regex(r"\bFSDP\b|FSDP::|FullyShardedDataParallel|torch/distributed/(_composable/)?fsdp/")
FSDP1 = regex(r"FullyShardedDataParallel|torch/distributed/fsdp/(?!_?fully_shard)\w")
DEEPSPEED = regex(r"\bDeepSpeed|(^|/)deepspeed/|\bPartitionedParameterCoordinator")
#: Its own DistributedDataParallel is not PyTorch's.
MEGATRON = regex(r"(^|/)megatron/(core|training|legacy|model)/")
#: FSDP2 keeps its parameters in DTensors, too; only the gradient of a layer's result redistributes them.
TENSOR_PARALLEL = regex(r"\bRedistributeBackward|torch/distributed/tensor/parallel/")

#: What `when` of a fix may name, and the words for it.
FACTS: Mapping[str, str] = shipped_table(Path(__file__).with_name("facts.toml"))
NOT = "not "


def alike_on_ranks(name: str) -> str:
    """The name as it is on all ranks: without running numbers and the keys of compiled graphs."""
    return without_numbers(_GRAPH_KEY.sub("…", name))


def holds(condition: str, facts: frozenset[str]) -> bool:
    """Is `compiled`, or its opposite `not compiled`, true of a recording with these facts?"""
    return condition.removeprefix(NOT) not in facts if condition.startswith(NOT) else condition in facts


def in_words(conditions: Sequence[str]) -> str:
    """`For: PyTorch and FSDP. Not for: inference, CUDA graphs.`: where all of the first are, and none of the others."""
    holding = [FACTS[each] for each in conditions if not each.startswith(NOT)]
    others = [FACTS[each.removeprefix(NOT)] for each in conditions if each.startswith(NOT)]
    both = " and ".join(filter(None, (", ".join(holding[:-1]), *holding[-1:])))
    return " ".join([f"For: {both}."] * bool(holding) + [f"Not for: {', '.join(others)}."] * bool(others))

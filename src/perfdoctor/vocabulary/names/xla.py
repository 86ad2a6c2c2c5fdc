"""How does XLA name what it does? Its ranges under nsys, and its kernels.

Sources: xla/service/gpu (`gpu_executable.cc`, `backends/gpu/runtime/annotation.cc`): NVTX ranges in the domain TSL,
`XlaModule:#prefix=…,hlo_module=jit_train_step,program_id=11#` around the launches of one execution of a module,
`Thunk:#name=…,hlo_op=fusion.3#` around those of one instruction, and `XlaCompile`, `XlaPass`, `XlaAutotunerMeasurement`
and others while it compiles. nsys writes the domain in front of a name in its tables, `TSL:XlaModule:#…#`.
"""

from __future__ import annotations

from perfdoctor.patterns import regex

#: Any range of XLA.
RANGE = regex(r"^(TSL:)?(Xla[A-Z]\w*|Thunk|AutotuneCacheLookup)(:#|$)")
#: One execution of a compiled module; the module's own name is the group.
MODULE = regex(r"^(?:TSL:)?XlaModule:#(?:prefix=.*?,)?hlo_module=([^,#]+)")
#: The launches of one instruction; its name is the group.
_THUNK = regex(r"^(?:TSL:)?Thunk:#(?:.*?,)?hlo_op=([^,#]+)")
#: How people name the function of one step; jit makes a module `jit_train_step` of it.
STEP_MODULE = regex(r"(?<![a-z])(train|update|step|iteration)(?![a-z])")
#: Kernels that XLA generates are named by their HLO instruction, with a running number behind it. Inductor's
#: `triton_poi_fused_…` are not among them, and nothing that people may call a kernel of their own.
KERNEL = regex(
    r"^(((loop|input)_([a-z]+_)*)?fusion(_\d+)+|(loop|input)_([a-z]+_)+fusion|(gemm|cudnn)_fusion_\w*|triton_softmax(_\d+)+"
    r"|triton_gemm_\w*dot(_\d+)*|wrapped_(add|subtract|multiply|divide|convert|transpose|reduce|broadcast|concatenate"
    r"|slice|dynamic_slice|dynamic_update_slice|scatter|gather|iota|select|compare|copy|pad|tanh|exponential|sqrt|rsqrt"
    r"|log|power|maximum|minimum|negate|sine|cosine|reverse|clamp)(_\d+)*)$"
)
#: Python of JAX and of the libraries on it.
FUNCTION = regex(r"(^|/)(jax|jaxlib|flax|optax|haiku|equinox|orbax|maxtext)/")


def instruction(range_name: str) -> str:
    """`fusion.3`: the HLO instruction whose launches a range holds; "" where it is of something else."""
    found = _THUNK.search(range_name)
    return found[1] if found else ""

"""How does PyTorch name what it does on the host? Steps, ops, autograd, the optimizer, DDP and FSDP, compilation.

Ranges and ops are named by `record_function` and by the dispatcher (`aten::…`), functions by torch.profiler's stacks
(`with_stack=True`) as `file(line): function`.
"""

from __future__ import annotations

import re

from perfdoctor.patterns import regex

# --- steps ---

#: torch.profiler's own mark, written by its `step()`.
PROFILER_STEP = regex(r"^ProfilerStep#\d+$")
#: A range of this name is a step, whatever else marks one.
OWN_STEP = "perfdoctor.step"
#: How people name the ranges that they open around a step.
STEP_WORD = regex(r"(?<![a-z])(train(ing)?[ _]?)?(step|iteration|iter|batch)(?![a-z])", re.IGNORECASE)
#: The same with its number, which others may stand beside: `epoch 0 step 12/100`, `iter 12 loss 0.31`.
STEP_NUMBER = regex(r"(?<![a-z])(?:train(?:ing)?[ _]?)?(?:step|iteration|iter|batch)[\W_]{0,3}(\d+)", re.IGNORECASE)
#: Ranges with such a word, or a running number, that are no steps. An epoch is none; a step's name may hold its number.
NOT_A_STEP = regex(
    r"optim|sched|zero_grad|epoch(?!.*(?<![a-z])(?:step|iteration|iter|batch)[\W_]{0,3}\d)|(?<![a-z])val(?![a-z])|valid|eval|test|copy|load|op_id|ProfilerStep|^aten|^nccl",
    re.IGNORECASE,
)

# --- ranges and ops in a recording ---

#: Ranges that PyTorch opens itself and writes among its ops: torch/profiler, torch/utils/data, torch/optim,
#: torch/nn/parallel, FSDP and torch.compile (`## Call CompiledFxGraph … ##`), c10d's backends.
OWN_RANGE = regex(
    r"^ProfilerStep#\d+|^enumerate\(DataLoader\)|^Optimizer\.(step|zero_grad)#|^## .* ##$"
    r"|^DistributedDataParallel\.forward|^(nccl|gloo|hccl|xccl|ucc|mpi):"
)
#: Ops, where a recording has them as ranges (torch.autograd.profiler.emit_nvtx): namespaces, and autograd's nodes.
OP = regex(
    r"^(aten|autograd|torch|c10|c10d|_c10d_functional|prims|profiler|quantized|torchvision|torchaudio|fbgemm|inductor"
    r"|xformers|flash_attn)::|^\w+Backward\d*$"
)

# --- modules ---

#: Rows of modules: marks of perfdoctor's agent (`nn.Module: Linear GPT.head`), and functions in torch.profiler's stacks
#: (`nn.Module: Linear_0`).
MODULE_PREFIX = "nn.Module: "
MODULE = regex(r"^nn\.Module: ")

# --- batches from tensors in memory (torch/utils/data/_utils/collate.py) ---

#: An item of a tensor, `tensor[i]` or `tensor[i:j]`: no bytes are read.
VIEWS_ITEM = regex(r"^aten::(select|slice|narrow)$")
#: Items become a batch; inside of it their bytes are copied.
COLLATES = regex(r"^aten::stack$")
CONCATENATES = regex(r"^aten::cat$")

# --- autograd ---

#: A node of the backward pass at work (torch/csrc/autograd/engine.cpp).
AUTOGRAD_NODE = regex(r"^autograd::engine")
#: The same where the node's name follows.
EVALUATED_NODE = regex(r"^autograd::engine::evaluate_function: ")
#: A range around a backward pass; autograd's own rows (MulBackward0) are its work and no such range.
BACKWARD = regex(r"^\W*(loss[._ ])?backward([ _]pass)?(\(\))?\W*$", re.IGNORECASE)
#: The node that stores a parameter's gradient, also inside another name; DDP sends a bucket from its hook.
GRADIENT_HOOK = regex(r"AccumulateGrad")
#: That node itself, and the op by which it adds to a gradient that is there.
STORES_GRADIENT = regex(r"^(autograd::engine::evaluate_function: )?torch::autograd::AccumulateGrad$")
ADDS_IN_PLACE = regex(r"^aten::add_$")
#: Gradients of `table[indices]`, `nn.Embedding`, `gather` and `take`.
LOOK_UP_GRADIENT = regex(
    r"evaluate_function: (Index|IndexPut|Embedding|Gather|Take)\w*Backward"
    r"|^aten::(_?index_put\w*|embedding_dense_backward)$"
)
#: Products of groups of rows, each with a matrix of its own: the tokens of a layer's experts.
GROUPED_PRODUCT = regex(r"^aten::_(scaled_)?grouped_mm(_v2)?$")
#: What sorts rows by a number, gathers them and puts them back: tokens by expert, where there are experts.
PERMUTES_ROWS = regex(
    r"^aten::(_?index|index_select|_?index_put\w*|index_add_?|gather|scatter\w*|(arg)?sort|topk|histc|bincount|take_along_dim)$"
    r"|(?<![a-z])(un)?permute_tokens|moe_(un)?permute",
    re.IGNORECASE,
)
#: Functions of the forward pass that no gradient formula uses. `aten::linear` and `aten::matmul` are not among them:
#: functions with a backward of their own call those there.
FORWARD_ONLY = regex(
    r"^aten::(conv[123]d|batch_norm|native_batch_norm|cudnn_batch_norm|miopen_batch_norm|layer_norm|native_layer_norm"
    r"|group_norm|native_group_norm|rms_norm|relu_?|gelu|silu_?|leaky_relu_?|max_pool[123]d|adaptive_avg_pool2d"
    r"|softmax|dropout|scaled_dot_product_attention|_flash_attention_forward|_efficient_attention_forward"
    r"|_scaled_dot_product_\w+_attention|embedding)$"
)
#: Ops that make a tensor without values. Results of structured ops are made without one of their own.
ALLOCATES = regex(r"^aten::empty(_strided)?$")
LINEAR = regex(r"^aten::linear$")

# --- the update of the parameters ---

#: torch.optim's own range: `Optimizer.step#Adam.step`.
OPTIMIZER_STEP = regex(r"^Optimizer\.step#")
#: Ranges and ops that span an optimizer's update, also those that people open.
OPTIMIZER_RANGE = regex(
    OPTIMIZER_STEP.pattern + r"|^\W*optimizer([_ .]?(step|update))?\W*$|\boptimizer[_ ]step\b", re.IGNORECASE
)
#: Optimizers of torch that have neither `fused` nor `foreach`.
ONLY_PER_TENSOR = regex(OPTIMIZER_STEP.pattern + r"(LBFGS|Muon|SparseAdam)\.step$")
#: Python around the update that may ask the device: the scaler of mixed precision, clipping, the optimizers.
UPDATE_FUNCTION = regex(r"torch/(amp/grad_scaler|nn/utils/clip_grad|optim/\w+)\.py\(\d+\): ")
UNSCALES = regex(r"^aten::_amp_foreach_non_finite_check_and_unscale_$")
#: `Optimizer.zero_grad#Adam.zero_grad`, and the function.
ZERO_GRAD = regex(r"\bzero_grad\b", re.IGNORECASE)
#: What a program calls for a tensor full of zeros or of one value; operators fill theirs inside their own.
FILL_ON_REQUEST = regex(r"^aten::(zeros|zeros_like|new_zeros|zero_|full|full_like|new_full|fill_)$")
#: Ops that update many tensors in one call.
MULTI_TENSOR = regex(r"^aten::_foreach_")
#: The update of all tensors by one op.
FUSED_UPDATE = regex(r"^aten::_fused_(adam\w*|sgd|adagrad)_$")
#: These and fused ones; and the mathematics of Muon and Shampoo, which fuses with nothing.
NOT_PER_TENSOR = regex(
    r"^aten::(_fused_|_foreach_)|^aten::(mm|bmm|addmm|baddbmm|matmul|linear|linalg_\w+|_linalg_\w+)$"
)

#: What users call, by the ops inside of PyTorch that it begins with. Others with an underscore, and those that only
#: shape or make memory, have no call of their own.
_CALLS = {
    "aten::lift_fresh": "torch.tensor", "aten::detach_": "torch.tensor", "aten::to": "Tensor.to",
    "aten::_to_copy": "Tensor.to", "aten::copy_": "Tensor.copy_", "aten::item": "Tensor.item",
    "aten::_local_scalar_dense": "Tensor.item", "aten::is_nonzero": "bool(Tensor)", "aten::select": "Tensor[]",
    "aten::slice": "Tensor[]", "aten::index": "Tensor[]", "aten::_index_put_impl_": "Tensor[] =",
}  # fmt: skip
_INTERNAL = regex(
    r"^aten::(_|empty|resize_|set_|alias|as_strided|result_type|contiguous|detach|lift)|^(autograd|c10|torch)::"
)


def call_of(name: str) -> str:
    """What a user calls that begins with this op or kernel: `torch.tensor` of `aten::lift_fresh`; "" for none.

    Kernels and ranges keep their names.
    """
    if name in _CALLS:
        return _CALLS[name]
    return "" if _INTERNAL.search(name) else name.removeprefix("aten::")


# --- loops over tensors, written in Python ---

NORM = regex(r"^aten::(linalg_vector_norm|norm|linalg_norm)$")
SCALE = regex(r"^aten::(mul_|div_)$")
#: In-place arithmetic: an average, a decay, a clamp or an update of the tensor itself.
UPDATE = regex(r"^aten::(mul|add|sub|div|lerp|clamp|clamp_min|clamp_max|addcmul|addcdiv|sqrt|clip)_$")
#: The same by hand: a new value is computed and copied into the tensor.
COMPUTES = regex(r"^aten::(mul|add|sub|div|lerp|true_divide)$")
COPIES_INTO = regex(r"^aten::copy_$")
#: What else may be asked for in such a loop: arithmetic of each element, and views. A layer has other ops beside these.
PLAIN_ARITHMETIC = regex(
    r"^aten::(to|detach|detach_|view|alias|clone|empty_like|zeros_like|item|_local_scalar_dense|mul|add|sub|rsub|div|neg|pow"
    r"|square|sum|sqrt|rsqrt|lerp|sign|clamp|copy_|zero_|true_divide|mul_|add_|pow_|neg_|addcmul|addcdiv|is_nonzero)$"
)

# --- other ops ---

#: Ops that hand a value, or a number of elements, from the device to Python.
READS_VALUE = regex(
    r"^aten::(_local_scalar_dense|item|is_nonzero|nonzero|nonzero_numpy|equal|masked_select|_?unique\w*|argwhere|allclose)$"
)
#: Those of them that do nothing else: where no value is read they are not called.
ONLY_READS_VALUE = regex(r"^aten::(_local_scalar_dense|item|is_nonzero)$")
#: Ops that cut a tensor into the pieces over which a loop in Python goes: `for row in tensor`.
CUTS_TENSOR = regex(r"^aten::(unbind|(unsafe_)?split(_with_sizes)?|(unsafe_)?chunk|tensor_split)$")
#: Ops whose sizes are those of a matmul or a convolution.
MATMUL = regex(
    r"^aten::(mm|addmm|bmm|baddbmm|_scaled_mm|_int_mm|cudnn_convolution|convolution_backward|cudnn_convolution_backward_(input|weight))$"
)
BATCHED_MATMUL = regex(r"^aten::(bmm|baddbmm)$")
#: Ops that autocast computes in fp32, forward and backward ("CUDA Ops that can autocast to float32",
#: docs.pytorch.org/docs/stable/amp.html).
KEPT_IN_FP32 = regex(
    r"^aten::(_?(log_)?softmax|softmin|(native_)?(layer|group)_norm|rms_norm|_fused_rms_norm|exp|expm1|log|log2|log10|log1p|pow"
    r"|rsqrt|reciprocal|sum|prod|cumsum|cumprod|norm|linalg_vector_norm|renorm|dist|cdist|softplus|nll_loss\w*"
    r"|cross_entropy_loss|(mse|l1|smooth_l1|huber|soft_margin)_loss|binary_cross_entropy\w*|kl_div|sinh|cosh|tan|acos|asin"
    r"|erfinv)(_forward|_backward|_backward_data)?_?$"
)
#: The loss of a classification: its targets are the items of a batch.
CLASSIFICATION_LOSS = regex(r"^aten::nll_loss_forward$")

#: Ops that exist on processors alone: oneDNN's, and convolutions and attention written for them.
CPU_ONLY = regex(
    r"^aten::(_?mkldnn_|_?slow_conv|thnn_conv|_nnpack_|_scaled_dot_product_flash_attention_for_cpu)|^mkldnn"
)
#: Ops that exist on GPUs alone: cuDNN's, MIOpen's, Apple's (MPS), the fused attention of CUDA.
GPU_ONLY = regex(
    r"^aten::(_?cudnn_(convolution|batch_norm|rnn|ctc_loss|grid_sampler|affine_grid)|miopen_(convolution|batch_norm|rnn)"
    r"|_flash_attention_|_efficient_attention_|_?mps_\w+|_lstm_mps|lstm_mps_backward)"
)

# --- several devices, several ranks ---

#: torch.nn.DataParallel marks its forward pass so; DistributedDataParallel has a longer name.
DATA_PARALLEL = regex(
    r"^DataParallel\.forward$|^nn\.Module: DataParallel(_\d+)?$|parallel/data_parallel\.py\(\d+\): forward"
)
#: torch/nn/parallel/distributed.py; it sends the model's buffers here.
DDP_FORWARD = regex(r"^DistributedDataParallel\.forward")
#: Parameters that are kept on the host, and what fetches them: FSDP and DeepSpeed with offloading.
FETCHES_PARAMETERS = regex(r"FSDP|FullyShardedDataParallel|offload|unshard|partition\w*_param|swap_in", re.IGNORECASE)
#: The host waits for other ranks: c10d's barriers, its stores and rendezvous.
PEER_WAIT = regex(r"barrier|rendezvous|store[:.]?(get|wait)|TCPStore|c10d::wait", re.IGNORECASE)
#: Collectives of Python objects stand until every rank has sent its own.
PEER_WAIT_FUNCTION = regex(
    r"torch/distributed/distributed_c10d\.py\(\d+\): (\w*barrier|(all_)?gather_object|(broadcast|scatter)_object_list)"
)

# --- a model that is made or loaded ---

#: Initialisers of weights, and what fills a model from a file: PyTorch, Transformers and timm, safetensors.
WEIGHTS = regex(
    r"torch/nn/init\.py\(\d+\): |torch/serialization\.py\(\d+\): (_?load|_legacy_load)$"
    r"|safetensors.*: (load_file|safe_open)|\.py\(\d+\): (load_state_dict|_?load_pretrained\w*|from_pretrained"
    r"|_?init_weights|load_checkpoint|reset_parameters)$"
)
#: A module that moves to a device or to another type (torch/nn/modules/module.py).
MODEL_MOVES = regex(r"torch/nn/modules/module\.py\(\d+\): (to|cuda|_apply|half|bfloat16)$")

# --- checkpoints, compilation ---

#: torch.save and torch.distributed.checkpoint, what people call a function that saves, and how files reach the disk.
STORAGE = regex(
    r"torch[./]serialization|torch\.save|save_?checkpoint|checkpoint_?(save|saving|write|io)|write_?checkpoint|\bsaving\b"
    r"|dcp\.save|distributed\.checkpoint\.(async_)?save|\bos\.(fsync|replace|rename)\b|\bsave\b.*checkpoint",
    re.IGNORECASE,
)
#: Compilers at work (Dynamo, Inductor, Triton, NVRTC, cuDNN's search, XLA); not the compiled code at work
#: ("Torch-Compiled Region", "CompiledFunction", and `run` and `wrapper` of compile_fx.py, which call it).
COMPILATION = regex(
    r"_compile\.<?\w{0,80}compile|compile_fx(?!\.py\(\d+\): (\S{0,200}\.)?(run|wrapper)(?!\w))"
    r"|torch[./]_(dynamo[./](convert_frame|symbolic_convert)|inductor[./](compile(?!_fx\.py)|codegen|graph))"
    r"|dynamo_timed|(cudnn|miopen)_?Find|(nv|hip)rtc|CompilationTask|entire_frame_compile|backend_compile"
    r"|async_?compile[.(:]|PyCodeCache|compile_to_module"
    # A tuner looks its answer up at every call: only measuring candidates is tuning. Likewise a compiled Triton kernel.
    r"|autotun(?!\w*\.py\()|autotun\w*\.py\(\d+\): \w*(bench|tune|profile|precompile)"
    r"|triton[./]compiler(?!/\w+\.py\(\d+\): (__getattr\w*|launch_metadata|run)$)"
    r"|^(TSL:)?Xla(?!Module\b)[A-Z]\w*:#",
    re.IGNORECASE,
)

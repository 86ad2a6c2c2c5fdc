"""Are ranges, ops and functions of PyTorch distinguished by their names?"""

from __future__ import annotations

from tables import of_each

from perfdoctor.vocabulary.names import torch


@of_each(
    ("pattern", "names", "others"),
    [
        (torch.PROFILER_STEP, ["ProfilerStep#12"], ["ProfilerStep", "my ProfilerStep#1"]),
        (torch.STEP_WORD, ["train_step", "step 17", "Training Iteration"], ["stepping", "batches"]),
        (torch.STEP_NUMBER, ["Step: 17/100", "epoch_0_train_step_12", "iter 5 of 200"], ["stepwise 3", "step", "batch_size 4"]),
        (torch.NOT_A_STEP, ["optimizer step", "eval step", "val/step 3", "step 3 of epoch", "aten::add"], ["step 17", "interval 3", "epoch 0 step 12"]),
        (torch.OWN_RANGE, ["## Call CompiledFxGraph f1 ##", "nccl:all_reduce", "Optimizer.zero_grad#SGD.zero_grad"], ["forward"]),
        (torch.OP, ["aten::add", "AddmmBackward0", "c10d::allreduce_"], ["forward", "my::op"]),
        (torch.AUTOGRAD_NODE, ["autograd::engine::evaluate_function: AddBackward0"], ["AddBackward0"]),
        (torch.BACKWARD, ["backward", "loss.backward()", "## Backward pass ##"], ["MulBackward0", "backward hook"]),
        (torch.GRADIENT_HOOK, ["torch::autograd::AccumulateGrad"], ["AddBackward0"]),
        (torch.STORES_GRADIENT, ["torch::autograd::AccumulateGrad"], ["my torch::autograd::AccumulateGrad"]),
        (torch.LOOK_UP_GRADIENT, ["aten::embedding_dense_backward", "aten::_index_put_impl_"], ["aten::embedding"]),
        (torch.FORWARD_ONLY, ["aten::conv2d", "aten::_scaled_dot_product_flash_attention"], ["aten::linear", "aten::mm"]),
        (torch.OPTIMIZER_STEP, ["Optimizer.step#Adam.step"], ["optimizer.step"]),
        (torch.OPTIMIZER_RANGE, ["Optimizer.step#Adam.step", "optimizer.step", "[optimizer]"], ["optimizer state"]),
        (torch.UPDATE_FUNCTION, ["torch/optim/adamw.py(12): step"], ["train.py(3): step"]),
        (torch.ZERO_GRAD, ["Optimizer.zero_grad#SGD.zero_grad"], ["zero_gradient"]),
        (torch.FILL_ON_REQUEST, ["aten::zeros", "aten::zero_"], ["aten::ones", "aten::zeros_like_backward", "aten::fill"]),
        (torch.NOT_PER_TENSOR, ["aten::_foreach_add_", "aten::linalg_qr"], ["aten::add_"]),
        (torch.UPDATE, ["aten::lerp_"], ["aten::lerp", "aten::copy_"]),
        (torch.PLAIN_ARITHMETIC, ["aten::sqrt", "aten::zero_"], ["aten::mm"]),
        (torch.CUTS_TENSOR, ["aten::unbind", "aten::split_with_sizes"], ["aten::unbind_copy", "aten::select"]),
        (torch.READS_VALUE, ["aten::item", "aten::_unique2"], ["aten::to"]),
        (torch.MATMUL, ["aten::addmm", "aten::cudnn_convolution_backward_input"], ["aten::matmul"]),
        (torch.DATA_PARALLEL, ["DataParallel.forward", "nn.Module: DataParallel_0"], ["DistributedDataParallel.forward"]),
        (torch.DDP_FORWARD, ["DistributedDataParallel.forward"], ["DataParallel.forward"]),
        (torch.FETCHES_PARAMETERS, ["FSDP::unshard", "partition_all_parameters_param"], ["forward"]),
        (torch.PEER_WAIT, ["c10d::barrier", "TCPStore", "store:get"], ["c10d::allreduce_", "restore"]),
        (torch.PEER_WAIT_FUNCTION, ["torch/distributed/distributed_c10d.py(3): all_gather_object"], ["main.py(3): barrier"]),
        (torch.STORAGE, ["torch.save", "save_checkpoint", "os.replace"], ["activation checkpoint"]),
        (torch.COMPILATION, ["compile_fx", "torch/_inductor/compile_fx.py(5): compile_fx_inner", "dynamo_timed", "triton/compiler/compiler.py(1): compile"],
         ["Torch-Compiled Region: 0/0", "CompiledFunction", "torch/_inductor/compile_fx.py(12): run", "triton/compiler/compiler.py(9): run"]),
    ],
)  # fmt: skip
def test_names_are_distinguished(pattern, names, others):
    assert all(pattern.search(name) for name in names)
    assert not any(pattern.search(name) for name in others)


@of_each(
    ("op", "call"),
    [
        ("aten::lift_fresh", "torch.tensor"), ("aten::_to_copy", "Tensor.to"), ("aten::linear", "linear"),
        ("aten::_foreach_add_", ""), ("autograd::engine::evaluate_function: AddBackward0", ""), ("aten::empty", ""),
        ("sgemm_128x64", "sgemm_128x64"),
    ],
)  # fmt: skip
def test_an_op_is_named_as_users_call_it_or_not_at_all(op, call):
    assert torch.call_of(op) == call

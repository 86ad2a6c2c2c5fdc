"""What a stack proves about an allocation, and what it does not."""

from __future__ import annotations

import pytest
from snapshots import frame
from tables import of_each

from perfdoctor.readers.torch_memory.stacks import Stack, frame_of_row, stack_of

SITE = "/opt/env/lib/python3.11/site-packages/"
OWN, MODEL = "/home/ann/work/train.py:9 main", "/home/ann/work/model.py:4 forward"
CALL = SITE + "torch/nn/modules/module.py:1775 _call_impl"
LINEAR = SITE + "torch/nn/modules/linear.py:134 forward"
GATHER = SITE + "torch/distributed/fsdp/_fully_shard/_fsdp_param.py:475 init_all_gather_outputs"
BACKWARD = SITE + "torch/autograd/graph.py:824 _engine_run_backward"
ENGINE = "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::ReadyQueue> const&)"
CASES = {
    "activations of own code": ([MODEL, CALL, OWN], "activations"),
    "activations of a layer": ([LINEAR, CALL, MODEL, CALL, OWN], "activations"),
    "a function of torch outside of a module": ([SITE + "torch/nn/functional.py:2300 softmax", OWN], "activations"),
    "a line of one's own outside of a module": ([OWN], "unknown"),
    "state": ([SITE + "torch/optim/adamw.py:190 _init_group", SITE + "torch/optim/adamw.py:222 step", OWN], "optimizer_state"),
    "an update": ([SITE + "torch/optim/adam.py:700 _multi_tensor_adam", OWN], "optimizer_work"),
    "forward in a closure of step": ([LINEAR, CALL, MODEL, OWN, SITE + "torch/optim/lbfgs.py:330 step", OWN], "activations"),
    "one's own folder named optim": (["/home/ann/optim/train.py:3 main"], "unknown"),
    "a layer is made": ([SITE + "torch/nn/modules/linear.py:106 __init__", "/home/ann/work/model.py:2 __init__", OWN], "parameters"),
    "a model is moved": ([SITE + "torch/nn/modules/module.py:1340 convert", SITE + "torch/nn/modules/module.py:930 _apply", OWN], "parameters"),
    "weights are drawn": ([SITE + "torch/nn/init.py:80 _no_grad_normal_", OWN], "parameters"),
    "a layer gathered in a forward": ([GATHER, SITE + "torch/distributed/fsdp/_fully_shard/_fsdp_state.py:253 _pre_forward", CALL, OWN], "communication"),
    "a layer inside of a wrapped one": ([LINEAR, CALL, MODEL, SITE + "torch/distributed/fsdp/_fully_shard/_fsdp_state.py:253 fwd", OWN], "activations"),
    "started by torchrun": ([MODEL, OWN, SITE + "torch/distributed/elastic/multiprocessing/errors/__init__.py:362 wrapper"], "activations"),
    "a gradient": (["torch::autograd::AccumulateGrad::apply(...)", ENGINE], "gradients"),
    "another tensor of the backward pass": (["at::native::mm(at::Tensor const&)", ENGINE], "backward"),
    "backward seen from Python": ([SITE + "torch/_functorch/x.py:3 call", BACKWARD, OWN], "backward"),
    "computed again in the backward pass": ([LINEAR, CALL, MODEL, BACKWARD, OWN], "backward"),
    "workspace": (["at::cuda::getCUDABlasLtWorkspace()", LINEAR, CALL, MODEL, OWN], "workspace"),
    "no frame": ([], "no_stack"),
}  # fmt: skip


def of(*texts):
    return stack_of([frame_of_row(frame(text)) for text in texts])


@of_each(("frames", "category"), CASES.values())
def test_a_category_is_what_the_frames_prove(frames, category):
    assert of(*frames).category == category


def test_the_line_is_the_innermost_of_own_code_without_its_folders():
    stack = of("at::native::empty()", LINEAR, CALL, MODEL, CALL, OWN)
    assert stack.line == "work/model.py:4 forward"
    assert stack.stack == "work/model.py:4 forward < work/train.py:9 main"


def test_on_windows_too():
    stack = of(r"C:\Users\ann\env\Lib\site-packages\torch\functional.py:373 einsum", r"D:\work\lm\model.py:39 forward")
    assert (stack.line, stack.category) == ("lm/model.py:39 forward", "activations")


def test_without_own_code_a_librarys_innermost_line_is_shown():
    assert of(LINEAR, CALL, SITE + "torchtitan/models/model.py:340 forward").line == "models/model.py:340 forward"
    assert of(LINEAR).line == "modules/linear.py:134 forward"
    assert of("torch::unwind::unwind()", "cublasCreate").line == "cublasCreate"


@pytest.mark.parametrize(
    "recorder",
    [
        SITE + "torch/cuda/memory.py:837 _record_memory_history",
        SITE + "torch/cuda/_memory_viz.py:90 trace",
        SITE + "torch/profiler/profiler.py:700 __enter__",
        SITE + "torch/autograd/profiler.py:330 __enter__",
        SITE + "perfdoctor/recording/agent/perfdoctor_agent/agent.py:90 step",
        "/run/agent/perfdoctor_agent/memory.py:4 sampled",
        "torch::unwind::unwind()",
        "torch::CapturedTraceback::gather(bool, bool, bool)",
        "torch::cuda::(anonymous namespace)::gather_with_cpp()",
        "c10::cuda::CUDACachingAllocator::recordHistory(bool)",
    ],
)
def test_whoever_records_is_never_the_place(recorder):
    assert of(recorder, OWN).stack == "work/train.py:9 main"
    assert of(recorder, LINEAR).line == "modules/linear.py:134 forward"
    assert of(recorder) == Stack("", "", "unknown")


def test_without_python_the_op_is_the_place_and_not_what_allocates_for_all_ops():
    allocating = [
        "torch::cuda::(anonymous namespace)::gather_with_cpp()",
        "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(int, unsigned long, CUstream_st*)",
        "at::TensorBase at::detail::_empty_generic<long>(c10::ArrayRef<long>, c10::Allocator*)",
        "at::(anonymous namespace)::structured_nll_loss_backward_out_cuda_functional::set_output_raw_strided(long)",
    ]
    assert of(*allocating, "at::meta::structured_nll_loss_backward::meta(at::Tensor const&)", ENGINE).line == (
        "at::meta::structured_nll_loss_backward::meta(at::Tensor const&)"
    )
    assert of(*allocating[:2]).line == allocating[1], "nothing else is known"


def test_lines_repeated_by_recursion_are_shown_once_and_a_stack_is_short():
    stack = of(*[MODEL] * 30, *[f"/home/ann/work/a.py:{n} f" for n in range(30)])
    assert stack.stack.startswith("work/model.py:4 forward < work/a.py:0 f < ")
    assert stack.stack.count(" < ") == 3


@pytest.mark.parametrize("row", [None, 7, "x", [], {}, {"filename": 1, "line": "x", "name": None}, {"filename": [[]]}])
def test_a_frame_of_any_other_shape_proves_nothing(row):
    assert stack_of([frame_of_row(row)]).category == "unknown"

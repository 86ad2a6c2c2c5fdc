"""Is a line of the user's own distinguished from those of libraries?"""

from __future__ import annotations

import pytest

from perfdoctor.vocabulary.names import python_code
from perfdoctor.vocabulary.names.python_code import is_library, is_user_function


@pytest.mark.parametrize("name", [
        "train.py(12): step", "src/model/attention.py(3): forward", "<ipython-input-3-1f>(2): f", "<stdin>(1): <module>",
        "lightning_modules/model.py(3): forward", "Cell In[3](2): prepare",
    ],
)  # fmt: skip
def test_a_line_in_a_file_of_no_library_is_the_users(name):
    assert is_user_function(name)
    assert not is_library(name)


@pytest.mark.parametrize(
    "name",
    [
        "torch/nn/modules/module.py(1501): _call_impl", "/usr/lib/python3.11/site-packages/tqdm/std.py(3): __iter__",
        "/usr/lib64/python3.13t/json/decoder.py(3): decode", "pytorch_lightning/trainer.py(3): fit",
        "threading.py(982): run", "<frozen runpy>(88): _run_code", "perfdoctor_agent/ranges.py(3): step",
    ],
)  # fmt: skip
def test_lines_of_libraries_are_not(name):
    assert is_library(name)
    assert not is_user_function(name)


@pytest.mark.parametrize(
    ("below", "waits"),
    [
        (["lib/python3.11/queue.py(171): Queue.get", "lib/python3.11/threading.py(327): Condition.wait"], True),
        (["queue.py(171): get", "threading.py(327): wait"], True),
        (["lib/python3.13/threading.py(1094): Thread.join"], True),
        (["lib/python3.11/concurrent/futures/_base.py(451): Future.result", "threading.py(327): Condition.wait"], True),
        (
            ["site-packages/torch/utils/data/dataloader.py(725): __next__", "lib/python3.11/queue.py(171): Queue.get"],
            False,
        ),
        (["lib/python3.11/json/__init__.py(231): dumps"], False),
        ([], False),
    ],
)
def test_the_programs_own_wait_for_a_thread_is_not_that_of_a_library(below, waits):
    stack = "\n".join(["train.py(40): <module>", "train.py(30): fetch", *below])
    assert python_code.waits_for_thread(stack) == waits


def test_what_is_no_line_is_nobodys():
    assert not is_user_function("aten::add")


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        (python_code.OWN_AGENT, ["/x/perfdoctor_agent/ranges.py(3): step"], ["my_perfdoctor_agent/ranges.py(3): step"]),
        (python_code.PYTHON_FILE, ["train.py", "<stdin>", "/tmp/ipykernel_12/1.py"], ["??", "libtorch.so"]),
        (python_code.TORCH_FILE, ["/x/site-packages/torch/nn/functional.py"], ["/home/me/torchtitan/train.py"]),
        (python_code.LIBRARY_FILE, ["/x/site-packages/tqdm/std.py", "/usr/lib/python3.11/json/x.py"], ["/home/me/a.py"]),
        (python_code.COMMUNICATION_FILE, ["/x/torch/distributed/fsdp/api.py"], ["/x/torch/distributed/run.py"]),
        (python_code.OPTIMIZER_FILE, ["/x/torch/optim/adamw.py", "/x/apex/optimizers/a.py"], ["/x/optimal/a.py"]),
        (python_code.WORKSPACE_FUNCTION, ["at::cuda::getCurrentCUDABlasLtWorkspace()"], ["at::empty"]),
    ],
)  # fmt: skip
def test_whole_paths_are_distinguished(pattern, names, others):
    assert all(pattern.search(name) for name in names)
    assert not any(pattern.search(name) for name in others)


@pytest.mark.parametrize(
    ("name", "is_step"),
    [
        ("/usr/lib/python3/site-packages/gymnasium/envs/classic_control/cartpole.py(160): CartPoleEnv.step", True),
        ("gymnasium/wrappers/common.py(125): TimeLimit.step", True), ("my_envs/maze.py(12): step", True),
        ("world.py(40): MazeEnv.step", True), ("train.py(40): step", False), ("torch/optim/adam.py(3): Adam.step", False),
        ("gymnasium/envs/classic_control/cartpole.py(90): CartPoleEnv.reset", False),
    ],
)  # fmt: skip
def test_a_step_of_an_environment_is_known_by_its_file_or_class(name, is_step):
    assert bool(python_code.ENVIRONMENT_STEP.search(f"train.py(1): main\n{name}\nnumpy/x.py(3): f")) is is_step

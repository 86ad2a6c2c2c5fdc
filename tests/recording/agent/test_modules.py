"""Marks of modules in real programs: what they name, and that odd modules and compilers come through unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch_python import torch_python
from warm_torch import ALL_AT_ONE, Program

from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.readers.kineto import trace as kineto
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow

pytestmark = [pytest.mark.torch, ALL_AT_ONE]
STEPS = 3

MODEL = """
import torch
from torch import nn
torch.set_num_threads(1)
class Block(nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.fc, self.shared = nn.Linear(8, 8), shared
    def forward(self, x):
        return self.shared(self.fc(x).relu())
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        shared = nn.LayerNorm(8)
        self.layers = nn.ModuleList(Block(shared) for _ in range(2))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return nn.Dropout(0.5)(x)  # made anew in each step, and in no tree
model, loss = Net(), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(model=model):
    optimizer.zero_grad(); loss(model(torch.ones(4, 8)), torch.zeros(4, 8)).backward(); optimizer.step()
"""


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Frame]:
    """`recorded(script)`: the modules in its trace; it must have printed `said` and no more. In a warm Python or a real."""

    def run(script: str, said: str = "", *, modules: bool = True, real: bool = False) -> Frame:
        program = tmp_path / "program.py"
        program.write_text(MODEL + textwrap.dedent(script), "utf-8")
        for name in ("agents", "torch", "nccl"):
            (tmp_path / name).mkdir()
        environment = torch_profiler.environment(
            os.environ, PassSettings("torch", tmp_path / "torch", "cpu"), StepWindow(STEPS, 3, modules=modules),
            reports=tmp_path / "agents", nccl=tmp_path / "nccl",
        )  # fmt: skip
        if real:
            command = [torch_python(), program]
            done = subprocess.run(
                command, env=environment, cwd=tmp_path, text=True, capture_output=True, timeout=120, check=False
            )
            ended = done.returncode, done.stdout, done.stderr
        else:
            ended = Program([program], tmp_path, environment).finish()
        assert ended == (0, said, "")
        (report,) = [json.loads(file.read_text()) for file in (tmp_path / "agents").glob("*.json")]
        assert (report["state"], report["steps_recorded"], report["notes"]) == ("written", STEPS, [])
        return trace()["modules"]

    def trace() -> Timeline:
        return kineto.read(tmp_path / "torch" / "rank0.pt.trace.json")

    run.ranges = lambda: trace().ranges  # type: ignore[attr-defined]
    return run


def forwards(modules: Frame) -> Counter[str]:
    return Counter(modules.take(~modules["is_backward"].astype(bool)).name)


def test_forwards_have_paths_and_backward_nodes_those_of_the_modules_that_made_them(recorded) -> None:
    modules = recorded("for _ in range(8): step()")
    assert forwards(modules) == {
        "Net": STEPS, "Net.layers.0": STEPS, "Net.layers.1": STEPS, "Net.layers.0.fc": STEPS,
        "Net.layers.1.fc": STEPS,
        "Net.layers.0.shared": 2 * STEPS,  # the first of its paths
        "Net.Dropout": STEPS, "MSELoss": STEPS,
    }  # fmt: skip
    classes = dict(zip(modules.name, modules.text("module_class"), strict=True))
    assert (classes["Net"], classes["Net.layers.1"], classes["Net.layers.1.fc"]) == ("Net", "Block", "Linear")
    backward = Counter(modules.take(modules["is_backward"].astype(bool)).name)
    # relu in each block, one norm twice, and what a Linear makes: transpose and addmm.
    assert (backward["Net.layers.0"], backward["Net.layers.0.shared"], backward["MSELoss"]) == (STEPS, 2 * STEPS, STEPS)
    assert backward["Net.layers.1.fc"] == 2 * STEPS
    assert "Net" not in backward


def test_what_autograd_itself_says_of_a_node_is_what_its_number_says(recorded) -> None:
    """Each module's first node opens a range with the module's path while it runs: the row around it has that path.

    Some of it is computed again in the backward pass, on whatever thread that is.
    """
    script = """
    from torch.utils.checkpoint import checkpoint
    record = torch.profiler.record_function
    def truth(path):
        def forward_hook(module, inputs, output):
            open_ranges = []
            def enter(_):
                open_ranges.append(record("truth " + path)); open_ranges[-1].__enter__()
            def leave(*_):
                open_ranges.pop().__exit__(None, None, None)
            output.grad_fn.register_prehook(enter); output.grad_fn.register_hook(leave)
        return forward_hook
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
            self.c = nn.Sequential(nn.Linear(8, 8), nn.GELU())
        def forward(self, x):
            x = self.a(x)
            x = checkpoint(self.c, x, use_reentrant=True) + checkpoint(self.b, x, use_reentrant=False)
            with torch.no_grad():
                self.a(x)
            return self.b(x) * self.a(x)
    net = Twice()
    for path, module in net.named_modules():
        if not list(module.children()):
            module.register_forward_hook(lambda m, i, o, hook=truth("Twice." + path): hook(m, i, o) if o.grad_fn else None)
    for _ in range(8): step(net)
    """
    modules, ranges = recorded(script), recorded.ranges()
    seen = Counter()
    for name, start, end in zip(ranges.name, ranges.start_ns.tolist(), ranges.end_ns.tolist(), strict=True):
        if not name.startswith("truth "):
            continue
        around = (modules.start_ns <= start) & (modules.end_ns >= end) & modules["is_backward"].astype(bool)
        innermost = modules.take(around).name[int(np.flatnonzero(around).size) - 1]
        assert innermost == name.removeprefix("truth ")
        seen[innermost] += 1
    assert {name: count // STEPS for name, count in seen.items()} == {
        "Twice.a": 2, "Twice.b": 2, "Twice.c.0": 1, "Twice.c.1": 1,
    }  # fmt: skip


def test_modules_that_are_unlike_others_are_called_as_before(recorded) -> None:
    script = """
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 8)
        def named_modules(self, *args, **kwargs):
            raise RuntimeError("not here")
        def __getattr__(self, name):
            if name in ("training_", "__wrapped__"):
                raise RuntimeError("nor here")
            return super().__getattr__(name)
        def forward(self, x):
            return self.fc(x)
    Long = type("L" * 1000 + "</script>\\n", (nn.Identity,), {})
    odd = nn.Sequential(Odd(), Long(), nn.Sequential(*(nn.Identity() for _ in range(300))))
    lone = Odd()
    for number in range(8):
        step(odd)
        lone(torch.ones(8))
        try:
            nn.Linear(4, 4)(torch.ones(8))
        except RuntimeError:
            print("raised")
    """
    found = forwards(recorded(script, said="raised\n" * 8))
    assert found["Sequential.2.299"] == found["MSELoss"] == found["Odd"] == STEPS
    assert found["Linear"] == STEPS  # made anew in each step
    assert all(len(name) <= 300 for name in found)


def test_modules_are_let_go_and_nothing_stays_behind_the_window(recorded) -> None:
    script = """
    import gc, weakref
    gone = []
    before = nn.Module.__call__
    for number in range(8):
        made = nn.Linear(8, 8)
        gone.append(weakref.ref(made))
        made(torch.ones(8))
        del made
        step()
    print([each() for each in gone] == [None] * 8)
    for number in range(110): step()
    print(nn.Module.__call__.__qualname__)
    """
    modules = recorded(script, said="True\nModule._wrapped_call_impl\n")
    assert forwards(modules)["Net"] == STEPS


def test_a_compiled_model_is_one_module_and_is_compiled_once(recorded) -> None:
    script = """
    model = torch.compile(Net(), backend="eager")
    for _ in range(8): step(model)
    import torch._dynamo.utils as u
    print(u.counters["stats"]["unique_graphs"], dict(u.counters["graph_break"]))
    """
    found = forwards(recorded(script.replace("Net()", "model"), said="1 {}\n", real=True))
    assert set(found) <= {"OptimizedModule", "MSELoss"}


def test_without_modules_there_are_no_marks(recorded) -> None:
    assert len(recorded("for _ in range(8): step()", modules=False)) == 0

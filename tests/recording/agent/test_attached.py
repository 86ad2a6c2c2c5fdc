"""The agent in a program that runs already, where something goes another way than usual: what stays in the program?

The program lets the file that begins the agent run in a thread, as `perfdoctor attach` does, and gives the orders itself.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from warm_torch import ALL_AT_ONE, Program

from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow

pytestmark = [pytest.mark.torch, ALL_AT_ONE]

_PROGRAM = """
import json, os, sys, threading, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.ones(4, 8)

def step():
    model(data).mean().backward()
    optimizer.step()
    optimizer.zero_grad()

def hooks():
    owners = torch.nn.Module, torch.optim.Optimizer, torch.autograd, torch._dynamo.eval_frame.OptimizedModule
    return [str(each) for owner in owners for each in vars(owner).values()] + [
        len(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks)
    ]

class Attach:
    def __init__(self, number=0, agent={agent!r}):
        self.number, self.orders = number, f"{{number}}.orders"
        os.mkfifo(self.orders)
        self.held = os.open(self.orders, os.O_RDWR | os.O_NONBLOCK)
        given = dict(json.loads({given!r}), orders=self.orders, started=f"{{number}}.started", files=[self.orders], folder=agent)
        code = compile(open({start!r}).read(), "start", "exec")
        self.thread = threading.Thread(target=exec, args=(code, {{"GIVEN": json.dumps(given)}}))
        self.thread.start()

    def report(self):
        with open(f"agents/torch-{{os.getpid()}}.json") as file:
            return json.load(file)

    def until(self, state, act=step):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            act()
            try:
                if state(self.report()):
                    return
            except OSError:
                pass
            time.sleep(0.01)
        raise TimeoutError

    def order(self, text):
        os.write(self.held, text.encode())

    def leave(self, act=step):
        os.close(self.held)
        while self.thread.is_alive():
            act()
            time.sleep(0.01)

step()
before = hooks()
"""

Printed = Callable[..., str]


@pytest.fixture
def printed(tmp_path: Path) -> Printed:
    """What a program prints that attaches to itself."""

    def run(script: str) -> str:
        (tmp_path / "agents").mkdir()
        (tmp_path / "torch").mkdir()
        given = {
            "agent": {
                **torch_profiler.settings(
                    PassSettings("torch", tmp_path / "torch", "cpu"), StepWindow(steps=4, skip=3), reports=tmp_path / "agents"
                ),
                "marked": False,
            }
        }  # fmt: skip
        agent = torch_profiler.AGENT
        program = _PROGRAM.format(agent=str(agent), start=str(agent / "attached_start.py"), given=json.dumps(given))
        (tmp_path / "program.py").write_text(program + textwrap.dedent(script), "utf-8")
        environment = {name: value for name, value in os.environ.items() if name != torch_profiler.VARIABLE}
        code, output, errors = Program([tmp_path / "program.py"], tmp_path, environment).finish()
        assert (code, errors) == (0, "")
        return output

    return run


def test_a_program_with_more_open_files_than_select_knows_is_recorded(printed: Printed) -> None:
    script = """
    import resource
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    files = [open(os.devnull) for _ in range(1100)]
    attach = Attach()
    attach.until(lambda report: report.get("waited"))
    attach.order("go 0\\n")
    attach.until(lambda report: report["state"] == "written")
    attach.leave()
    print(attach.report()["steps_recorded"], hooks() == before)
    """
    assert printed(script) == "4 True\n"


def test_an_agent_whose_thread_fails_leaves_and_says_why(printed: Printed) -> None:
    script = """
    attach = Attach()
    attach.until(lambda report: report.get("waited"))
    attach.order("go far\\n")
    attach.leave()
    report = attach.report()
    print(report["state"], report["ended"], report["notes"][0].split(":")[1].strip(), hooks() == before)
    """
    assert printed(script) == "failed True ValueError True\n"

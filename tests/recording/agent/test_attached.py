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

from perfdoctor.recording.attaching import attachment
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
    def __init__(self, number=0, agent={agent!r}, is_awaited=True, **settings):
        self.number, self.orders = number, f"{{number}}.orders"
        os.mkfifo(self.orders)
        self.held = os.open(self.orders, os.O_RDWR | os.O_NONBLOCK)
        given = dict(json.loads({given!r}), orders=self.orders, started=f"{{number}}.started", files=[self.orders], folder=agent)
        given["agent"].update(settings)
        code = compile(open({start!r}).read(), "start", "exec")
        self.thread = threading.Thread(target=exec, args=(code, {{"GIVEN": json.dumps(given)}}))
        if not is_awaited:
            os.close(self.held)
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
            },
            "source": attachment.source_of(torch_profiler.AGENT),
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


#: An evaluation that begins when so many whole steps are recorded, in a window of steps of 50 ms.
_EVALUATION = """
def slow():
    step()
    time.sleep(0.05)

def evaluate(seconds):
    end = time.monotonic() + seconds
    with torch.no_grad():
        while time.monotonic() < end:
            model(data)
            time.sleep(0.001)

attach = Attach()
attach.until(lambda report: report.get("waited"))
from perfdoctor_agent import attached, window_end
window_end._OVERDUE, window_end._OVERDUE_NS = 2, 400_000_000
window_end._resident_bytes = lambda: 0
attach.order("go 0\\n")
attach.until(lambda report: report["state"] == "recording", slow)
for _ in range({whole}):
    slow()

def has_left():
    report = attach.report()
    assert report["ended"] and hooks() == before and not torch.autograd.profiler._is_profiler_enabled
    return report["steps_recorded"], report["state"], [each.split(": ")[1] for each in report["notes"]]
"""


def test_an_evaluation_in_the_window_ends_it_and_the_whole_steps_are_kept(printed: Printed) -> None:
    script = """
    evaluate(1.5)
    print(*has_left(), len(os.listdir("torch")))
    attach.leave()
    """
    found = printed(_EVALUATION.format(whole=2) + textwrap.dedent(script))
    assert found == "2 written ['the recording ends with the step before'] 1\n"


def test_an_evaluation_before_a_whole_step_is_dropped_and_the_steps_behind_it_are_recorded(printed: Printed) -> None:
    script = """
    evaluate(1.5)
    assert not torch.autograd.profiler._is_profiler_enabled and not os.listdir("torch")
    attach.until(lambda report: report["state"] == "written", slow)
    attach.leave()
    print(*has_left(), len(os.listdir("torch")))
    """
    found = printed(_EVALUATION.format(whole=0) + textwrap.dedent(script))
    assert found == "4 written ['what was recorded until then was dropped, and the recording began anew'] 1\n"


@pytest.mark.parametrize("grows", [False, True])
def test_who_waits_no_more_for_a_window_gets_its_whole_steps_or_nothing_if_there_is_much(
    printed: Printed, grows: bool
) -> None:
    script = f"""
    window_end._OVERDUE_NS = 60_000_000_000
    window_end._resident_bytes = lambda: {grows} << 30
    attach.leave(lambda: evaluate(0.1))
    print(*has_left(), len(os.listdir("torch")))
    """
    found = printed(_EVALUATION.format(whole=2) + textwrap.dedent(script))
    assert found == ("2 failed [] 0\n" if grows else "2 written [] 1\n")


def test_a_window_that_nobody_has_waited_for_in_the_step_is_not_written(printed: Printed) -> None:
    script = """
    attached._AWAITED_S = 0.2
    attach.leave(lambda: (time.sleep(1), step()))
    print(*has_left(), len(os.listdir("torch")))
    """
    assert printed(_EVALUATION.format(whole=2) + textwrap.dedent(script)) == "2 failed [] 0\n"


def test_the_file_that_workers_wait_for_is_closed_where_no_window_came(printed: Printed) -> None:
    script = """
    os.mkdir("ready")
    opened = len(os.listdir("/proc/self/fd"))
    attach = Attach(sampling={"sampler": os.getpid(), "requests": "requests", "ready": "ready", "source": False})
    attach.until(lambda report: report.get("waited"))
    announced = os.listdir("ready")
    attach.leave()
    print(len(announced), os.listdir("ready"), len(os.listdir("/proc/self/fd")) - opened)
    """
    assert printed(script) == "1 [] 0\n"


def test_the_agents_modules_that_stayed_are_taken_again_whatever_folder_they_came_from(printed: Printed) -> None:
    script = """
    import gc, shutil
    gc.disable()
    for number in range(2):
        shutil.rmtree("agents")
        os.mkdir("agents")
        shutil.copytree({agent!r}, f"agent{number}")
        attach = Attach(number, os.path.abspath(f"agent{number}"))
        attach.until(lambda report: report.get("waited"))
        attach.leave()
        shutil.rmtree(f"agent{number}")
        print(attach.report()["state"], attach.report()["notes"])
    sys.modules["perfdoctor_agent"].perfdoctor_source = "older"
    attach = Attach(2)
    attach.leave()
    print(attach.report()["notes"][0].split(":")[-1])
    """
    taken = "watching []\n" * 2
    script = script.replace("{agent!r}", repr(str(torch_profiler.AGENT)))
    assert printed(script) == taken + " another version of it has been in this process\n"


def test_a_process_that_was_forked_during_an_attach_can_be_attached_to(printed: Printed) -> None:
    script = """
    attach = Attach()
    attach.until(lambda report: report.get("waited"))
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        attach.leave()
    else:
        attach = Attach(1)
        attach.until(lambda report: report.get("waited") or report["state"] == "failed")
        print(attach.report()["notes"], flush=True)
        os._exit(0)
    """
    assert printed(script) == "[]\n"


def test_an_agent_that_comes_when_nobody_waits_any_more_leaves(printed: Printed) -> None:
    script = """
    attach = Attach(is_awaited=False)
    attach.thread.join(20)
    print(attach.report()["ended"], hooks() == before)
    """
    assert printed(script) == "True True\n"

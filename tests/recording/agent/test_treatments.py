"""The treatments that come with perfdoctor, in a program with this torch: none fails, and the program trains on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from warm_torch import ALL_AT_ONE, warm_python

from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow
from perfdoctor.treatments import catalogue

pytestmark = [pytest.mark.torch, ALL_AT_ONE]

PROGRAM = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8, 4)

    def forward(self, images):
        seen = checkpoint(self.first, images, use_reentrant=False)
        return self.last(seen.mean((2, 3)))


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
data = TensorDataset(torch.randn(512, 3, 8, 8), torch.randint(4, (512,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
for images, labels in loader:
    optimizer.zero_grad(set_to_none=False)
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
print("finished")
"""
#: Of a group the first; compiling takes a minute, and another precision is another training.
LEFT_OUT = {
    "one_worker",
    "one_thread",
    "foreach_optimizer",
    "compile_model",
    "compile_graphs",
    "autocast_bf16",
    "double_batch",
}
TOUCHED = {
    "loader_workers", "fused_optimizer", "set_to_none", "anomaly_off", "keep_activations", "channels_last",
    "collect_rarely", "glibc_keeps_memory",
}  # fmt: skip


def start(folder: Path, names: list[str], program: str = PROGRAM, **facts: object) -> subprocess.Popen[str]:
    known = catalogue.shipped()
    values = {"cores": 2, "ranks": 1, "threads": 2, "workers": 2, "device": "cpu"}
    treated = {
        "treatments": [{"name": name, "file": known[name].file, "values": values} for name in names],
        "end_after": 12, "nudge": False, "bitwise": False, **facts,
    }  # fmt: skip
    (folder / "agents").mkdir(parents=True)
    (folder / "program.py").write_text(program)
    environment = torch_profiler.environment(
        os.environ, PassSettings("treated", folder, ""), StepWindow(steps=0), reports=folder / "agents", nccl=None,
        treated=treated,
    )  # fmt: skip
    command = [warm_python(folder), str(folder / "program.py")]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def ended(program: subprocess.Popen[str], folder: Path) -> dict[str, object]:
    printed, _ = program.communicate(timeout=240)
    assert program.returncode == 0, printed
    assert "finished" not in printed
    report = next(
        each for each in map(json.loads, (f.read_text() for f in (folder / "agents").glob("*.json"))) if each["stopped"]
    )
    assert report["steps_seen"] == 12
    return report["treated"]


def test_all_treatments_of_a_cpu_together_train_what_the_untreated_program_trains(tmp_path: Path) -> None:
    known = catalogue.shipped()
    names = [
        name for name, each in known.items() if name not in LEFT_OUT and not {"cuda", "ranks", "numa"} & set(each.needs)
    ]
    programs = {
        "plain": start(tmp_path / "plain", []),
        "treated": start(tmp_path / "treated", names),
        "moved": start(tmp_path / "moved", [], nudge=True),
    }
    plain, treated, moved = (ended(program, tmp_path / name) for name, program in programs.items())
    assert treated["errors"] == {}
    assert {name for name, count in treated["touched"].items() if count} >= TOUCHED
    assert len(plain["losses"]) == 12
    assert treated["losses"] == pytest.approx(plain["losses"], rel=1e-4)
    assert moved["losses"][0] == plain["losses"][0]
    assert moved["losses"] != plain["losses"]
    assert moved["losses"] == pytest.approx(plain["losses"], rel=1e-3)
    assert plain["parameter_bytes"] == sum((8 * 3 * 9 + 8, 8 * 4 + 4)) * 4


def test_float16_is_scaled_so_that_the_program_sees_what_it_would_see_without(tmp_path: Path) -> None:
    plain = ended(start(tmp_path / "plain", []), tmp_path / "plain")
    treated = ended(start(tmp_path / "treated", ["autocast_fp16"]), tmp_path / "treated")
    assert treated["errors"] == {}
    assert treated["touched"] == {"autocast_fp16": 1}
    assert treated["losses"] != plain["losses"]
    assert treated["losses"] == pytest.approx(plain["losses"], rel=1e-2)


SCRIPT = """
import sys
import torch
sys.path.insert(0, AGENT)
from perfdoctor_agent.treating import Given

def treat(name, **values):
    space, given = {}, Given(torch, values)
    with open(AGENT + "/perfdoctor_agent/treatments/" + name + ".py") as file:
        exec(compile(file.read(), file.name, "exec"), space)
    space["apply"](torch, given)
    return given

"""
ATTENTION = """
given = treat("sdpa_fused")
from torch.nn.attention import SDPBackend, sdpa_kernel
torch.backends.cuda.enable_flash_sdp(False)
with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
    pass  # the program takes a fused one itself
with sdpa_kernel(SDPBackend.MATH):
    query = torch.randn(1, 2, 64, 32)
    with torch.profiler.profile() as profile:
        torch.nn.functional.scaled_dot_product_attention(query, query, query)
print(given.touched, torch.backends.cuda.flash_sdp_enabled(),
      any("flash_attention" in event.key for event in profile.key_averages()))
"""
CUDNN = """
torch.backends.cuda.enable_cudnn_sdp(False)
treat("sdpa_cudnn")
print(torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled())
"""
BATCHES = """
given = treat("double_batch")
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset
data = TensorDataset(torch.arange(64))
own = DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 4, False))
for loader in (DataLoader(data, batch_size=4), own, DataLoader(data, batch_size=4)):
    print(len(next(iter(loader))[0]), end=" ")
print(given.touched)
"""
PRECISION = """
treat("autocast_bf16")
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, given):
        seen = self.layer(given)
        return {"seen": seen, "both": (seen, given), "list": [seen], "rows": len(given), "index": seen.argmax(1)}

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    made = model(torch.ones(4, 8))
    made["seen"].sum().backward()
    optimizer.step()
kinds = [made["seen"], *made["both"], *made["list"], made["index"]]
print(*(str(each.dtype).removeprefix("torch.") for each in kinds), made["rows"], type(made["both"]).__name__)
print(made["seen"].equal(made["seen"].bfloat16().float()))
"""
OVERFLOW = """
treat("autocast_fp16")
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
weights = []
for _ in range(16):
    optimizer.zero_grad()
    (model(torch.ones(4, 8)).sum() * 100).backward()
    optimizer.step()
    schedule.step()
    weights.append(model.weight.sum().item())
moved = [a != b for a, b in zip(weights, weights[1:])]
print(moved[0], all(moved[-3:]), all(map(torch.isfinite, model.parameters().__next__().flatten())))
"""

CLOSURE = """
given = treat("set_to_none" if OFTEN else "channels_last")  # LBFGS cannot have gradients of other strides
sixteen = treat("autocast_fp16")
torch.manual_seed(0)
model = torch.nn.Conv2d(3, 1, 3)
kinds, weights = [], []
model.register_forward_hook(lambda *_: kinds.append(torch.is_autocast_enabled("cpu")))
optimizer = (torch.optim.LBFGS if OFTEN else torch.optim.Adam)(model.parameters(), lr=1e-6)

def closure():
    optimizer.zero_grad()
    loss = model(torch.ones(2, 3, 4, 4)).square().sum() * 100
    loss.backward()
    return loss

for _ in range(20):
    assert isinstance(optimizer.step(closure), torch.Tensor)
    weights.append(model.weight.sum().item())
hooks = torch.nn.modules.module._global_forward_pre_hooks
print(given.touched, sixteen.touched, len(hooks), weights[-1] != weights[-2], len(set(weights)) < 20,
      all(map(torch.isfinite, model.weight.flatten())))
"""
NO_GRADIENTS = """
treat("autocast_fp16")
model, frozen = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
optimizers = [torch.optim.SGD(each.parameters(), lr=1e-6) for each in (model, frozen)]
for _ in range(3):
    model(torch.ones(4, 8)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
print("trained")
"""
NODES = """
import glob, os
files = []
for number in (0, 1):
    files.append(FOLDER + f"/node{number}")
    with open(files[-1], "w") as file:
        file.write(f"{2 * number}-{2 * number + 1}")
glob.glob, os.sched_getaffinity, taken = lambda _: files, lambda _: {0, 1, 2, 3}, []
os.sched_setaffinity = lambda _, cores: taken.append(sorted(cores))
os.environ.pop("LOCAL_RANK", None)
for ranks in (2, 1):
    treat("numa_affinity", ranks=ranks)
    print(taken, end=" ")
os.environ["LOCAL_RANK"] = "1"
treat("numa_affinity", ranks=2)
print(taken)
"""
RECURRENT = """
import torch._dynamo.config

class Own(torch.nn.LSTM):
    def forward(self, given):
        return (given @ self.weight_ih_l0.T, given)

torch.nn.Module.compile = lambda module: compiled.append(type(module).__name__)
for kind in (torch.nn.LSTM, Own):
    compiled, given, model = [], treat("compile_recurrent"), kind(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(4, 2, 8))[0].sum().backward()
    optimizer.step()
    print(compiled, given.touched, torch._dynamo.config.allow_rnn, end=" ")
"""
ALONE = """
from torch.utils.data import DataLoader, TensorDataset
given = treat("no_workers")
loader = DataLoader(TensorDataset(torch.arange(4)), num_workers=2, multiprocessing_context="spawn", timeout=9)
print(len(list(loader)), given.touched)
"""
COPIES = """
said = []
torch.Tensor.is_pinned = lambda _: True

class Moved:
    def __init__(self, _tensor, *args, non_blocking=None):
        self.is_cuda = args != ("cpu",)
        said.append(non_blocking)

torch.Tensor.to = torch.Tensor.cuda = lambda *args, **kwargs: Moved(*args, **kwargs)
given = treat("pin_memory")
batch = torch.ones(1)
batch.to("cpu")
print(said.pop(), given.touched, end=" ")
batch.to("cuda"), batch.to("cuda", torch.float32), batch.cuda(), batch.cuda(0)
batch.to(torch.float32, True), batch.cuda(0, True), batch.cuda(0, False), batch.to("cuda", non_blocking=False)
print(said, given.touched)
"""
SHUFFLED = """
from torch.utils.data import DataLoader, TensorDataset

def order(workers, **arguments):
    torch.manual_seed(0)
    found = []
    loader = DataLoader(TensorDataset(torch.arange(16)), batch_size=4, shuffle=True, num_workers=workers, **arguments)
    for epoch in range(3):
        for batch, in loader:
            found += batch.tolist() + torch.rand(2).tolist()  # a dropout
    return found, loader.persistent_workers

def generator():
    return torch.Generator().manual_seed(1)

plain, of_own = order(BEFORE)[0], order(BEFORE, generator=generator())[0]
kept = order(1, persistent_workers=True)[0]
given = [treat(name, workers=1) for name in NAMES]
print(order(BEFORE) == (plain, True), order(BEFORE, generator=generator()) == (of_own, True), kept == plain,
      order(1, persistent_workers=True)[0] == kept, sum(each.touched for each in given))
"""


@pytest.mark.parametrize(("before", "names"), [
    (0, ["loader_workers", "persistent_workers"]), (0, ["one_worker"]), (1, ["persistent_workers"]),
])  # fmt: skip
def test_workers_that_are_kept_shuffle_later_epochs_as_new_ones(before: int, names: list[str], tmp_path: Path) -> None:
    given = f"AGENT = {str(torch_profiler.AGENT)!r}\nBEFORE, NAMES = {before}, {names}\n"
    (tmp_path / "script.py").write_text(given + SCRIPT + SHUFFLED)
    done = subprocess.run(
        [warm_python(tmp_path), str(tmp_path / "script.py")], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "True True False True 2", done.stderr


@pytest.mark.parametrize(("script", "printed"), [
    (ATTENTION, "2 True True"), (CUDNN, "True False"), (BATCHES, "8 8 8 3"), (OVERFLOW, "False True True"),
    (PRECISION, "float32 float32 float32 float32 int64 4 tuple\nTrue"), (NO_GRADIENTS, "trained"),
    ("OFTEN = False" + CLOSURE, "1 1 0 True True True"), ("OFTEN = True" + CLOSURE, "0 1 0 True False True"),
    (NODES, "[] [[0, 1]] [[0, 1], [2, 3]]"), (ALONE, "4 1"), (RECURRENT, "[] 0 False ['Own'] 1 True"),
    (COPIES, "True 0 [True, True, True, True, None, None, None, False] 4"),
], ids=["attention", "cudnn", "batches", "overflow", "precision", "no gradients", "closure", "lbfgs",
       "nodes", "alone", "recurrent", "copies"])  # fmt: skip
def test_a_treatment_reaches_the_setting_of_torch(script: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        f"AGENT, FOLDER = {str(torch_profiler.AGENT)!r}, {str(tmp_path)!r}\n" + SCRIPT + script
    )
    done = subprocess.run(
        [warm_python(tmp_path), str(tmp_path / "script.py")], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == printed, done.stderr


def test_parameters_of_64_bits_are_moved_by_roundings_too(tmp_path: Path) -> None:
    program = PROGRAM.replace("Net()", "Net().double()").replace("model(images)", "model(images.double())")
    plain, moved = (
        ended(start(tmp_path / name, [], program, nudge=name == "moved"), tmp_path / name)["losses"]
        for name in ("plain", "moved")
    )
    assert moved[0] == plain[0]
    assert moved != plain
    assert moved == pytest.approx(plain, rel=1e-10)

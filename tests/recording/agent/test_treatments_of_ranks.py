"""Treatments of programs with several ranks, on two of them that meet over gloo: each reaches what torch itself has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torch_python import torch_python

from perfdoctor.recording.treated_run import TrialOrder, TrialProgram, TrialReport, run_trial
from perfdoctor.treatments import catalogue

pytestmark = pytest.mark.torch

PROGRAM = """
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU()) for _ in range(3)]
teacher = torch.nn.Linear(32, 32).requires_grad_(False)
kind = sys.argv[1]
if kind == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(32, 4)))
elif kind == "fsdp1":
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    model = FSDP(torch.nn.Sequential(*[FSDP(layer, device_id="cpu") for layer in layers]), device_id="cpu")
elif kind == "own":
    model = torch.nn.Sequential(*layers, torch.nn.Linear(32, 4))
else:
    from torch.distributed.fsdp import fully_shard
    model = torch.nn.Sequential(*layers, torch.nn.Linear(32, 4))
    for layer in layers:
        fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(16, 32)
for step in range(100):
    optimizer.zero_grad()
    loss = model(teacher(inputs)).square().mean()
    loss.backward()
    if kind == "own":
        inputs = torch.randn(16, 32) + dist.get_rank()
        dist.all_reduce(loss.detach().clone())
        for each in model.parameters():
            dist.all_reduce(each.grad.data)
            each.grad /= 2
        dist.all_reduce(torch.tensor([step]), op=dist.ReduceOp.MAX)
        if step == 5 and dist.get_rank() == 0:
            print("is own")
    optimizer.step()
    if step == 5 and dist.get_rank() == 0:
        if kind == "ddp":
            hook = model._get_ddp_logging_data().get("comm_hook", "")
            print("is", model.static_graph, model.gradient_as_bucket_view, model.broadcast_buffers,
                  model.bucket_bytes_cap >> 20, hook.strip())
        elif kind == "fsdp1":
            print("is", model.forward_prefetch, model.backward_prefetch.name)
        elif kind == "fsdp2":
            state = layers[0]._get_fsdp_state()
            print("is", len(state._states_to_forward_prefetch), len(state._states_to_backward_prefetch))
"""


def run(folder: Path, kind: str, names: list[str], **facts: bool) -> tuple[TrialReport, str]:
    known = catalogue.shipped()
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    command = (torch_python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "program.py")
    program = TrialProgram((*command, kind), {**os.environ, "OMP_NUM_THREADS": "1"}, folder)
    treatments = tuple({"name": name, "file": known[name].file, "values": {}} for name in names)
    report = run_trial(program, TrialOrder(1, treatments, end_after=12, limit_s=200, **facts), folder / "trial")
    printed = [line for line in (folder / "trial" / "output.log").read_text().splitlines() if line.startswith("is ")]
    assert report.why == "", (folder / "trial" / "output.log").read_text()
    assert (report.ranks, report.here) == (2, 2)
    assert all(report.touched.values()), report.touched
    return report, printed[0].removeprefix("is ").strip()


def test_treatments_of_ddp_together_train_what_the_untreated_program_trains(tmp_path: Path) -> None:
    plain, said = run(tmp_path / "plain", "ddp", [])
    assert said == "False False True 25"
    names = ["ddp_static_graph", "ddp_bucket_view", "ddp_large_buckets", "ddp_own_buffers", "ddp_fp16_hook"]
    treated, said = run(tmp_path / "treated", "ddp", names)
    assert said.startswith("True True False 100 fp16_compress_hook")
    assert treated.losses == pytest.approx(plain.losses, rel=1e-3)
    assert treated.losses != plain.losses  # gradients of 16 bits


@pytest.mark.parametrize(("kind", "before", "after"), [
    ("fsdp1", "False BACKWARD_PRE", "True BACKWARD_PRE"), ("fsdp2", "0 0", "1 0"),
])  # fmt: skip
def test_layers_are_gathered_ahead_and_the_training_is_the_same(
    tmp_path: Path, kind: str, before: str, after: str
) -> None:
    plain, said = run(tmp_path / "plain", kind, [])
    assert said == before
    treated, said = run(tmp_path / "treated", kind, ["fsdp_prefetch"])
    assert said == after
    assert treated.losses == pytest.approx(plain.losses, rel=1e-6)


def test_parameters_that_ranks_share_out_are_moved_and_summed_up_too(tmp_path: Path) -> None:
    moved, _ = run(tmp_path / "moved", "fsdp2", [], nudge=True, bitwise=True)
    assert moved.nudged == 14  # all of them
    assert len(moved.checksum) == 64


def test_gradients_are_sent_in_one_message_also_beside_a_loss_that_is_added_up(tmp_path: Path) -> None:
    plain, _ = run(tmp_path / "plain", "own", [])
    treated, _ = run(tmp_path / "treated", "own", ["merged_all_reduces"])
    assert treated.losses == pytest.approx(plain.losses, rel=1e-6)
    assert treated.touched["merged_all_reduces"] >= 10  # in each step but the first

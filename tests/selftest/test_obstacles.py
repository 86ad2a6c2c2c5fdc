"""Is what a tool prints on a machine that hinders it explained, each with what to do?"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from real_nsys import nsys as real_nsys
from tables import of_each

from perfdoctor.recording.tools import nsys
from perfdoctor.selftest import obstacles

#: What the tools print, and a word of what to do. From NVIDIA's and PyTorch's own sources and issues.
MESSAGES = [
    ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters", "SYS_ADMIN"),
    ("WARNING: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES in cuptiActivityEnable", "NVreg_RestrictProfilingToAdminUsers=0"),
    ("function cbapi->getCuptiStatus() failed with error CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)", "End the other"),
    ("CUPTI initialization failed - CUDA profiler activities will be missing", "nvidia-smi"),
    ("UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).", "Update the driver"),
    ("CUDA driver version is insufficient for CUDA runtime version", "Update the driver"),
    ("WARNING: CPU sampling is disabled: kernel.perf_event_paranoid is 4", "perf_event_paranoid=1"),
    ("Error: ptrace(PTRACE_ATTACH): Operation not permitted", "SYS_PTRACE"),
    ("==WARNING== Profiling is not supported on Multi-Instance GPU (MIG)", "undivided"),
    ("torch.distributed.elastic…RendezvousConnectionError: The connection to the C10d store has failed.", "loopback"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", "Free the GPU"),
    ("OSError: [Errno 28] No space left on device", "Free some space"),
    ("ModuleNotFoundError: No module named 'torch'", "--python"),
    ("Importer error status: The importer binary and its dependencies were not found.", "libssh"),
]  # fmt: skip


@of_each(("message", "do"), MESSAGES)
def test_a_message_of_a_tool_is_explained_with_what_to_do(message, do):
    found = obstacles.by_messages(f"perfdoctor: recording\n{message}\nstep 0 loss 0.3\n")
    assert found is not None
    assert do in found.do


def test_every_obstacle_has_a_message_that_leads_to_it():
    found = {(obstacle.what, obstacle.do) for message, _ in MESSAGES if (obstacle := obstacles.by_messages(message))}
    others = {(each.what, each.do) for _, each in obstacles.known()} - found
    assert [what for what, _ in others] == [
        "the Nsight Systems here is incomplete: its target folder, or a library in it, is missing"
    ]  # provoked below with a real one


@pytest.mark.nsys
def test_an_nsys_that_was_copied_alone_says_so_itself(tmp_path, monkeypatch):
    program = re.findall(
        r"\S*target-linux-\w+/nsys", Path(real_nsys()).resolve().read_bytes()[:4096].decode("utf-8", "replace")
    )
    shutil.copy(program[0].strip('"') if program else Path(real_nsys()).resolve(), tmp_path / "nsys")
    monkeypatch.setenv("PERFDOCTOR_NSYS", str(tmp_path / "nsys"))
    trouble = nsys.find().trouble
    assert "target-linux-x64" in trouble
    assert "Install Nsight Systems again" in obstacles.by_messages(trouble).do


def test_what_is_no_trouble_is_not_explained():
    assert obstacles.by_messages("step 0  loss 0.3\nmedian step 3.2 ms\n") is None
    assert obstacles.by_messages("LD_PRELOAD=/opt/nsight/target-linux-x64/libInjection64.so\n") is None


def test_a_tool_in_every_program_is_found_by_the_environment():
    assert obstacles.another_tool({"PATH": "/bin", "CUDA_INJECTION64_PATH": ""}) is None
    found = obstacles.another_tool({"CUDA_INJECTION64_PATH": "/opt/tool.so"})
    assert found.do == "unset CUDA_INJECTION64_PATH"


def test_a_slice_of_a_gpu_is_found_by_its_name():
    assert obstacles.divided_gpu(["NVIDIA H100 80GB HBM3"]) is None
    assert "MIG" in obstacles.divided_gpu(["NVIDIA A100-SXM4-40GB MIG 1g.5gb"]).what

"""Where a loader is not tried in a copy of the program, and why: nothing is forked here."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfdoctor.recording.tools import torch_profiler

sys.path.insert(0, str(torch_profiler.AGENT))
from perfdoctor_agent import trial

sys.path.remove(str(torch_profiler.AGENT))

TENSOR = type("Tensor", (), {"is_cuda": False})
OF_CUDA = type("OfCuda", (TENSOR,), {"is_cuda": True})
TORCH = SimpleNamespace(
    Tensor=TENSOR,
    distributed=SimpleNamespace(is_available=lambda: False, is_initialized=lambda: False),
)


def why(dataset: Any = None, *, share: float = 0.5, on_device: bool = False) -> str:
    return trial._why_not(TORCH, SimpleNamespace(is_on_device=on_device, dataset=dataset), share)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name in trial._MINDS_FORKS:
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_loader_that_is_waited_for_is_tried() -> None:
    assert why() == ""


def test_each_reason_not_to_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trial._why_not(TORCH, None, 0.5).startswith("no loader of torch's")
    assert why(share=0.0) == "the loader was hardly waited for"
    assert why(on_device=True) == "the dataset is in the memory of a GPU"
    assert why(SimpleNamespace(rows=[OF_CUDA()])) == "the dataset is in the memory of a GPU"
    monkeypatch.setattr(trial, "_held_bytes", lambda: 1 << 60)
    assert why() == "there is no memory for a copy"
    monkeypatch.setitem(sys.modules, trial._MINDS_FORKS[0], SimpleNamespace())
    assert why() == "a library of the program minds forks"
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert why() == "another rank tries it"


@pytest.mark.parametrize(
    ("version", "shown", "is_left_out"),
    [
        ((3, 11), [("error", "", DeprecationWarning)], False),
        ((3, 12), [("ignore", "", DeprecationWarning)], False),
        ((3, 12), [("error", "", DeprecationWarning)], True),
        ((3, 12), [("ignore", "", UserWarning)], True),
        ((3, 12), [("ignore", "another text", DeprecationWarning), ("default", "", Warning)], True),
        ((3, 12), [("ignore", "This process", Warning)], False),
    ],
)
def test_where_python_would_warn_of_a_fork_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
    version: tuple[int, int],
    shown: list[tuple[Any, str, type[Warning]]],
    is_left_out: bool,
) -> None:
    monkeypatch.setattr(trial, "sys", SimpleNamespace(version_info=version, modules=sys.modules, platform=sys.platform))
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for action, message, category in shown:
            warnings.filterwarnings(action, message, category, append=True)
        assert (why() == "Python would warn of a fork") is is_left_out


def test_without_a_place_for_temporary_files_no_descriptor_is_left(monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nowhere")
    own = Path("/proc/self/fd")
    before = {each.name for each in own.iterdir()}
    with pytest.raises(OSError):
        trial._tried(None, None, 0.0)
    assert {each.name for each in own.iterdir()} == before

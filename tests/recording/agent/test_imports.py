"""The hook that waits until the program imports torch leaves everything else to Python."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace

import pytest

from perfdoctor.recording.tools import torch_profiler

sys.path.insert(0, str(torch_profiler.AGENT))
from perfdoctor_agent import imports

sys.path.remove(str(torch_profiler.AGENT))


@pytest.fixture
def leave():
    seen: list[object] = []
    ends = imports.when_imported("awaited_module", seen.append)
    yield seen
    ends()


def test_a_module_that_nobody_finds_is_missing_as_without(leave) -> None:
    assert importlib.util.find_spec("awaited_module") is None
    assert leave == []


def test_a_loader_that_python_runs_otherwise_is_left_as_it_is(leave, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SimpleNamespace(loader=SimpleNamespace(load_module=None))
    finder = SimpleNamespace(find_spec=lambda name, *_: spec if name == "awaited_module" else None)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder])
    assert sys.meta_path[0].find_spec("awaited_module") is spec
    assert vars(spec.loader) == {"load_module": None}
    assert leave == []


def test_the_module_is_seen_once_when_it_was_executed_and_the_hook_is_gone(leave, tmp_path, monkeypatch) -> None:
    (tmp_path / "awaited_module.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    module = importlib.import_module("awaited_module")
    monkeypatch.delitem(sys.modules, "awaited_module")
    assert [each.value for each in leave] == [7]
    assert leave == [module]
    assert sys.meta_path == before[1:]

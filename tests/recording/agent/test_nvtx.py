"""The NVTX protocol, spoken with a tool that is written in Python: ranges reach it, and one that refuses costs nothing."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest

from perfdoctor.recording.tools import torch_profiler

sys.path.insert(0, str(torch_profiler.AGENT))
from perfdoctor_agent import nvtx

sys.path.remove(str(torch_profiler.AGENT))

START, END = 5, 7
START_RANGE = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p)
END_RANGE = ctypes.CFUNCTYPE(None, ctypes.c_uint64)


class Tool:
    """A tool that fills the client's tables as nvtx3's own header describes them. `ranges`: what it was given."""

    def __init__(self, *, takes: bool = True, records: bool = True) -> None:
        self.takes, self.records = takes, records
        self.ranges: list[object] = []
        self.sizes: list[int] = []
        self._functions = START_RANGE(self._start), END_RANGE(self.ranges.append)

    def _start(self, name: bytes) -> int:
        self.ranges.append(name)
        return 41

    def initialize(self, export: object) -> int:
        callbacks = nvtx._Callbacks.from_address(export(nvtx._CALLBACKS))
        version = nvtx._VersionInfo.from_address(export(nvtx._VERSION_INFO))
        assert (version.version, export(99)) == (3, None)
        version.set_version(3)
        table = ctypes.POINTER(ctypes.c_void_p)()
        assert callbacks.module_table(77, ctypes.byref(table), None) == 0
        for module, size in ((nvtx._CORE_WITH_DOMAINS, None), (nvtx._CORE, ctypes.c_uint(1))):
            assert callbacks.module_table(module, ctypes.byref(table), size and ctypes.byref(size)) == 1
            self.sizes += [size.value] if size else []
        if self.records:
            for slot, function in zip((START, END), self._functions, strict=True):
                ctypes.c_void_p.from_address(table[slot]).value = ctypes.cast(function, ctypes.c_void_p).value
        return int(self.takes)


def attached(monkeypatch: pytest.MonkeyPatch, tool: Tool) -> nvtx.Nvtx | None:
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/the/tool.so")

    def initialize(export: object) -> int:
        return tool.initialize(export)

    monkeypatch.setattr(nvtx.ctypes, "CDLL", lambda _: SimpleNamespace(InitializeInjectionNvtx2=initialize))
    return nvtx.attach()


def test_ranges_reach_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Tool()
    client = attached(monkeypatch, tool)
    assert client is not None
    number = client.start_range(b"step")
    client.end_range(number)
    assert tool.ranges == [b"step", 41]
    assert tool.sizes == [17 * ctypes.sizeof(ctypes.c_void_p)]


@pytest.mark.parametrize("tool", [Tool(takes=False), Tool(records=False)], ids=["refuses", "records no ranges"])
def test_a_tool_that_takes_no_ranges_gets_none(monkeypatch: pytest.MonkeyPatch, tool: Tool) -> None:
    assert attached(monkeypatch, tool) is None
    assert tool.ranges == []


def test_without_a_tool_and_with_one_that_is_not_there_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    assert nvtx.attach() is None
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/no/such/tool.so")
    assert nvtx.attach() is None

"""The arithmetic of a GPU's rates, on a stand-in for torch whose clock is moved by the work given to it."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from measuring_modules import all_reduce, document, gpu, timing

#: What the stand-in's GPU gives.
FLOP_PER_SECOND = {"bfloat16": 700e12, "float16": 600e12, "float32": 50e12}
TF32, MEMORY, PINNED, PAGEABLE = 400e12, 4e12, 50e9, 10e9
LAUNCH_NS, FLOOR_NS = 2_000, 1_500


class Tensor:
    def __init__(self, torch, size, dtype, place):
        self.torch, self.bytes, self.dtype, self.place = torch, size, dtype, place
        self.is_cuda = place == "cuda"
        torch.allocate(self, size)

    def __del__(self):
        self.torch.held -= self.bytes if self.is_cuda else 0

    def random_(self):
        return self

    def copy_(self, source, non_blocking=False):
        places = {self.place, source.place}
        if places == {"cuda"}:
            self.torch.work(2 * self.bytes / MEMORY * 1e9)
            return
        self.torch.work(self.bytes / (PINNED if "pinned" in places else PAGEABLE) * 1e9)
        assert non_blocking == ("pinned" in places)


class Torch:
    """As much of torch as measuring uses. `device_ns` is the GPU's clock, `host_ns` the host's."""

    uint8, float32, bfloat16, float16 = "uint8", "float32", "bfloat16", "float16"
    __version__ = "2.9.0+cu128"

    def __init__(self, *, memory=80e9, capability=(9, 0), gpus=1, graphs=True):
        self.device_ns = self.host_ns = 0.0
        self.held = self.most_held = 0
        self.memory, self.precision, self.capturing = memory, "highest", None
        self.version = SimpleNamespace(hip=None, cuda="12.8")
        self.cuda = SimpleNamespace(
            is_available=lambda: gpus > 0, device_count=lambda: gpus, get_device_name=lambda _: "NVIDIA H100",
            get_device_capability=lambda _: capability, synchronize=self.synchronize, empty_cache=lambda: None,
            get_device_properties=lambda _: SimpleNamespace(total_memory=80e9),
            set_per_process_memory_fraction=self.limit, Event=lambda enable_timing: Event(self), _sleep=self.sleep,
            CUDAGraph=lambda: Graph(self), graph=lambda graph: graph if graphs else 1 / 0,
        )  # fmt: skip

    def allocate(self, tensor, size):
        if not tensor.is_cuda:
            return
        self.held += size
        self.most_held = max(self.most_held, self.held)
        if self.held > self.memory:
            raise RuntimeError("CUDA out of memory. Tried to allocate\nmore")

    def limit(self, fraction, _):
        self.fraction = fraction

    def work(self, ns):
        if self.capturing is not None:
            self.capturing.append(ns)
            return
        self.host_ns += LAUNCH_NS
        self.device_ns = max(self.device_ns, self.host_ns) + ns

    def synchronize(self):
        self.host_ns = max(self.host_ns, self.device_ns)

    def sleep(self, cycles):
        self.work(cycles / 2 + FLOOR_NS if cycles else FLOOR_NS)

    def set_float32_matmul_precision(self, precision):
        self.precision = precision

    def randn(self, rows, columns, device, dtype):
        return Tensor(self, rows * columns * (4 if dtype == "float32" else 2), dtype, device)

    def empty_like(self, tensor):
        return Tensor(self, tensor.bytes, tensor.dtype, tensor.place)

    def empty(self, size, dtype, device):
        return Tensor(self, size, dtype, device)

    def ones(self, size, dtype, device="pageable", pin_memory=False):
        return Tensor(self, size, dtype, "pinned" if pin_memory else device)

    def mm(self, a, _, out):
        rate = TF32 if a.dtype == "float32" and self.precision == "high" else FLOP_PER_SECOND[a.dtype]
        size = round((a.bytes / (4 if a.dtype == "float32" else 2)) ** 0.5)
        self.work(2 * size**3 / rate * 1e9)


class Event:
    def __init__(self, torch):
        self.torch, self.at = torch, 0.0

    def record(self):
        self.torch.device_ns = self.at = max(self.torch.device_ns, self.torch.host_ns)

    def synchronize(self):
        self.torch.synchronize()

    def elapsed_time(self, end):
        return (end.at - self.at) / 1e6


class Graph:
    def __init__(self, torch):
        self.torch, self.recorded = torch, []

    def __enter__(self):
        self.torch.capturing = self.recorded

    def __exit__(self, *_):
        self.torch.capturing = None

    def replay(self):
        self.torch.work(sum(self.recorded))


def measured(monkeypatch, **torch):
    stand_in = Torch(**torch)
    monkeypatch.setattr(timing, "_WARM_UP_NS", 0)

    def now():
        return stand_in.host_ns

    monkeypatch.setattr(gpu, "time", SimpleNamespace(perf_counter_ns=now))
    rows = []
    gpu.measure(stand_in, False, rows.append)
    return stand_in, rows


def medians(rows):
    return {(row["what"], row.get("data_type"), row.get("size")): row["median"] for row in rows if "median" in row}


@pytest.mark.parametrize("graphs", [True, False])
def test_every_rate_is_what_the_gpu_gives(monkeypatch, graphs):
    _, rows = measured(monkeypatch, graphs=graphs)
    found = medians(rows)
    for name, rate in (("bf16", 700e12), ("fp16", 600e12), ("tf32", TF32), ("fp32", 50e12)):
        assert found["matmul", name, 8192] == pytest.approx(rate, rel=0.002), "the launch itself is inside"
        if graphs:  # without them the host's launches limit small ones
            assert found["matmul", name, 512] == pytest.approx(rate, rel=0.02)
    assert found["memory_copy", None, None] == pytest.approx(MEMORY, rel=0.01)
    assert found["h2d_pinned", None, None] == pytest.approx(PINNED, rel=0.01)
    assert found["d2h_pageable", None, None] == pytest.approx(PAGEABLE, rel=0.01)
    assert found["launch", None, None] == pytest.approx(LAUNCH_NS)
    assert found["kernel_floor", None, None] == pytest.approx(FLOOR_NS)
    assert not [row for row in rows if "error" in row]


def test_never_more_than_2_gb_are_used(monkeypatch):
    torch, _ = measured(monkeypatch)
    assert torch.most_held <= gpu.MOST_BYTES == 2_000_000_000
    assert torch.fraction == pytest.approx(2e9 / 80e9)


def test_on_a_full_gpu_what_does_not_fit_fails_and_the_rest_is_measured(monkeypatch):
    _, rows = measured(monkeypatch, memory=300e6)
    failed = {(row["what"], row.get("data_type"), row.get("size")): row["error"] for row in rows if "error" in row}
    assert set(failed) == {(f, t, s) for f, t, s in failed if s == 8192 or f == "memory_copy"}
    assert failed["memory_copy", None, None] == "RuntimeError: CUDA out of memory. Tried to allocate"
    assert medians(rows)["matmul", "fp32", 2048] > 0


def test_types_without_units_are_not_measured(monkeypatch):
    _, rows = measured(monkeypatch, capability=(7, 5))
    failed = {row["data_type"] for row in rows if "error" in row}
    assert failed == {"bf16", "tf32"}
    assert medians(rows)["matmul", "fp16", 8192] == pytest.approx(600e12, rel=0.002)


def test_the_machine_is_named_without_anything_that_identifies_it(monkeypatch):
    _, rows = measured(monkeypatch)
    assert rows[0]["machine"] == {
        "device": "NVIDIA H100", "kind": "gpu", "gpus": 1, "driver": rows[0]["machine"]["driver"], "compute_capability": [9, 0],
    }  # fmt: skip


def test_without_a_gpu_it_says_only_that(monkeypatch):
    assert measured(monkeypatch, gpus=0)[1] == [{"machine": {"gpus": 0}}]


@pytest.mark.parametrize(
    ("gpus", "quick", "asked"),
    [(0, False, ("gloo", 2)), (0, True, ("gloo", 2)), (1, False, None), (8, False, ("nccl", 8)), (8, True, None)],
)
def test_links_are_measured_between_all_gpus_or_two_processes(monkeypatch, gpus, quick, asked):
    found = []
    monkeypatch.setattr(all_reduce, "measured", lambda _, backend, ranks, *__: found.append((backend, ranks)) or [])
    document._all_reduced(None, gpus, quick, 1.0)
    assert found == ([asked] if asked else [])


def test_bus_bandwidth_counts_what_each_link_carries(monkeypatch):
    """Of 4 ranks each link carries 1.5 times the message (nccl-tests, doc/PERFORMANCE.md)."""
    torch = Torch(gpus=4)
    torch.device, torch.zeros = lambda *_: "cuda", lambda count, device: Tensor(torch, 4 * count, "float32", device)
    torch.cuda.set_device = lambda _: None
    distributed = SimpleNamespace(
        init_process_group=lambda *_, **__: None, destroy_process_group=lambda: None,
        all_reduce=lambda tensor: torch.work(10_000 + tensor.bytes / 100e9 * 1e9),
    )  # fmt: skip
    torch.distributed = distributed
    monkeypatch.setitem(__import__("sys").modules, "torch", torch)
    monkeypatch.setattr(all_reduce, "time", SimpleNamespace(perf_counter_ns=lambda: torch.host_ns))
    rows, silent = [], []
    all_reduce._of_rank(torch, "nccl", 0, 4, "file:///x", False, rows.append)
    all_reduce._of_rank(torch, "nccl", 1, 4, "file:///x", False, silent.append)
    assert silent == []
    assert rows[0]["median"] == pytest.approx(10_000, rel=0.1)
    assert rows[-1]["bytes"] == 256 << 20
    assert rows[-1]["median"] == pytest.approx(1.5 * 100e9, rel=0.01)
    assert {(row["backend"], row["ranks"]) for row in rows} == {("nccl", 4)}


def test_times_of_the_host_are_those_of_one_call(monkeypatch):
    clock = [0]

    def call():
        clock[0] += 1_000

    monkeypatch.setattr(timing, "_WARM_UP_NS", 0)
    monkeypatch.setattr(
        timing, "time", SimpleNamespace(perf_counter_ns=lambda: clock[0], perf_counter=lambda: clock[0] / 1e9)
    )
    assert timing.host_ns(call, 5, 10.0) == [1_000] * 5
    assert timing.host_ns(lambda: time.monotonic_ns() and call(), 5, 0.0) == [1_000], "one sample beyond the budget"

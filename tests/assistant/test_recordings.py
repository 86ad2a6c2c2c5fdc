"""Are the numbers that an assistant gets of real recordings those of the files?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from folders import public

from assistant.client import Assistant, assistant
from assistant.truth import Kineto, inside, length, sql, touching, union

TORCH = (
    "kineto/resnet50-workers0.pt.trace.json.gz",
    "kineto/qwen-0.5b-h100.json.gz",
    "kineto/resnet-ddp-a100-rank0.json.gz",
)
NSYS = ("nsys/mfu_2gpu_before.sqlite", "nsys/power-iteration-t4.sqlite")
ALWAYS = {"start_ns": -(1 << 60), "end_ns": 1 << 62}

pytestmark = pytest.mark.recordings

#: Start, end, device and name of a kernel.
Kernel = tuple[int, int, int, str]


@pytest.fixture(scope="module")
def client() -> Iterator[Assistant]:
    with assistant(public()) as connected:
        yield connected


def kernels_of(path: str) -> list[Kernel]:
    if path in TORCH:
        return [
            (start, end, each["args"]["device"], each["name"])
            for start, end, each in Kineto(public(path)).events("kernel")
        ]
    return sql(
        public(path),
        """SELECT start, end, deviceId, value FROM CUPTI_ACTIVITY_KIND_KERNEL
        JOIN StringIds ON StringIds.id = demangledName""",
    )


def is_collective(name: str) -> bool:
    return "nccl" in name.lower()


@pytest.mark.parametrize("path", [*TORCH, *NSYS])
def test_kernels_compute_and_idle(client: Assistant, path: str):
    kernels, answer = kernels_of(path), client.ask("analyze", path=path)
    counts = client.ask("timeline_slice", path=path, **ALWAYS)["counts"]
    assert counts["kernels"] + counts.get("collectives", 0) == len(kernels)
    total = 0
    for device in answer["devices"]:
        window = (device["window_start_ns"], device["window_start_ns"] + device["window_ns"])
        own = [each for each in kernels if each[2] == device["device"]]
        compute = [(start, end) for start, end, _, name in own if not is_collective(name)]
        assert device["compute_ns"] == length(union(compute, window))
        total += inside([(start, end) for start, end, *_ in own], window)
        parts = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
        assert sum(device[part] for part in parts) == device["window_ns"]
    assert client.ask("kernels", path=path)["total_ns"] == total


@pytest.mark.parametrize("path", [TORCH[0], NSYS[0]])
def test_the_costliest_kernel_and_a_moment(client: Assistant, path: str):
    kernels = kernels_of(path)
    device = client.ask("analyze", path=path)["devices"][0]
    window = (device["window_start_ns"], device["window_start_ns"] + device["window_ns"])
    by_name: dict[str, int] = {}
    for start, end, on, name in kernels:
        if on == device["device"]:
            by_name[name] = by_name.get(name, 0) + inside([(start, end)], window)
    first: dict[str, Any] = client.ask("kernels", path=path, rank=device["rank"], limit=1)["kernels"][0]
    assert first["total_ns"] == max(by_name.values())
    third = (window[0], window[0] + device["window_ns"] // 3)
    rows = client.pages(
        "timeline_slice", "events", path=path, rank=device["rank"], signals=["kernels", "collectives"],
        start_ns=third[0], end_ns=third[1], limit=200,
    )  # fmt: skip
    own = [(start, end) for start, end, on, _ in kernels if on == device["device"]]
    assert len(rows) == touching(own, third)
    assert [row["start_ns"] for row in rows] == sorted(start for start, end in own if touching([(start, end)], third))

"""Drawn steps in which Python goes through many tensors one by one: gradients that are clipped, or parameters."""

from __future__ import annotations

from collections.abc import Sequence

from builders import BASE_NS, timeline

from perfdoctor.model.timeline import Timeline

US = 1_000
NORM = "aten::linalg_vector_norm"
LERP = "aten::lerp_"


def steps(
    turns: int, body: Sequence[str], *, forward_us: int = 400, between_us: float = 10, mark: str = ""
) -> Timeline:
    """Four steps: a kernel of `forward_us`, then `turns` times the ops of `body`, each op with a kernel.

    An op every 20 µs; its kernel runs for 20 µs less `between_us`, in which the device is idle.
    """
    rows: dict[str, list[dict[str, object]]] = {name: [] for name in ("kernels", "calls", "ops", "ranges")}
    names = list(body) * turns
    length = (forward_us + 20 * len(names)) * US
    correlation = 0

    def launch(at: int, duration: float, name: str) -> None:
        nonlocal correlation
        correlation += 1
        rows["ops"].append({"start_ns": at, "end_ns": at + 9 * US, "name": name})
        rows["calls"].append(
            {"start_ns": at + 2 * US, "end_ns": at + 5 * US, "name": "cudaLaunchKernel", "correlation": correlation}
        )
        kernel = {"name": "k", "correlation": correlation, "process": 100}
        rows["kernels"].append({"start_ns": at + 7 * US, "end_ns": at + 7 * US + round(duration * US), **kernel})

    for step in range(4):
        at = BASE_NS + step * length
        rows["ranges"].append({"start_ns": at, "end_ns": at + length, "name": f"ProfilerStep#{step}"})
        launch(at, forward_us, "aten::mm")
        first = at + forward_us * US
        for number, name in enumerate(names):
            launch(first + number * 20 * US, 20 - between_us, name)
        if mark:
            rows["ranges"].append({"start_ns": first - US, "end_ns": at + length - US, "name": mark})
    return timeline(**rows, collectives=[], copies=[])

"""Steps of a rank as the agent would have written them, made of their lengths."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from perfdoctor.watching.judge import Judge
from perfdoctor.watching.rows import RankSteps

BEGUN_NS = 1_700_000_000_000_000_000
MS = 1_000_000


def lines(
    lengths_ns: np.ndarray, *, rank: int = 0, wait: np.ndarray | float = 0.0, host: np.ndarray | float = 0.0,
    held: np.ndarray | None = None, stretch: int = 25, pid: int = 4711, world_size: int = 1, delay: np.ndarray | float = 0.0,
    device: int = 0,
) -> list[str]:  # fmt: skip
    """Lines of a file. `wait`, `host`, `delay`: of each step, in ns; `held`: bytes after each step; `device`: a step."""
    n = len(lengths_ns)
    waits, hosts = np.broadcast_to(wait, n), np.broadcast_to(host, n)
    found = [json.dumps({"format": 1, "pid": pid, "begun": BEGUN_NS, "rank": rank, "world_size": world_size})]
    delays = np.cumsum(np.broadcast_to(delay, n))
    ends = BEGUN_NS + np.cumsum(lengths_ns).astype(np.int64)
    for at in range(0, n, stretch):
        piece = slice(at, min(at + stretch, n))
        each = lengths_ns[piece].astype(np.int64)
        q = [int(value) for value in np.percentile(each, [0, 25, 50, 75, 100], method="nearest")]
        beyond = q[2] + max(0.5 * q[2], 3 * (q[3] - q[1]))
        slow = [[int(at + 1 + place), int(ns)] for place, ns in enumerate(each) if ns > beyond][:16]
        found.append(json.dumps({
            "first": at + 1, "steps": len(each), "end": int(ends[piece][-1]), "sum": int(each.sum()), "q": q,
            "wait": int(waits[piece].sum()), "host": int(hosts[piece].sum()), "slow": slow, "device": device,
        }))  # fmt: skip
        use = {"at": int(ends[piece][-1]), "cpu": 0, "delay": int(delays[piece][-1])}
        if held is not None:
            use["rss"] = int(held[piece][-1])
        found.append(json.dumps(use))
    return found


def rank_steps(folder: Path, made: list[str], name: str = "rank0") -> RankSteps:
    """The rank, read from a file of these lines."""
    file = folder / f"{name}.jsonl"
    file.write_text("".join(f"\n{line}" for line in made), "utf-8")
    rank = RankSteps(file)
    rank.read()
    return rank


def judged(ranks: Mapping[int, RankSteps], judge: Judge | None = None) -> list:
    """All that a judge says who gets one more stretch of each rank at a time, as a watcher does."""
    judge = judge or Judge()
    whole = {number: (list(rank.stretches), list(rank.uses)) for number, rank in ranks.items()}
    said = []
    for count in range(1, max(len(stretches) for stretches, _ in whole.values()) + 1):
        for number, (stretches, uses) in whole.items():
            ranks[number].stretches = stretches[:count]
            ranks[number].uses = [use for use in uses if use.at <= stretches[min(count, len(stretches)) - 1].end]
        now = max(rank.stretches[-1].end for rank in ranks.values())
        said += judge.update(ranks, now)
    return said


def noise(steps: int, length_ms: float, seed: int = 0, spread: float = 0.01) -> np.ndarray:
    """Lengths of steps as on a machine that is not alone: skewed, with heavy tails, never below what the work takes."""
    rng = np.random.default_rng(seed)
    usual = 1 + spread * rng.standard_t(3, steps).clip(-3, 30) + rng.exponential(spread, steps)
    return length_ms * MS * np.maximum(usual, 0.97)

"""Which method finds the first bad run of a series, and how often does it see one where there is none?

    python benchmarks/change_points.py [--rounds 300] [--json FILE]

Series of runs are planted: noise alone, noise with slow runs among it, noise that depends on the run before, a drift,
a step up, a step up and back. Each method sees the same series. It needs ruptures, and apache-otava beside it if that
is installed: in an environment of their own, as apache-otava pins numpy. `docs/decisions` has the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

#: A change that is found this many runs away from the planted one names the right runs.
NEAR = 1
SIZES = (12, 20, 40, 100)
NOISES = (0.005, 0.01, 0.02)
STEPS = (0.03, 0.05, 0.10)
Found = Callable[[np.ndarray], list[int]]


# --- methods ---------------------------------------------------------------------------------------------------------


def _spread(values: np.ndarray) -> float:
    """Of the noise, from neighbours: a step moves one difference alone."""
    differences = np.diff(values)
    return float(np.median(np.abs(differences - np.median(differences)))) / 0.6745 / 2**0.5


def pelt(cost: str, penalty: float, least: int) -> Found:
    import ruptures  # noqa: PLC0415

    def found(values: np.ndarray) -> list[int]:
        spread = _spread(values) or float(np.std(values)) or 1.0
        scaled = ((values - np.median(values)) / spread).reshape(-1, 1)
        algorithm = ruptures.Pelt(model=cost, min_size=least, jump=1).fit(scaled)
        return [int(at) for at in algorithm.predict(pen=penalty * np.log(values.size))[:-1]]

    return found


def kernel(penalty: float, least: int) -> Found:
    import ruptures  # noqa: PLC0415

    def found(values: np.ndarray) -> list[int]:
        algorithm = ruptures.KernelCPD(kernel="rbf", min_size=least).fit(values.reshape(-1, 1))
        return [int(at) for at in algorithm.predict(pen=penalty * np.log(values.size))[:-1]]

    return found


def hunter(probability: float) -> Found:
    from otava.analysis import compute_change_points  # noqa: PLC0415

    return lambda values: [int(p.index) for p in compute_change_points(list(values), 50, probability, 0.0)[0]]


def divisive(probability: float) -> Found:
    from otava.analysis import compute_change_points_orig  # noqa: PLC0415

    return lambda values: [int(p.index) for p in compute_change_points_orig(list(values), probability, seed=1)[0]]


def shipped() -> Found:
    from perfdoctor.history.changes import change_points  # noqa: PLC0415

    return lambda values: [each.at for each in change_points(values.tolist())]


def methods() -> Iterator[tuple[str, Found]]:
    for least in (2, 3):
        for penalty in (2.0, 3.0, 5.0):
            yield f"ruptures Pelt l2, {penalty:g} log n, least {least}", pelt("l2", penalty, least)
            yield f"ruptures Pelt l1, {penalty:g} log n, least {least}", pelt("l1", penalty, least)
    for penalty in (0.5, 1.0, 1.5):
        yield f"ruptures KernelCPD rbf, {penalty:g} log n", kernel(penalty, 3)
        yield f"ruptures Pelt rank, {penalty:g} log n", pelt("rank", penalty * 2, 3)
    with contextlib.suppress(ImportError):
        for probability in (0.001, 0.01):
            yield f"otava Hunter, p {probability:g}", hunter(probability)
        yield "otava E-divisive, p 0.01", divisive(0.011)  # of 100 permutations, 1/101 is the least
        yield "otava E-divisive, p 0.05", divisive(0.05)
    with contextlib.suppress(ImportError):
        yield "perfdoctor", shipped()


# --- planted series --------------------------------------------------------------------------------------------------


def _noise(random: np.random.Generator, size: int, share: float, kind: str) -> np.ndarray:
    """Factors around 1. Slow runs are one in ten, up to 30 % longer: what else ran there."""
    noise = random.normal(0, share, size)
    if kind == "follows":
        for row in range(1, size):
            noise[row] = 0.5 * noise[row - 1] + noise[row] * 0.75**0.5
    factors = 1 + noise
    if kind == "outliers":
        slow = random.random(size) < 0.1
        factors[slow] *= 1 + random.uniform(0.05, 0.30, int(slow.sum()))
    return factors


def planted(
    random: np.random.Generator, size: int, share: float, kind: str, step: float
) -> tuple[np.ndarray, list[int]]:
    """A series in ms and where its level changes. At least four runs lie on either side of a change."""
    noise = "outliers" if kind.endswith("outliers") else "follows" if kind == "follows" else "plain"
    values, changes = 100.0 * _noise(random, size, share, noise), []
    if kind.startswith("step"):
        at = int(random.integers(4, size - 3))
        values[at:] *= 1 + step
        changes = [at]
    elif kind == "up and back" and size >= 20:
        first = int(random.integers(4, size // 2))
        second = int(random.integers(first + 5, size - 3))
        values[first:second] *= 1 + step
        changes = [first, second]
    elif kind == "drift":
        values *= np.linspace(1, 1 + step, size)
    return values, changes


def measure(found: Found, rounds: int, seed: int = 7) -> dict[str, object]:
    random = np.random.default_rng(seed)
    false: dict[str, list[bool]] = {}
    right: dict[str, list[bool]] = {}
    extra: list[int] = []
    began = time.process_time()
    for _ in range(rounds):
        for size in SIZES:
            share = float(random.choice(NOISES))
            for kind in ("plain", "outliers", "follows"):
                values, _none = planted(random, size, share, kind, 0)
                false.setdefault(kind, []).append(bool(found(values)))
            for kind in ("step", "step with outliers"):
                for step in STEPS:
                    values, changes = planted(random, size, share, kind, step)
                    seen = found(values)
                    visible = step >= 3 * share
                    if visible:
                        hit = any(abs(each - changes[0]) <= NEAR for each in seen)
                        right.setdefault(kind, []).append(hit)
                        extra.append(len([each for each in seen if abs(each - changes[0]) > NEAR]))
            if size >= 20:
                values, changes = planted(random, size, share, "up and back", 0.10)
                seen = found(values)
                if share <= 0.02:
                    right.setdefault("up and back", []).append(
                        all(any(abs(each - change) <= NEAR for each in seen) for change in changes)
                    )
            values, _none = planted(random, size, share, "drift", 0.05)
            false.setdefault("drift of 5 %", []).append(bool(found(values)))
    return {
        "false": {kind: float(np.mean(each)) for kind, each in false.items()},
        "found": {kind: float(np.mean(each)) for kind, each in right.items()},
        "extra": float(np.mean(extra)),
        "seconds": time.process_time() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--only", default="", help="methods whose name holds this")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    results = {}
    for name, found in methods():
        if chosen.only not in name:
            continue
        results[name] = result = measure(found, chosen.rounds)
        cells = [f"{value:6.1%}" for group in ("false", "found") for value in result[group].values()]
        print(f"{name:42}", *cells, f"{result['extra']:.2f}", f"{result['seconds']:.1f} s", flush=True)
    if results:
        last = next(reversed(results.values()))
        print(
            "columns:",
            *(f"false: {kind}" for kind in last["false"]),
            *(f"found: {kind}" for kind in last["found"]),
            "further",
            sep=" | ",
        )
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

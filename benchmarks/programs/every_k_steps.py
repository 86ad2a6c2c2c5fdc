"""A small training in which something else comes every k steps: `python every_k_steps.py KIND --share 0.3 --period 20`.

It takes about that share of the training's time, and the program prints what it was. Each kind is there in two ways, as
people write it in one program or another (`--way 0` and `1`).
"""

from __future__ import annotations

import argparse
import copy
import importlib
import io
import json
import logging
import pickle
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from beats import Beats
from torch.utils.data import DataLoader, Dataset

WIDTH, ROWS = 256, 192
#: What a step takes before one was measured, in seconds.
ASSUMED_S = 0.006
#: So many pauses are measured by the steps before them.
FIRST = 2
Until = Callable[[], bool]


class Training:
    """A perceptron that learns; what comes between gets all of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.beats, self.losses = folder, Beats(), [0.0]
        self.writer: Any = None
        self.model = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
        )  # fmt: skip
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.rows, self.labels = torch.randn(ROWS, WIDTH), torch.randint(10, (ROWS,))

    def learn(self, rows: torch.Tensor) -> None:
        loss = torch.nn.functional.cross_entropy(self.model(rows), self.labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())


# --- evaluation ---


def evaluate(given: Training, until: Until) -> None:  # slow: evaluation
    given.model.eval()
    right = 0
    with torch.no_grad():
        while not until():
            right += int((given.model(given.rows).argmax(1) == given.labels).sum())
    given.model.train()


@torch.inference_mode()
def validation_loss(given: Training, until: Until) -> float:  # slow: evaluation
    total = 0.0
    while not until():
        total += torch.nn.functional.cross_entropy(given.model(given.rows), given.labels).item()
    return total


# --- checkpoint ---


def save_all(given: Training, until: Until) -> None:  # slow: checkpoint
    while not until():
        torch.save(
            {"model": given.model.state_dict(), "optimizer": given.optimizer.state_dict()}, given.folder / "last.pt"
        )


def save_arrays(given: Training, until: Until) -> None:  # slow: checkpoint
    while not until():
        with (given.folder / "weights.pickle").open("wb") as file:
            pickle.dump({name: weight.detach().numpy() for name, weight in given.model.named_parameters()}, file)


# --- logging ---


def log_histograms(given: Training, until: Until) -> None:  # slow: logging
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 the other ways do without

    given.writer = given.writer or SummaryWriter(given.folder)
    while not until():
        for name, weight in given.model.named_parameters():
            given.writer.add_histogram(name, weight, len(given.losses))
    given.writer.flush()  # else its thread goes on during the next step


def log_lines(given: Training, until: Until) -> None:  # slow: logging
    log = logging.getLogger("training")
    if not log.handlers:
        log.addHandler(logging.FileHandler(given.folder / "training.log"))
    while not until():
        for name, weight in given.model.named_parameters():
            log.warning(json.dumps({"name": name, "gradient": weight.grad.flatten()[:200].tolist()}))


# --- plotting ---


def plot_losses(given: Training, until: Until) -> None:  # slow: plotting
    from matplotlib import pyplot as plt  # noqa: PLC0415 the other ways do without

    while not until():
        plt.figure(figsize=(3, 2))
        plt.plot(given.losses)
        plt.savefig(given.folder / "losses.png", dpi=60)
        plt.close()


def plot_weights(given: Training, until: Until) -> None:  # slow: plotting
    from matplotlib.figure import Figure  # noqa: PLC0415 the other ways do without

    while not until():
        figure = Figure(figsize=(3, 3))
        figure.subplots().imshow(given.model[0].weight.detach())
        figure.savefig(io.BytesIO(), dpi=60)


# --- rollout ---


def play_poles(given: Training, until: Until) -> None:  # slow: rollout
    import gymnasium  # noqa: PLC0415 the other ways do without

    pole = gymnasium.make("CartPole-v1")
    state, _ = pole.reset()
    while not until():
        with torch.no_grad():
            scores = given.model(torch.from_numpy(state).repeat(WIDTH // 4))
        state, _, fallen, late, _ = pole.step(int(scores[0] > scores[1]))
        if fallen or late:
            state, _ = pole.reset()


class Corridor:
    """Somebody's own environment: a walk to either end of a corridor."""

    def reset(self) -> list[float]:
        self.place = [0.0] * WIDTH
        return self.place

    def step(self, action: int) -> tuple[list[float], float, bool]:
        self.place = [place + (action - 4.5) * random.random() for place in self.place]
        return self.place, -abs(self.place[0]), abs(self.place[0]) > 20


def walk(given: Training, until: Until) -> None:  # slow: rollout
    corridor = Corridor()
    place = corridor.reset()
    while not until():
        with torch.no_grad():
            action = int(given.model(torch.tensor(place)).argmax())
        place, _, ended = corridor.step(action)
        if ended:
            place = corridor.reset()


# --- learning-rate search ---


def try_copies(given: Training, until: Until) -> None:  # slow: learning_rate_search
    while not until():
        trial = copy.deepcopy(given.model)
        optimizer = torch.optim.SGD(trial.parameters(), lr=10 ** random.uniform(-4, -1))
        for _ in range(2):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(trial(given.rows), given.labels).backward()
            optimizer.step()


def try_and_restore(given: Training, until: Until) -> None:  # slow: learning_rate_search
    kept = copy.deepcopy([given.model.state_dict(), given.optimizer.state_dict()])
    while not until():
        for group in given.optimizer.param_groups:
            group["lr"] = 10 ** random.uniform(-5, -2)
        given.learn(given.rows)
    given.model.load_state_dict(kept[0])
    given.optimizer.load_state_dict(kept[1])


# --- unknown ---


def wait_for_permission(_: Training, until: Until) -> None:  # slow: unknown
    while not until():
        time.sleep(0.001)


def rebalance(_: Training, until: Until) -> None:  # slow: unknown
    orbit = 0.3
    while not until():
        for _ in range(2_000):
            orbit = 3.7 * orbit * (1 - orbit)


BETWEEN = {
    "evaluation": (evaluate, validation_loss),
    "checkpoint": (save_all, save_arrays),
    "logging": (log_histograms, log_lines),
    "plotting": (plot_losses, plot_weights),
    "rollout": (play_poles, walk),
    "learning_rate_search": (try_copies, try_and_restore),
    "unknown": (wait_for_permission, rebalance),
}


#: Whose functions the kinds call. The others do without.
LIBRARIES = {"logging": "torch.utils.tensorboard", "plotting": "matplotlib.pyplot", "rollout": "gymnasium"}


# --- epoch change ---


class Rows(Dataset):
    def __init__(self, batches: int) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((ROWS, WIDTH), index % 7 / 7)


class Sorted:
    """A sampler that sorts all samples by length before an epoch, with some chance, as for texts."""

    def __init__(self, batches: int) -> None:
        self.batches, self.until = batches, lambda: True

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[int]:
        lengths = [random.randrange(10, 500) for _ in range(2_000)]
        while not self.until():
            lengths.sort(key=lambda length: length + random.random())  # slow: epoch_change
        return iter(random.sample(range(self.batches), self.batches))


def epochs(
    given: Training, period: int, way: int, until_after: Callable[[], tuple[float, Until]]
) -> Iterator[torch.Tensor]:
    """Batches of epochs of so many steps. By way 0 each begins with sorting, by way 1 with new workers that read an index."""
    sampler, rest = Sorted(period), [0.0]
    loader = DataLoader(
        Rows(period),
        batch_size=None,
        sampler=sampler,
        num_workers=way,
        worker_init_fn=(lambda _: time.sleep(rest[0])) if way else None,
    )
    given.beats.begin("epoch_change")
    while True:
        seconds, until = until_after()
        rest[0], sampler.until = (seconds, lambda: True) if way else (0.0, until)
        for number, rows in enumerate(loader):  # slow: epoch_change
            yield rows
            if number == 0:  # a fork makes the first step longer, and that comes of it
                given.beats.end(but_s=given.beats.bare_step_s())
            if number == period - 1:
                given.beats.begin("epoch_change")  # the old workers end, too


# --- the training ---


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kind", choices=(*BETWEEN, "epoch_change"))
    parser.add_argument("--share", type=float, default=0.3, help="of the training's time")
    parser.add_argument("--period", type=int, default=20, help="it comes after so many steps")
    parser.add_argument("--way", type=int, choices=(0, 1), default=0)
    parser.add_argument("--steps", type=int, help="(default: three periods, 250 at least)")
    given = parser.parse_args()
    steps = given.steps or max(250, 3 * given.period + 20)
    if given.kind in LIBRARIES:  # else the first time takes as long as importing it
        importlib.import_module(LIBRARIES[given.kind])
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder))
        train(training, given, steps)
        if training.writer:
            training.writer.close()
    training.beats.finish()


def train(training: Training, given: argparse.Namespace, steps: int) -> None:
    beats = training.beats
    first: list[float] = []

    def until_after() -> tuple[float, Until]:
        """How long it lasts now, so that it has its share, and whether that has passed."""
        if len(first) < FIRST:  # later ones may be recorded, and longer
            first.append(beats.bare_step_s() or ASSUMED_S)
        step_s = first[-1]
        seconds = given.period * step_s * given.share / (1 - given.share)
        end = time.perf_counter() + seconds
        return seconds, lambda: time.perf_counter() >= end

    if given.kind == "epoch_change":
        for _, rows in zip(range(steps), epochs(training, given.period, given.way, until_after), strict=False):
            training.learn(rows)
            beats.step()
        return
    between = BETWEEN[given.kind][given.way]
    for number in range(steps):
        training.learn(training.rows)
        beats.step()
        if number % given.period == given.period - 1:
            with beats.doing(given.kind):
                between(training, until_after()[1])  # slow: any


if __name__ == "__main__":
    main()

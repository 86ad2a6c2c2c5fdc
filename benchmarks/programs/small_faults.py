"""Small trainings with one fault each that a processor shows: `python small_faults.py NAME [--fix] [--steps N]`.

Each is a function with the fault's name; its docstring says what is wrong, and what `--fix` changes. Those of `TWO_RANKS`
are started by torchrun.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
import torch._dynamo.config as dynamo
import torch.distributed as dist
from beats import Beats
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

Batch = tuple[torch.Tensor, torch.Tensor]
WIDTH, CLASSES = 256, 10


@dataclass
class Training:
    """What all of them do: a small perceptron learns from batches, one optimizer step each."""

    fixed: bool
    steps: int
    depth: int = 4
    width: int = WIDTH

    def __post_init__(self) -> None:
        layers = [
            layer for _ in range(self.depth) for layer in (torch.nn.Linear(self.width, self.width), torch.nn.ReLU())
        ]
        self.model: torch.nn.Module = torch.nn.Sequential(*layers, torch.nn.Linear(self.width, CLASSES))
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def batch(self, rows: int = 256) -> Batch:
        return torch.randn(rows, self.width), torch.randint(CLASSES, (rows,))

    def learn(self, batch: Batch) -> torch.Tensor:
        """One step; returns the scores."""
        scores = self.model(batch[0])
        self.optimizer.zero_grad()
        cross_entropy(scores, batch[1]).backward()
        self.optimizer.step()
        return scores.detach()

    def run(self, batches: Iterable[Batch], after: Callable[[int, torch.Tensor], None] = lambda *_: None) -> None:
        """`after` is called in each step with its number and the scores."""
        beats = Beats()
        for number, batch in zip(range(self.steps), batches, strict=False):
            after(number, self.learn(batch))
            beats.step()
        beats.finish()

    def again_and_again(self, batch: Batch) -> Iterator[Batch]:
        while True:
            yield batch


# --- Python on the training thread ---


def gradient_log(given: Training) -> None:
    """Statistics of every gradient in plain Python, in every step; fixed: in one of fifty."""
    log: list[str] = []

    def after(number: int, _: torch.Tensor) -> None:
        if given.fixed and number % 50:
            return
        for name, weight in given.model.named_parameters():
            values = weight.grad.flatten().tolist()
            log.append(json.dumps({"name": name, "most": max(values), "mean": sum(values) / len(values)}))

    given.run(given.again_and_again(given.batch()), after)


def counted_in_python(given: Training) -> None:
    """A table of right and wrong answers, filled row by row in Python; fixed: by one `bincount`."""
    table = torch.zeros(CLASSES, CLASSES, dtype=torch.long).tolist()
    batch = given.batch(1_024)

    def after(_: int, scores: torch.Tensor) -> None:
        guesses = scores.argmax(1)
        if given.fixed:
            torch.bincount(guesses * CLASSES + batch[1], minlength=CLASSES * CLASSES)
            return
        for _ in range(150):  # as many tables as there are metrics
            for guess, label in zip(guesses.tolist(), batch[1].tolist(), strict=True):
                table[guess][label] += 1

    given.run(given.again_and_again(batch), after)


def layer_hooks(given: Training) -> None:
    """A hook writes a line about every layer's output into a history, some Python for each; fixed: no hooks."""
    given.depth, given.width = 24, 64
    given.__post_init__()
    history: dict[str, list[str]] = {}

    def note(name: str) -> Callable[[torch.nn.Module, object, torch.Tensor], None]:
        def hook(_: torch.nn.Module, __: object, output: torch.Tensor) -> None:
            for size in range(60):
                lines = history.setdefault(f"{name}.{size}", [])
                lines.append(f"{name}: {tuple(output.shape)} {output.dtype} {size:>8}")
                del lines[:-3]

        return hook

    if not given.fixed:
        for name, layer in given.model.named_children():
            layer.register_forward_hook(note(name))
    given.run(given.again_and_again(given.batch()))


def large_heap(given: Training) -> None:
    """A full garbage collection every fifth step, over all that torch and a cache keep; fixed: `gc.freeze()` before."""
    cache = [{"number": number, "parts": [number]} for number in range(20_000)]
    if given.fixed:
        gc.freeze()

    def after(number: int, _: torch.Tensor) -> None:
        if number % 5 == 0:
            gc.collect()

    given.run(given.again_and_again(given.batch(2_048)), after)
    assert cache


def rows_one_by_one(given: Training) -> None:
    """Boxes are cut to the picture and measured one by one, four ops each; fixed: all in four ops."""
    boxes = torch.rand(430, 4)

    def area(corners: torch.Tensor) -> torch.Tensor:
        inside = corners.clamp(0.1, 0.9)
        return (inside[..., 2:] - inside[..., :2]).prod(-1)

    def after(_: int, __: torch.Tensor) -> None:
        _ = area(boxes) if given.fixed else torch.stack([area(box) for box in boxes])

    given.run(given.again_and_again(given.batch(64)), after)


def targets_one_by_one(given: Training) -> None:
    """Soft targets are written into a table number by number; fixed: `scatter_` writes all of them."""
    given.width = 64
    given.__post_init__()
    batch = given.batch(800)

    def after(_: int, __: torch.Tensor) -> None:
        targets = torch.full((800, CLASSES), 0.01)
        if given.fixed:
            targets.scatter_(1, batch[1][:, None], 0.91)
            return
        for row, label in enumerate(batch[1].tolist()):
            targets[row, label] = 0.91

    given.run(given.again_and_again(batch), after)


def adamw_one_by_one(given: Training) -> None:
    """AdamW goes through 66 small tensors one by one, a dozen ops each; fixed: `fused=True`."""
    given.depth, given.width = 32, 96
    given.__post_init__()
    how = {"fused": True} if given.fixed else {"foreach": False}
    given.optimizer = torch.optim.AdamW(given.model.parameters(), lr=1e-3, **how)
    given.run(given.again_and_again(given.batch(64)))


def momentum_one_by_one(given: Training) -> None:
    """SGD with momentum goes through 130 small tensors one by one; fixed: `fused=True`."""
    given.depth, given.width = 64, 48
    given.__post_init__()
    given.optimizer = torch.optim.SGD(
        given.model.parameters(),
        lr=0.01,
        momentum=0.9,
        weight_decay=1e-4,
        **({"fused": True} if given.fixed else {"foreach": False}),
    )
    given.run(given.again_and_again(given.batch(64)))


def new_shapes(given: Training) -> None:
    """A compiled model sees another number of rows every fifth step, and is compiled anew; fixed: rows are padded."""
    given.depth, given.width = 2, 512
    given.__post_init__()
    dynamo.recompile_limit = dynamo.accumulated_recompile_limit = 100_000
    given.model = torch.compile(given.model, backend="aot_eager", dynamic=False)
    batches = (given.batch(1_024 if given.fixed else 1_024 - number // 5) for number in itertools.count())
    given.run(batches)


def too_many_threads(given: Training) -> None:
    """Sixteen threads share every op, on however few cores; fixed: one a core."""
    torch.set_num_threads(len(os.sched_getaffinity(0)) if given.fixed else 16)
    given.width = 512
    given.__post_init__()
    given.run(given.again_and_again(given.batch(512)))


# --- input ---


@dataclass
class Samples(Dataset[Batch]):
    """`sample` makes one from its number."""

    sample: Callable[[int], object]
    count: int = 100_000

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> object:
        return self.sample(index), index % CLASSES


def lists_of_numbers(given: Training) -> None:
    """Samples are lists of Python numbers, which the loader collects number by number; fixed: they are tensors."""
    row = torch.randn(WIDTH)
    numbers = row.tolist()

    def collected(samples: list[tuple[list[float], int]]) -> Batch:
        rows, labels = zip(*samples, strict=True)
        return torch.tensor(rows), torch.tensor(labels)

    data = Samples(lambda _: row if given.fixed else numbers)
    given.run(DataLoader(data, batch_size=512, collate_fn=None if given.fixed else collected))


def one_worker(given: Training) -> None:
    """A single worker waits for a slow disk, sample by sample; fixed: four wait side by side."""
    row = torch.randn(WIDTH)

    def sample(_: int) -> torch.Tensor:
        time.sleep(0.001)  # the disk
        return row

    workers = 4 if given.fixed else 1
    loader = DataLoader(Samples(sample), batch_size=32, num_workers=workers, persistent_workers=True)
    given.run((torch.cat([rows] * 16), torch.cat([labels] * 16)) for rows, labels in loader)


def packed_samples(given: Training) -> None:
    """Samples are unpacked in the training process; fixed: in a worker, on a core that is free."""
    packed = zlib.compress(torch.randint(0, 255, (WIDTH * 96,), dtype=torch.uint8).numpy().tobytes(), 1)

    def sample(_: int) -> torch.Tensor:
        return torch.frombuffer(bytearray(zlib.decompress(packed)), dtype=torch.uint8)[:WIDTH].float() / 255

    workers = {"num_workers": 1, "persistent_workers": True} if given.fixed else {}
    loader = DataLoader(Samples(sample), batch_size=64, **workers)
    given.run((torch.cat([rows] * 8), torch.cat([labels] * 8)) for rows, labels in loader)


def new_workers(given: Training) -> None:
    """Epochs are short, and each starts two workers anew; fixed: they stay."""
    row = torch.randn(WIDTH)
    data = Samples(lambda _: row, count=640)
    loader = DataLoader(data, batch_size=64, num_workers=2, persistent_workers=given.fixed)
    given.run(batch for _ in iter(int, 1) for batch in loader)


# --- two ranks ---


def _of_two_ranks(given: Training, train: Callable[[], None]) -> None:
    """Ends the process group when the model is gone, as two_ranks.py does."""
    dist.init_process_group("gloo")
    given.model = DistributedDataParallel(given.model)
    given.optimizer = torch.optim.SGD(given.model.parameters(), lr=0.01)
    train()
    given.model, given.optimizer = torch.nn.Identity(), None  # type: ignore[assignment]
    gc.collect()
    dist.destroy_process_group()


def uneven_rows(given: Training) -> None:
    """The second rank has three times as many rows as the first; fixed: both have as many."""

    def train() -> None:
        rows = 1_024 if given.fixed else (512, 1_536)[dist.get_rank()]
        given.run(given.again_and_again(given.batch(rows)))

    _of_two_ranks(given, train)


def sums_one_by_one(given: Training) -> None:
    """The ranks add up 64 numbers, one message each; fixed: in one message."""

    def train() -> None:
        numbers = torch.randn(64)

        def after(_: int, __: torch.Tensor) -> None:
            if given.fixed:
                dist.all_reduce(numbers)
            else:
                for number in numbers.split(1):
                    dist.all_reduce(number)

        given.run(given.again_and_again(given.batch()), after)

    _of_two_ranks(given, train)


def sent_each_time(given: Training) -> None:
    """Gradients of four small batches are added up, and sent each time; fixed: once, with `no_sync`."""

    def train() -> None:
        beats, batch = Beats(), given.batch(64)
        for _ in range(given.steps):
            given.optimizer.zero_grad()
            for part in range(4):
                waits = given.model.no_sync() if given.fixed and part < 3 else contextlib.nullcontext()
                with waits:
                    (cross_entropy(given.model(batch[0]), batch[1]) / 4).backward()
            given.optimizer.step()
            beats.step()
        beats.finish()

    given.width = 512
    given.__post_init__()
    _of_two_ranks(given, train)


def one_reports(given: Training) -> None:
    """The first rank reports in every step, and the other waits in a barrier; fixed: one step of fifty."""

    def train() -> None:
        def after(number: int, scores: torch.Tensor) -> None:
            if given.fixed and number % 50:
                return
            if dist.get_rank() == 0:
                json.dumps([[round(value, 3) for value in row] for row in scores.tolist()])
            dist.barrier()

        given.run(given.again_and_again(given.batch(2_048)), after)

    _of_two_ranks(given, train)


ONE_RANK = (
    gradient_log, counted_in_python, layer_hooks, large_heap, rows_one_by_one, targets_one_by_one, adamw_one_by_one,
    momentum_one_by_one, new_shapes,
    too_many_threads, lists_of_numbers, one_worker, packed_samples, new_workers,
)  # fmt: skip
TWO_RANKS = (uneven_rows, sums_one_by_one, sent_each_time, one_reports)
FAULTS = {fault.__name__.replace("_", "-"): fault for fault in (*ONE_RANK, *TWO_RANKS)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name", choices=FAULTS)
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("--steps", type=int, default=80)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    FAULTS[given.name](Training(given.fix, given.steps))


if __name__ == "__main__":
    main()

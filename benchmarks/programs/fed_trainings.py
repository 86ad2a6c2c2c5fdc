"""Trainings that wait for their loader, each for another reason: `python fed_trainings.py NAME [--workers N] [--threads N]`.

What workers bring differs: a sleep needs no core, Python needs one, and what many tensors cost to pass on may be more
than to make them. Each dataset's docstring says what an item takes. `--threads`: with which torch computes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from beats import Beats
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

WIDTH, CLASSES, ITEMS = 256, 10, 100_000


class Items(Dataset):
    """Rows of a table in memory; `batch` items are a batch. The other datasets do something more for each."""

    batch, layers = 32, 4

    def __init__(self) -> None:
        self.inputs = torch.randn(1_000, WIDTH)

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.inputs[index % 1_000], index % CLASSES

    def collate(self, items: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.stack([each for each, _ in items]), torch.tensor([label for _, label in items])

    def inputs_of(self, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return batch


class Asleep(Items):
    """2 ms of sleep, as for a slow network."""

    batch = 16

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.002)
        return super().__getitem__(index)


class InPython(Items):
    """About 1 ms of plain Python."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        text = str(index) * 100
        for _ in range(25):
            text = "".join(chr(ord(letter) % 90 + 32) for letter in text[:400])
        return super().__getitem__(index + len(text) % 2)


class InPythonBesideMuch(InPython):
    """Items made in Python, before a training that takes longer than they do."""

    batch, layers = 16, 60


class ManyTensors(Items):
    """Nothing: a batch is a list of its items' tensors, of different lengths, as graphs or boxes are."""

    batch = 100

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.inputs[index % 1_000][: 8 + index % 32], index % CLASSES

    def collate(self, items: list[tuple[torch.Tensor, int]]) -> tuple[list[torch.Tensor], torch.Tensor]:
        return [each.clone() for each, _ in items], torch.tensor([label for _, label in items])

    def inputs_of(self, batch: tuple[list[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.zeros(len(batch[0]), WIDTH)
        for row, each in zip(rows, batch[0], strict=True):
            row[: len(each)] = each
        return rows, batch[1]


class Graph:
    """A batch of graphs, as torch_geometric has it: attributes of one object."""

    def __init__(self, **parts: torch.Tensor) -> None:
        self.__dict__.update(parts)


class Graphs(Items):
    """Some ops on small tensors, as for the edges of a molecule."""

    batch = 64

    def __getitem__(self, index: int) -> Graph:
        atoms = 10 + index % 20
        edges = torch.stack([torch.arange(atoms), torch.arange(atoms).roll(1)])
        return Graph(x=self.inputs[:atoms], edge_index=edges, edge_attr=torch.ones(atoms, 4), pos=torch.zeros(atoms, 3))

    def collate(self, items: list[Graph]) -> Graph:
        counts = torch.tensor([len(each.x) for each in items])
        firsts = counts.cumsum(0) - counts
        edges = [each.edge_index + first for each, first in zip(items, firsts, strict=True)]
        return Graph(
            x=torch.cat([each.x for each in items]), edge_index=torch.cat(edges, 1),
            edge_attr=torch.cat([each.edge_attr for each in items]), pos=torch.cat([each.pos for each in items]),
            batch=torch.arange(len(items)).repeat_interleave(counts), ptr=firsts, y=counts % CLASSES,
        )  # fmt: skip

    def inputs_of(self, batch: Graph) -> tuple[torch.Tensor, torch.Tensor]:
        sums = torch.zeros(len(batch.y), WIDTH).index_add_(0, batch.batch, batch.x)
        return sums, batch.y


class Pictures(Items):
    """A picture of 3 x 128 x 128 that NumPy turns and scales: 6 MB a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = np.random.default_rng(0).integers(0, 255, (64, 128, 128, 3), dtype=np.uint8)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        turned = np.ascontiguousarray(np.rot90(self.pictures[index % 64], index % 4)).astype(np.float32)
        return torch.from_numpy((turned / 255 - 0.5).transpose(2, 0, 1).copy()), index % CLASSES

    def inputs_of(self, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return batch[0].mean(1)[:, ::8, ::8].flatten(1), batch[1]


class Files(Items):
    """A compressed file of 200 kB on disk."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="fed-")
        content = zlib.compress(np.random.default_rng(0).integers(0, 9, 200_000, dtype=np.uint8).tobytes(), 1)
        for number in range(200):
            (Path(self.folder.name) / f"{number}.z").write_bytes(content)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        content = zlib.decompress((Path(self.folder.name) / f"{index % 200}.z").read_bytes())
        row = torch.frombuffer(bytearray(content), dtype=torch.uint8)[:WIDTH]
        return row.float(), index % CLASSES


KINDS: dict[str, type[Items]] = {
    "in-memory": Items, "asleep": Asleep, "in-python": InPython, "in-python-beside-much": InPythonBesideMuch,
    "many-tensors": ManyTensors, "graphs": Graphs, "pictures": Pictures, "files": Files,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=KINDS)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--epoch", type=int, default=0, help="steps of an epoch; 0: one epoch is all")
    parser.add_argument("--new-workers", action="store_true", help="workers are started for each epoch")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    dataset, beats = KINDS[given.name](), Beats()
    layers = [layer for _ in range(dataset.layers) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(
        dataset, batch_size=dataset.batch, collate_fn=dataset.collate, num_workers=given.workers,
        persistent_workers=bool(given.workers) and not given.new_workers,
    )  # fmt: skip
    loss = torch.zeros(())
    while len(beats.ends_ns) < given.steps:
        for number, batch in enumerate(loader):
            if len(beats.ends_ns) == given.steps or (given.epoch and number == given.epoch):
                break
            inputs, labels = dataset.inputs_of(batch)
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            beats.step()
    beats.finish()
    print(f"loss {loss.item():.6f}", file=sys.stderr)


if __name__ == "__main__":
    main()

"""PyG: batches of small graphs; each has eight tensors, which a worker would have to send one by one."""

from __future__ import annotations

import torch
from beats import Beats, arguments
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

GIVEN = arguments(500, "batches-once", "workers")
NODES, EDGES, KEPT = 18, 40, 2_000


def graph() -> Data:
    return Data(
        x=torch.randn(NODES, 16),
        edge_index=torch.randint(NODES, (2, EDGES)),
        edge_attr=torch.randn(EDGES, 4),
        pos=torch.randn(NODES, 3),
        z=torch.randint(9, (NODES,)),
        mass=torch.rand(NODES),
        charge=torch.rand(1),
        y=torch.randint(2, (1,)),
    )


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(16, 64), GCNConv(64, 64)
        self.out = torch.nn.Linear(64, 2)

    def forward(self, data: Data) -> torch.Tensor:
        hidden = self.first(data.x, data.edge_index).relu()
        hidden = self.second(hidden, data.edge_index).relu()
        return self.out(global_mean_pool(hidden, data.batch))


def main() -> None:
    beats, model = Beats(), Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    workers = {"num_workers": 1, "persistent_workers": True} if GIVEN.fix == "workers" else {}
    loader = DataLoader([graph() for _ in range(KEPT)], batch_size=16, shuffle=True, **workers)
    batches = list(loader) if GIVEN.fix == "batches-once" else loader
    while len(beats.ends_ns) < GIVEN.steps:
        for data in batches:  # slow
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(data), data.y).backward()
            optimizer.step()
            beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

"""A plain training, in which nothing is slow: what planted treatments harm. Seeded, so that the same losses come again."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
)
data = TensorDataset(torch.randn(4_096, 64), torch.randint(10, (4_096,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
loader = DataLoader(data, batch_size=256, shuffle=True)
for _ in range(1_000):
    for rows, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()

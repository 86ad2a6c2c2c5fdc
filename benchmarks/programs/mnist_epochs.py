"""Digits, as in many a first example: short epochs, and behind each a test with batches of four."""

from __future__ import annotations

import torch
from beats import Beats, arguments
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

GIVEN = arguments(300, "large-tests", "rare-tests")
EPOCH, TESTED = 30, 400


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(1, 16, 3), torch.nn.Conv2d(16, 32, 3, stride=2)
        self.wide, self.out = torch.nn.Linear(32 * 6 * 6, 128), torch.nn.Linear(128, 10)
        self.dropout = torch.nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.first(x)), 2)
        x = functional.relu(self.second(x)).flatten(1)
        return functional.log_softmax(self.out(self.dropout(functional.relu(self.wide(x)))), dim=1)


def digits(count: int) -> TensorDataset:
    return TensorDataset(torch.randn(count, 1, 28, 28), torch.randint(10, (count,)))


def test(model: Net, loader: DataLoader) -> None:  # slow: evaluation
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in loader:
            scores = model(images)
            loss += functional.nll_loss(scores, labels, reduction="sum").item()
            right += scores.argmax(1).eq(labels).sum().item()
    print(f"test: loss {loss / TESTED:.3f}, {right} of {TESTED}")


def main() -> None:
    beats, model = Beats(), Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    train = DataLoader(digits(EPOCH * 64), batch_size=64, shuffle=True)
    tested = DataLoader(digits(TESTED), batch_size=TESTED if GIVEN.fix == "large-tests" else 4)
    for epoch in range(GIVEN.steps // EPOCH):
        model.train()
        for images, labels in train:
            optimizer.zero_grad()
            functional.nll_loss(model(images), labels).backward()
            optimizer.step()
            beats.step()
        if epoch % 5 == 0 or GIVEN.fix != "rare-tests":
            with beats.doing("evaluation"):
                test(model, tested)  # slow: evaluation
    beats.finish()


if __name__ == "__main__":
    main()

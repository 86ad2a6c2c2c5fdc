"""A convolution network whose loader has a worker that keeps up, and that is validated once, at the end: nothing to mend."""

from __future__ import annotations

import torch
from beats import Beats, arguments
from torch.utils.data import DataLoader, TensorDataset

GIVEN = arguments(150)


def main() -> None:
    beats = Beats()
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3, stride=2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(256, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = TensorDataset(torch.randn(2_400, 3, 32, 32), torch.randint(10, (2_400,)))
    loader = DataLoader(data, batch_size=32, num_workers=1, persistent_workers=True)
    while len(beats.ends_ns) < GIVEN.steps:
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            beats.step()
    model.eval()
    with torch.no_grad():
        right = sum(
            int((model(images).argmax(1) == labels).sum())
            for images, labels in zip(data.tensors[0].split(100), data.tensors[1].split(100), strict=True)
        )
    print(f"{right} of {len(data)}")
    beats.finish()


if __name__ == "__main__":
    main()

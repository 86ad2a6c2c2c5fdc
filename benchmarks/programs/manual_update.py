"""No optimizer: the loss is a module, the parameters are moved by hand, and a file is polled every step."""

from __future__ import annotations

import time

import torch
from beats import Beats, arguments

GIVEN = arguments(120, "no-poll")


def main() -> None:
    beats = Beats()
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
    )
    judge, rows, labels = torch.nn.CrossEntropyLoss(), torch.randn(512, 256), torch.randint(10, (512,))
    for _ in range(GIVEN.steps):
        loss = judge(model(rows), labels)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.01)
        if GIVEN.fix != "no-poll":
            time.sleep(0.015)  # slow
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

"""DQN: four moves of one pole before each update, which takes its rows from a Python list, one by one."""

from __future__ import annotations

import random
from collections import deque

import gymnasium
import numpy as np
import torch
from beats import Beats, arguments

GIVEN = arguments(500, "rows-in-arrays")
ROWS, KEPT, WARM = 512, 10_000, 600


class Listed:
    """Moves in a list, each a tuple."""

    def __init__(self) -> None:
        self.moves: deque[tuple] = deque(maxlen=KEPT)

    def add(self, *move: object) -> None:
        self.moves.append(move)

    def sample(self) -> list[torch.Tensor]:  # slow
        chosen = random.sample(self.moves, ROWS)
        return [
            torch.stack([torch.as_tensor(row[column], dtype=torch.float32) for row in chosen]) for column in range(5)
        ]


class Arrays:
    """Moves in one array a column."""

    def __init__(self) -> None:
        self.columns = [np.zeros((KEPT, *shape), np.float32) for shape in ((4,), (), (), (4,), ())]
        self.count = 0

    def add(self, *move: object) -> None:
        for column, value in zip(self.columns, move, strict=True):
            column[self.count % KEPT] = value
        self.count += 1

    def sample(self) -> list[torch.Tensor]:
        chosen = np.random.default_rng().integers(min(self.count, KEPT), size=ROWS)
        return [torch.from_numpy(column[chosen]) for column in self.columns]


def main() -> None:
    beats, pole = Beats(), gymnasium.make("CartPole-v1")
    network, target = (
        torch.nn.Sequential(torch.nn.Linear(4, 120), torch.nn.ReLU(), torch.nn.Linear(120, 84), torch.nn.ReLU(), torch.nn.Linear(84, 2))
        for _ in range(2)
    )  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), lr=2.5e-4, fused=True)
    replay = Arrays() if GIVEN.fix == "rows-in-arrays" else Listed()
    state, _ = pole.reset(seed=0)
    for number in range(WARM + 4 * GIVEN.steps):
        with torch.no_grad():
            best = int(network(torch.as_tensor(state)).argmax())
        action = best if random.random() > 0.1 else random.randrange(2)
        following, reward, fallen, late, _ = pole.step(action)
        replay.add(state, action, reward, following, float(fallen))
        state = pole.reset()[0] if fallen or late else following
        if number < WARM or number % 4:
            continue
        seen, actions, rewards, after, ended = replay.sample()  # slow
        with torch.no_grad():
            goal = rewards + 0.99 * target(after).amax(1) * (1 - ended)
        value = network(seen).gather(1, actions.long()[:, None]).squeeze(1)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(value, goal).backward()
        optimizer.step()
        if number % 500 == 0:
            target.load_state_dict(network.state_dict())
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

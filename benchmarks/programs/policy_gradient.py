"""Reinforcement learning: 64 moves of one pole, chosen one at a time, then one update of the policy."""

from __future__ import annotations

import gymnasium
import torch
from beats import Beats, arguments

GIVEN = arguments(80)


def main() -> None:
    beats, pole = Beats(), gymnasium.make("CartPole-v1")
    policy = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    state, _ = pole.reset(seed=0)
    for _ in range(GIVEN.steps):
        chosen, rewards = [], []
        for _ in range(64):
            move = torch.distributions.Categorical(logits=policy(torch.from_numpy(state)))  # slow
            action = move.sample()  # slow
            state, reward, fallen, late, _ = pole.step(int(action))  # slow
            chosen.append(move.log_prob(action))  # slow
            rewards.append(float(reward) if not fallen else -1.0)
            if fallen or late:
                state, _ = pole.reset()
        optimizer.zero_grad()
        (-(torch.stack(chosen) * torch.tensor(rewards)).mean()).backward()  # slow
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

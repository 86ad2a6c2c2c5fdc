"""PPO in one file: a rollout in eight poles, one after the other, then sixteen updates from it."""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from beats import Beats, arguments
from torch.distributions import Categorical

GIVEN = arguments(480, "poles-at-once")
POLES, MOVES, EPOCHS, PARTS = 8, 64, 4, 4


class Agent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.critic, self.actor = (
            torch.nn.Sequential(
                torch.nn.Linear(4, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, n)
            )
            for n in (1, 2)
        )  # fmt: skip

    def value(self, x: torch.Tensor) -> torch.Tensor:
        return self.critic(x).squeeze(-1)

    def move(self, x: torch.Tensor, action: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        choice = Categorical(logits=self.actor(x))
        action = choice.sample() if action is None else action
        return action, choice.log_prob(action), choice.entropy(), self.value(x)


def rollout(agent: Agent, poles: gymnasium.vector.VectorEnv, state: np.ndarray) -> tuple:  # slow: rollout
    rows = []
    for _ in range(MOVES):
        seen = torch.as_tensor(state, dtype=torch.float32)
        with torch.no_grad():
            action, log, _, value = agent.move(seen)
        state, reward, fallen, late, _ = poles.step(action.numpy())
        rows.append(
            (seen, action, log, value, torch.as_tensor(reward, dtype=torch.float32), torch.as_tensor(fallen | late))
        )
    return state, [torch.stack(column) for column in zip(*rows, strict=True)]


def advantages(
    agent: Agent, state: np.ndarray, values: torch.Tensor, rewards: torch.Tensor, ended: torch.Tensor
) -> torch.Tensor:
    with torch.no_grad():
        after = agent.value(torch.as_tensor(state, dtype=torch.float32))
    found, last = torch.zeros_like(rewards), torch.zeros(POLES)
    for moment in reversed(range(MOVES)):
        lives = 1.0 - ended[moment].float()
        last = rewards[moment] + 0.99 * after * lives - values[moment] + 0.99 * 0.95 * lives * last
        found[moment], after = last, values[moment]
    return found


def main() -> None:
    beats, agent = Beats(), Agent()
    at_once = "vector_entry_point" if GIVEN.fix == "poles-at-once" else "sync"
    poles = gymnasium.make_vec("CartPole-v1", num_envs=POLES, vectorization_mode=at_once)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5, fused=True)
    state, _ = poles.reset(seed=0)
    for _ in range(GIVEN.steps // (EPOCHS * PARTS)):
        with beats.doing("rollout"):
            state, (seen, actions, logs, values, rewards, ended) = rollout(agent, poles, state)  # slow: rollout
            better = advantages(agent, state, values, rewards, ended)
        returns = (better + values).flatten()
        seen, actions, logs, better = (t.flatten(0, 1) for t in (seen, actions, logs, better))
        for _ in range(EPOCHS):
            for chosen in torch.randperm(POLES * MOVES).chunk(PARTS):
                _, new, entropy, value = agent.move(seen[chosen], actions[chosen])
                ratio, gain = (new - logs[chosen]).exp(), better[chosen]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
                loss = policy - 0.01 * entropy.mean() + 0.5 * (value - returns[chosen]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

"""Small programs of kinds of which no public recording is there, recorded by torch.profiler on the processor.

`python made_programs.py NAME FOLDER`. Each says what one step took by its own clock, and how much of it was planted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

STEPS = 6


@contextmanager
def recorded(folder: Path) -> Iterator[Callable[[], None]]:
    """Records the steps behind the first two; what is given ends a step."""
    wait = schedule(wait=1, warmup=1, active=STEPS, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=wait,
        with_stack=True,
        on_trace_ready=lambda done: done.export_chrome_trace(str(folder / "trace.json")),
    ) as prof:
        yield prof.step


def block(width: int, layers: int) -> nn.Sequential:
    return nn.Sequential(*(each for _ in range(layers) for each in (nn.Linear(width, width), nn.GELU())))


class Clips(Dataset[torch.Tensor]):
    """Three seconds of sound as a spectrogram, made in the process that trains."""

    def __len__(self) -> int:
        return 8 * (STEPS + 3)

    def __getitem__(self, index: int) -> torch.Tensor:
        sound = torch.randn(48_000)
        for _ in range(6):
            spectrum = torch.stft(sound, 1024, 256, window=torch.hann_window(1024), return_complex=True).abs()
        return spectrum[:128, :64].clamp(min=1e-5).log()


def audio(folder: Path) -> None:
    model = nn.Sequential(nn.Conv1d(128, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters())
    with recorded(folder) as step:
        for batch in DataLoader(Clips(), batch_size=8):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            step()


def diversity(samples: list[list[float]]) -> float:
    """The mean distance of all pairs, in plain Python."""
    total = 0.0
    for one in samples:
        for other in samples:
            for place in range(256):  # no call: the profiler would record each
                total += (one[place] - other[place]) ** 2
    return total / len(samples) ** 2


def gan(folder: Path) -> None:
    generator, judge = block(256, 2), nn.Sequential(block(256, 2), nn.Linear(256, 1))
    makers, judges = torch.optim.Adam(generator.parameters()), torch.optim.Adam(judge.parameters())
    with recorded(folder) as step:
        for _ in range(STEPS + 2):
            real, noise = torch.randn(64, 256), torch.randn(64, 256)
            judges.zero_grad()
            made = generator(noise)
            (judge(made.detach()).mean() - judge(real).mean()).backward()
            judges.step()
            makers.zero_grad()
            (-judge(made).mean()).backward()
            makers.step()
            diversity(made.detach()[:64].tolist())
            step()


class Rows(Dataset[torch.Tensor]):
    """Each row comes from a slow disk."""

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.randn(128)


def accumulate(folder: Path) -> None:
    """Four micro-batches an update, of which each waits 20 ms for its rows."""
    model = block(128, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    batches = iter(DataLoader(Rows(8 * 4 * (STEPS + 3), 0.0025), batch_size=8))
    with recorded(folder) as step:
        for _ in range(STEPS + 2):
            for _micro in range(4):
                (model(next(batches)).square().mean() / 4).backward()
            optimizer.step()
            optimizer.zero_grad()
            step()


def confusion(found: list[int], known: list[int], classes: int) -> list[list[int]]:
    table = [[0] * classes for _ in range(classes)]
    for one in range(classes):
        for other in range(classes):
            table[one][other] = sum(1 for a, b in zip(found, known, strict=True) if a == one and b == other)
    return table


def evaluate(folder: Path) -> None:
    """No backward pass: a model judged, and its table of mistakes counted in plain Python."""
    model = nn.Sequential(block(512, 4), nn.Linear(512, 20)).eval()
    with recorded(folder) as step, torch.no_grad():
        for _ in range(STEPS + 2):
            rows, known = torch.randn(256, 512), torch.randint(0, 20, (256,))
            confusion(model(rows).argmax(1).tolist(), known.tolist(), 20)
            step()


class Lora(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.kept = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).requires_grad_(
            False
        )
        self.down, self.up = nn.Linear(width, 8, bias=False), nn.Linear(8, width, bias=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows + self.kept(rows) + self.up(self.down(rows))


def lora(folder: Path) -> None:
    """A few weights trained, and each block computed once more in the backward pass."""
    blocks = nn.ModuleList(Lora(256) for _ in range(6))
    optimizer = torch.optim.AdamW(each for each in blocks.parameters() if each.requires_grad)
    with recorded(folder) as step:
        for _ in range(STEPS + 2):
            rows = torch.randn(256, 256, requires_grad=True)
            for each in blocks:
                rows = checkpoint(each, rows, use_reentrant=False)
            rows.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            step()


def diffusion(folder: Path) -> None:
    """Asks for a number after each denoising step; on the processor nothing waits for that."""
    model = nn.Sequential(
        nn.Conv2d(4, 64, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(64, 4, 3, padding=1),
    )
    picture = torch.randn(4, 4, 64, 64)
    with recorded(folder) as step, torch.inference_mode():
        for _ in range(STEPS + 2):
            picture = picture - 0.02 * model(picture)
            if picture.abs().max().item() > 1e6:
                break
            step()


def legacy(folder: Path) -> None:
    """The profiler before torch.profiler, `torch.autograd.profiler_legacy`, without Kineto: its own Chrome trace."""
    model = block(128, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.autograd.profiler_legacy.profile() as prof:
        for batch in DataLoader(Rows(8 * STEPS, 0.004), batch_size=8):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    prof.export_chrome_trace(str(folder / "trace.json"))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)  # two that wait for each other take ages on a busy machine
    globals()[sys.argv[1]](Path(sys.argv[2]))

"""blocking_checkpoints.py, fixed: the loop only copies the state; a thread writes the copy, one at a time.

    python examples/blocking_checkpoints_fixed.py [--steps N]

A checkpoint that comes up while the one before is still being written is left out: the disk sets the rate, and the
training does not wait for it. For large models torch.distributed.checkpoint.async_save does the same.
"""

from __future__ import annotations

import threading
from pathlib import Path

import torch
from blocking_checkpoints import train, write


class InTheBackground:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.copies: dict[str, torch.Tensor] = {}
        self.writer = threading.Thread()

    def save(self, state: dict[str, torch.Tensor]) -> None:
        if self.writer.is_alive():
            return
        for name, value in state.items():
            if name not in self.copies:
                self.copies[name] = torch.empty_like(value, device="cpu", pin_memory=value.is_cuda)
            # On a GPU it is queued before the next update, which therefore cannot spoil it.
            self.copies[name].copy_(value, non_blocking=True)
        copied = torch.cuda.Event() if torch.cuda.is_available() else None
        if copied is not None:
            copied.record()
        self.writer = threading.Thread(target=self._write, args=[copied])
        self.writer.start()

    def _write(self, copied: torch.cuda.Event | None) -> None:
        if copied is not None:
            copied.synchronize()
        write(self.copies, self.file)

    def finish(self) -> None:
        if self.writer.is_alive():
            self.writer.join()


if __name__ == "__main__":
    train(InTheBackground)

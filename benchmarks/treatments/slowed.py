"""Run a program as if its author had made one mistake: `python slowed.py MISTAKE PROGRAM.py [ARGUMENTS]`.

The program's own file stays as it is, and is the mended twin; `rarely-collected` is no mistake, but one mended with the
lines that `perfdoctor treat` prints.
"""

from __future__ import annotations

import gc
import runpy
import sys
from pathlib import Path

import torch


def anomaly() -> None:
    torch.autograd.set_detect_anomaly(True)


def one_by_one() -> None:
    """Optimizers that update one parameter after the other."""
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
        original = kind.__init__

        def made(self: object, *args: object, _original: object = original, **kwargs: object) -> None:
            _original(self, *args, **{**kwargs, "foreach": False, "fused": None})  # type: ignore[operator]

        kind.__init__ = made  # type: ignore[method-assign]


def often_collected() -> None:
    gc.set_threshold(20, 1, 1)


def rarely_collected() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def main() -> None:
    mistake, program, *arguments = sys.argv[1:]
    known = (anomaly, one_by_one, often_collected, rarely_collected)
    {each.__name__.replace("_", "-"): each for each in known}[mistake]()
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()

"""What are ranks and their devices called wherever they are shown?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: What sentences of rules call that which is idle: `{The_device}` at their beginning, `{the_device}` inside; what the
#: host does meanwhile, where that is no work of it; and how it is said that nothing is computed.
GPU: Mapping[str, str] = {
    "The_device": "The GPU",
    "the_device": "the GPU",
    "is_idle": "is idle",
    "runs_code": "runs code that launches no GPU work",
    "no_compute": "no compute kernel runs",
}
TRAINING_THREAD: Mapping[str, str] = {
    "The_device": "The training thread",
    "the_device": "the training thread",
    "is_idle": "runs no op",
    "runs_code": "runs other code",
    "no_compute": "the training thread runs no op",
}
MAIN_THREAD: Mapping[str, str] = {
    "The_device": "The main thread",
    "the_device": "the main thread",
    "is_idle": "runs no op",
    "runs_code": "runs other code",
    "no_compute": "the main thread runs no op",
}


def place_names(places: Sequence[tuple[int, int | None]]) -> list[str]:
    """Name each (rank, device): `rank 3`, with its device if a rank has several. None or below 0: no device."""
    ranks = [rank for rank, _ in places]
    several = len(set(ranks)) < len(ranks)
    return [
        f"rank {rank}, device {device}" if several and device is not None and device >= 0 else f"rank {rank}"
        for rank, device in places
    ]

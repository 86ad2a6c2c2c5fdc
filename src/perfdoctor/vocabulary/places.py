"""What are ranks and their devices called wherever they are shown?"""

from __future__ import annotations

from collections.abc import Sequence


def place_names(places: Sequence[tuple[int, int | None]]) -> list[str]:
    """Of (rank, device) each: `rank 3`, with its device where a rank has several. Device None or below 0: none."""
    ranks = [rank for rank, _ in places]
    several = len(set(ranks)) < len(ranks)
    return [
        f"rank {rank}, device {device}" if several and device is not None and device >= 0 else f"rank {rank}"
        for rank, device in places
    ]

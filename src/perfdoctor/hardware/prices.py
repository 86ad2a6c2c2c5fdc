"""What does a GPU cost an hour, as its user says or as a provider lists it?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from perfdoctor.system.toml_tables import shipped_table


class Price(Struct, frozen=True):
    """Price of one GPU in `currency` an hour ("": the user named none).

    `gpu` is the board, `source` the provider, and `date` the day on which its list was read; "" for a user's own price.
    """

    per_gpu_hour: float
    currency: str = ""
    gpu: str = ""
    source: str = ""
    date: str = ""


@lru_cache(maxsize=1)
def listed_prices() -> Mapping[str, Price]:
    """All list prices, by the name of the GPU in the table of peaks (`Peaks.name`)."""
    entries = shipped_table(Path(__file__).with_name("prices.toml"))["price"]
    return {entry["gpu"]: Price(**entry) for entry in entries}

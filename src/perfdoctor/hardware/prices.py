"""What does a GPU cost an hour, as its user says or as a provider lists it?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from perfdoctor.system.toml_tables import shipped_table


class Price(Struct, frozen=True):
    """Of one GPU, in `currency` an hour ("": the user named none).

    `gpu`, `source` and `date`: of which board, whose list price it is, and the day on which it was read; "" for the
    user's own price.
    """

    per_gpu_hour: float
    currency: str = ""
    gpu: str = ""
    source: str = ""
    date: str = ""


@lru_cache(maxsize=1)
def listed_prices() -> Mapping[str, Price]:
    """All that are known, by the name of the GPU."""
    entries = shipped_table(Path(__file__).with_name("prices.toml"))["price"]
    return {
        entry["gpu"]: Price(
            float(entry["per_gpu_hour"]), entry["currency"], entry["gpu"], entry["source"], entry["date"]
        )
        for entry in entries
    }


def listed_price(gpu: str) -> Price | None:
    """Of a GPU by its name in the table of peaks (`Peaks.name`); None where no list price is known."""
    return listed_prices().get(gpu)

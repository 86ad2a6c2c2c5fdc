"""What do the links between the GPUs of one machine give, going by the GPU's name?"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Link:
    """One GPU's links to the others of its machine, one way, in bytes/s.

    `peak_bytes_per_second`: all links together; `pair_bytes_per_second`: what the sparsest published board has between
    two GPUs, which a collective of any number of ranks can use.
    """

    name: str
    peak_bytes_per_second: float
    pair_bytes_per_second: float


@lru_cache(maxsize=1)
def _table() -> list[tuple[re.Pattern[str], Link]]:
    text = (files("perfdoctor.hardware") / "links.toml").read_text("utf-8")
    return [(re.compile(entry["match"], re.IGNORECASE), _link(entry)) for entry in tomllib.loads(text)["link"]]


def _link(entry: dict[str, float | str]) -> Link:
    return Link(str(entry["name"]), float(entry["peak"]) * 1e9, float(entry["pair"]) * 1e9)


@lru_cache(maxsize=256)
def link_of(gpu_name: str) -> Link | None:
    """None for a GPU that is not in the table, for one whose links its name does not tell, and for "" (not told)."""
    return next((link for pattern, link in _table() if pattern.search(gpu_name)), None)

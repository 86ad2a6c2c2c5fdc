"""Which slow trainings come with perfdoctor, and which fault has each? Read from `examples/faults.toml`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from perfdoctor.system.toml_tables import parsed, shipped_folder


class Example(Struct, frozen=True):
    """A slow training; its fixed twin is `<name>_fixed.py`.

    `rule` names its fault. `cannot_show` says why a run without a GPU shows nothing of it, `saves_no_time` why the fix
    makes no step shorter; each is "" where it does. `ranks`: how many processes the fault takes. `sizes_change`: the
    twin has other sizes, so that its losses are others.
    """

    name: str
    rule: str
    cannot_show: str = ""
    saves_no_time: str = ""
    ranks: int = 1
    sizes_change: bool = False

    @property
    def slow(self) -> Path:
        return examples_folder() / f"{self.name}.py"

    @property
    def fixed(self) -> Path:
        return examples_folder() / f"{self.name}_fixed.py"


def examples_folder() -> Path:
    """Return the folder of the examples: inside an installed wheel, else beside `src/` in a checkout."""
    return shipped_folder("examples")


@lru_cache(maxsize=1)
def load_examples() -> dict[str, Example]:
    """Every example by name, in the order of the file."""
    table = parsed((examples_folder() / "faults.toml").read_text("utf-8"))
    return {name: Example(name, **entry) for name, entry in table.items()}

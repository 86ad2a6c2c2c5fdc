"""Which slow trainings are there, each beside its fixed twin, and what is wrong with each? See examples/faults.toml."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from perfdoctor.system.examples import examples_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Training:
    """A script of examples/. `cannot_show`: why a processor alone shows nothing of its fault, "" if it does."""

    name: str
    rule: str
    file: Path
    ranks: int = 1
    cannot_show: str = ""

    @property
    def twin(self) -> Training:
        """The same training without the fault."""
        name = f"{self.name}_fixed"
        return replace(self, name=name, file=self.file.with_name(f"{name}.py"))


@lru_cache(maxsize=1)
def trainings() -> dict[str, Training]:
    """By name, in the order of the table."""
    folder = examples_folder()
    table = tomllib.loads((folder / "faults.toml").read_text("utf-8"))
    return {
        name: Training(
            name, str(row["rule"]), folder / f"{name}.py", int(row.get("ranks", 1)), str(row.get("cannot_show", ""))
        )
        for name, row in table.items()
    }

"""Which slow trainings are there, each beside its fixed twin, and what is wrong with each? See examples/faults.toml."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from perfdoctor.vocabulary.examples import load_examples


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
    return {
        name: Training(name, example.rule, example.slow, example.ranks, example.cannot_show)
        for name, example in load_examples().items()
    }

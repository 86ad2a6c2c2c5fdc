"""What is said of the model's modules where there is room for a few?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean_name

if TYPE_CHECKING:
    from perfdoctor.records.diagnosis import Diagnosis

_SHOWN = 5


class ModuleLine(NamedTuple):
    time: str
    share: str
    what: str


def heading(diagnosis: Diagnosis) -> str:
    return f"Modules that take most of {diagnosis.basis.whole} by themselves, forward and backward"


def costliest(diagnosis: Diagnosis) -> Sequence[ModuleLine]:
    """Without the modules inside them; what is outside of modules is left out."""
    shown = [module for module in diagnosis.modules if module.path and module.own_ns > 0][:_SHOWN]
    return [
        ModuleLine(
            wording.duration(module.own_ns),
            wording.share_of(module.own_ns, diagnosis.recorded_ns),
            f"{clean_name(module.path)} ({clean_name(module.module_class)})",
        )
        for module in shown
    ]

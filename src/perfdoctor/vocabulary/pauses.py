"""What may a training do between its steps, and how is it recognised? Each kind is a row of pauses.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import shipped_table
from perfdoctor.vocabulary.names.python_code import is_user_function

#: What no pattern shows, what the start of an epoch is, and what is no work of the program's between its steps.
UNKNOWN, EPOCH_CHANGE, EVALUATION = "unknown", "epoch_change", "evaluation"
LEARNING_RATE_SEARCH, CHECKPOINT, LOGGING = "learning_rate_search", "checkpoint", "logging"
ROLLOUT = "rollout"
#: Whose functions are named for what they do, beside the user's own.
_TRAINERS = regex(r"(^|/)((pytorch_)?lightning|transformers|accelerate|ignite|fastai|trl|composer|stable_baselines3)/")
#: A frame's function: `train.py(14): Net.forward` → `forward`.
_FUNCTION = regex(r"\): (?:.*\.)?(\w+)$")


class Pause(Struct, frozen=True):
    """A kind of work between steps: its title in reports, the rule about it ("" for none), and how it is recognised."""

    title: str
    rule: str = ""
    functions: re.Pattern[str] | None = None
    files: re.Pattern[str] | None = None

    def is_done_by(self, frame: str, *, is_named: bool) -> bool:
        """Does this frame, `file(line): function`, do it? `is_named`: its function is named for what it does."""
        if self.files is not None and self.files.search(frame):
            return True
        if self.functions is None or not is_named:
            return False
        found = _FUNCTION.search(frame)
        return found is not None and self.functions.search(found[1]) is not None


def _pattern(text: str) -> re.Pattern[str] | None:
    return regex(text, re.IGNORECASE) if text else None


PAUSES: Mapping[str, Pause] = {
    name: Pause(row["title"], row.get("rule", ""), _pattern(row["functions"]), _pattern(row["files"]))
    for name, row in shipped_table(Path(__file__).with_suffix(".toml")).items()
}


def is_named(frame: str) -> bool:
    """Is the function of this frame named for what it does: the user's own, or a trainer's?"""
    return is_user_function(frame) or _TRAINERS.search(frame) is not None


def kind_of_frame(frame: str) -> str:
    """The kind of work between steps that this frame does; "" where it shows none."""
    named = is_named(frame)
    return next((kind for kind, pause in PAUSES.items() if pause.is_done_by(frame, is_named=named)), "")

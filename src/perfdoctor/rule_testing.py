"""How is a rule of one's own tested? Recordings drawn as text, and what the rule finds in them: docs/own-rules.md."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline, merge
from perfdoctor.own_rules import seen
from perfdoctor.own_rules.drawn import draw
from perfdoctor.own_rules.tried import rule_at, tried
from perfdoctor.records.findings import Finding

__all__ = ["draw", "findings", "recorded", "together"]


def findings(rule: str | os.PathLike[str], recording: Timeline | Run, **thresholds: float) -> list[Finding]:
    """What the rule in this .toml finds in the recording, with its own thresholds but those given.

    Every sentence was filled with the finding's numbers, the finding was checked, and a diagnosis made with it. Raises
    what is wrong with the rule: RuleError with its file and line.
    """
    found = tried(rule_at(Path(rule)), recording, thresholds)
    if target := os.environ.get(seen.FILE):
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(json.dumps(seen.line_of(Path(rule), found)) + "\n")
    return list(found.findings)


def recorded(*paths: str | os.PathLike[str]) -> Timeline:
    """The recording in these files, or this folder, for `findings`."""
    from perfdoctor.readers.open import read  # noqa: PLC0415 most tests draw theirs

    return read([Path(path) for path in paths])


def together(ranks: Sequence[Timeline]) -> Timeline:
    """One recording of several ranks, each drawn with a `rank` of its own."""
    return merge(list(ranks))

"""How is a rule of one's own tested? Recordings drawn as text, and what the rule finds in them: docs/own-rules.md."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline, merge
from perfdoctor.own_rules.drawn import draw, draw_steps
from perfdoctor.own_rules.tried import SEEN_FILE, line_of, rule_at, tried
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.signals import need_label

__all__ = ["draw", "draw_steps", "findings", "recorded", "together"]


def findings(rule: str | os.PathLike[str], recording: Timeline | Run, **thresholds: float) -> list[Finding]:
    """What a rule finds in a recording.

    Every sentence is filled with the finding's numbers, the finding is checked, and a diagnosis is made with it.

    Args:
        rule: The path of the rule's .toml.
        recording: What the rule looks at.
        **thresholds: Thresholds by name, which replace those of the rule's document.

    Returns:
        The findings.

    Raises:
        PerfdoctorError: Something is wrong with the rule, which is named with its file and line, or the recording lacks
            what the rule `needs`.
    """
    found = tried(rule_at(Path(rule)), recording, thresholds)
    if found.lacking:
        raise PerfdoctorError(
            f"the rule is skipped: the recording has no {' and no '.join(map(need_label, found.lacking))}",
            do="draw_steps draws steps, and what launched what; a signal counts as recorded if it is drawn.",
        )
    if target := os.environ.get(SEEN_FILE):
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line_of(Path(rule), found)) + "\n")
    return list(found.findings)


def recorded(*paths: str | os.PathLike[str]) -> Timeline:
    """A recording from files, for `findings`.

    Args:
        *paths: Files, or one folder.

    Returns:
        The recording.
    """
    from perfdoctor.readers.open import read  # noqa: PLC0415 most tests draw theirs

    return read([Path(path) for path in paths])


def together(ranks: Sequence[Timeline]) -> Timeline:
    """One recording of several ranks.

    Args:
        ranks: The recordings, each drawn with a `rank` of its own.

    Returns:
        The recording of all of them.
    """
    return merge(list(ranks))
